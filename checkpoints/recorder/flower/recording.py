"""Runs of Flower, recorded: what clients sent, before it is aggregated, and what the strategy made of it.

Source: flwr 1.41, ``flwr.serverapp.strategy`` (messages) and ``flwr.server.strategy`` (the older interface).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ...io.keywords import speak_keywords
from ...io.warn_user import warn_user
from ..framework_rounds import open_in_place_of
from ..recorder import Recorder
from .replies import partition_mod as partition_mod
from .strategies import MessageWatch, ResultWatch

Strategy = TypeVar("Strategy")

#: parts of the names of strategies that change models on their way from the clients to the mean
_PRIVATE = ("DifferentialPrivacy", "DPFedAvg")


@partial(speak_keywords, called={"out": "path"}, typed=False)
def record(
    strategy: Strategy,
    path: Path | str,
    *,
    model: Any = None,
    data: Any = None,
    standardise: bool | None = None,
    keep_data: bool = True,
    method: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    partition: Mapping[int, Any] | None = None,
    labels: Any = None,
    keep: str = "all",
    sketch: int = 0,
    drift: bool = False,
    lora_alpha: float | None = None,
    base: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
) -> Strategy:
    """Record what a Flower strategy sends, gets and makes of it; gives the same strategy back, which now records.

    The clients' models in the run are, bit for bit, those that reached the server. ``start`` and ``global`` have the
    dtypes of the clients' tensors, as clients load them. Clients are numbered by their partition where the ClientApp
    has :func:`partition_mod`, else in the order in which they first reply. What cannot be recorded is a warning: the
    training goes on. ``strategy.recorder`` is the :class:`~fedscope.Recorder`, which ``strategy.start`` closes.

    Args:
        strategy: an instance, of ``flwr.serverapp.strategy``, of ``flwr.server.strategy`` or of a class of your own of
            either kind; of several that wrap each other the outermost. Recording it again ends the former recording.
        path: of the new run's folder.
        model: the architecture: a module, a class or function without arguments that makes one, or its name
            (``cnn``, ``module:factory``). Strategies of the older kind send arrays without names, which only a module
            has.
        method, seed, settings: as of :class:`~fedscope.Recorder`; without a method ``table`` and ``ls`` call the run by
            its strategy, ``Flower (FedAvg)``.
        data, standardise, keep_data, partition, labels, keep, sketch, drift, lora_alpha, base, resume, force: as
            of :class:`~fedscope.Recorder`.

    Raises:
        FedscopeError: no strategy; an older one without ``model``; something is in the way at ``path``.

    Example::

        strategy = fedscope.record(FedAvg(), "runs/flower", model=Net)
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)
    """
    kind = _kind(strategy)
    named = model is not None and not isinstance(model, str)
    if kind is ResultWatch and not named:
        raise FedscopeError(
            f"{type(strategy).__name__} of flwr.server.strategy sends arrays without names, which a run takes from the "
            f"model; give the module or its class, as model=Net, not {model!r}"
        )
    source = f"Flower ({type(strategy).__name__})"
    about: dict[str, Any] = {"model": model, "data": data, "partition": partition, "labels": labels}
    about |= {"standardise": standardise, "keep_data": keep_data, "drift": drift}
    about |= {"lora_alpha": lora_alpha, "base": base}
    about |= {"method": method, "seed": seed, "settings": settings}
    if any(word in parent.__name__ for word in _PRIVATE for parent in type(strategy).__mro__):
        warn_user(
            f"{type(strategy).__name__} clips models or adds noise to their mean: the run holds clients' models as "
            "they reach the server, and global is not their mean"
        )
    about |= {"keep": keep, "sketch": sketch, "resume": resume, "force": force}
    former = getattr(strategy, "_fedscope", None)
    watch = kind(strategy, open_in_place_of(former, path, lambda: Recorder(path, source=source, **about)), named)
    if former is not None and watch.recorder.accepted and former.recorder.path == watch.recorder.path:
        watch.number_as(former)  # its nodes may be the same
    return strategy


def _kind(strategy: Any) -> type[MessageWatch] | type[ResultWatch]:
    """Find the interface that a strategy has.

    Raises:
        FedscopeError: of neither; a class.
    """
    if isinstance(strategy, type):
        raise FedscopeError(f"{strategy.__name__} is a class; give an instance, as in record({strategy.__name__}(), …)")
    for kind, calls in (
        (MessageWatch, ("configure_train", "aggregate_train")),
        (ResultWatch, ("configure_fit", "aggregate_fit")),
    ):
        if all(callable(getattr(strategy, call, None)) for call in calls):
            return kind
    raise FedscopeError(
        f"{type(strategy).__name__} is not a strategy of Flower: it has neither configure_train and aggregate_train "
        "nor configure_fit and aggregate_fit; give one of flwr.serverapp.strategy, as in record(FedAvg(), …)"
    )
