"""Simulations of BlazeFL, recorded: what its server handlers send, get and make of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ...io.keywords import speak_keywords
from ..framework_rounds import check_version, open_in_place_of
from ..recorder import Recorder
from .watch import NEEDED, HandlerWatch

Handler = TypeVar("Handler")

#: of BlazeFL, with which recording is tested
TESTED = "2.0.3"


@partial(speak_keywords, called={"out": "path"}, typed=False)
def record_blazefl(
    handler: Handler,
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
) -> Handler:
    """Record what a server handler of BlazeFL sends, gets and makes of it; gives the same handler back, which now
    records.

    The clients' models in the run are, bit for bit, those that ``global_update`` is given, before it makes a mean of
    them. Their tensors have the names, shapes and dtypes of ``handler.model``. Clients have their ``cid`` as number.
    The run is closed as ``if_stop`` says that the training is over; loops that do not ask it call
    ``handler.recorder.close()``. What cannot be recorded is a warning: the training goes on.

    Args:
        handler: an instance of ``FedAvgBaseServerHandler``, or of a class of your own that keeps the model that it
            sends in ``handler.model``. Recording it again ends the former recording.
        path: of the new run's folder.
        model: the architecture: its name (``cnn``, ``module:factory``), or a class or function without arguments that
            makes a module.
        method, seed, settings: as of :class:`~fedscope.Recorder`; without a method ``table`` and ``ls`` call the run by
            its handler, ``BlazeFL (FedAvgBaseServerHandler)``.
        data, standardise, keep_data, partition, labels, keep, sketch, drift, lora_alpha, base, resume, force: as of
            :class:`~fedscope.Recorder`.

    Raises:
        FedscopeError: no such handler; BlazeFL is not installed; something is in the way at ``path``.

    Example::

        handler = fedscope.record_blazefl(FedAvgBaseServerHandler(...), "runs/blazefl", model="task:Net")
        while not handler.if_stop():
            cohort, package = handler.sample_clients(), handler.downlink_package()
            trainer.local_process(package, cohort)
            for one in trainer.uplink_package():
                handler.load(one)
    """
    kind = type(handler).__name__
    if isinstance(handler, type):
        raise FedscopeError(
            f"{handler.__name__} is a class; give an instance, as in record_blazefl({handler.__name__}(...), ...)"
        )
    if lacking := [call for call in NEEDED if not callable(getattr(handler, call, None))]:
        example = "pipeline.handler" if hasattr(handler, "handler") else "FedAvgBaseServerHandler(...)"
        raise FedscopeError(
            f"{kind} is no server handler of BlazeFL: it has no {lacking[0]}; give one, as in "
            f"record_blazefl({example}, ...)"
        )
    check_version("blazefl", TESTED)
    about: dict[str, Any] = {"model": model, "data": data, "partition": partition, "labels": labels}
    about |= {"standardise": standardise, "keep_data": keep_data, "drift": drift}
    about |= {"lora_alpha": lora_alpha, "base": base}
    about |= {"method": method, "seed": seed, "settings": settings}
    about |= {"keep": keep, "sketch": sketch, "resume": resume, "force": force}
    watched: Any = handler
    former = getattr(watched, "_fedscope", None)
    recorder = open_in_place_of(former, path, lambda: Recorder(path, source=f"BlazeFL ({kind})", **about))
    watched.recorder, watched._fedscope = recorder, HandlerWatch(handler, recorder)
    return handler
