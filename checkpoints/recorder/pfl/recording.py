"""Simulations of pfl-research, recorded: users' models as they were trained, and the model after each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ...io.keywords import speak_keywords
from ..client_names import ClientNames
from ..framework_rounds import check_version, open_in_place_of
from ..recorder import Recorder
from .watch import AlgorithmWatch, refuse_ranks

Algorithm = TypeVar("Algorithm")

#: of pfl, with which recording is tested
TESTED = "0.6.0"


@partial(speak_keywords, called={"out": "path"}, typed=False)
def record_pfl(
    algorithm: Algorithm,
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
    clients: Sequence[str] | None = None,
    keep: str = "all",
    sketch: int = 0,
    drift: bool = False,
    lora_alpha: float | None = None,
    base: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
) -> Algorithm:
    """Record what an algorithm of pfl-research trains; gives the same algorithm back, which now records.

    The users' models in the run are, bit for bit, those that local training ended with. ``algorithm.run`` closes the
    run. What cannot be recorded is a warning: the training goes on.

    Args:
        algorithm: an instance that trains models on users: ``FederatedAveraging``, ``FedProx``, ``SCAFFOLD``,
            ``Reptile`` or one of your own with ``train_one_user``. Recording it again ends the former recording.
        path: of the new run's folder.
        model: the architecture: its name (``cnn``, ``module:factory``), or a class or function without arguments that
            makes a module.
        clients: the users' ids in the order of their numbers, from 0. Without them an id that ends in a number has that
            number, others the next one that is free.
        method, seed, settings: as of :class:`~fedscope.Recorder`; without a method ``table`` and ``ls`` call the run by
            its algorithm, ``pfl (FederatedAveraging)``.
        data, standardise, keep_data, partition, labels, keep, sketch, drift, lora_alpha, base, resume,
            force: as of :class:`~fedscope.Recorder`.

    Raises:
        FedscopeError: no such algorithm; pfl is not installed; it simulates in several processes; something is in the
            way at ``path``.

    Example::

        algorithm = fedscope.record_pfl(FederatedAveraging(), "runs/pfl", model="task:Net")
        algorithm.run(params, backend, model, train_params, eval_params)
    """
    if isinstance(algorithm, type):
        name = algorithm.__name__
        raise FedscopeError(f"{name} is a class; give an instance, as in record_pfl({name}(), ...)")
    calls = ("train_one_user", "process_aggregated_statistics_from_all_contexts", "run")
    if lacking := [call for call in calls if not callable(getattr(algorithm, call, None))]:
        raise FedscopeError(
            f"{type(algorithm).__name__} is no algorithm of pfl that trains models on users: it has no {lacking[0]}; "
            "give one, as in record_pfl(FederatedAveraging(), ...)"
        )
    check_version("pfl", TESTED)
    refuse_ranks()
    ClientNames(clients)
    about: dict[str, Any] = {"model": model, "data": data, "partition": partition, "labels": labels}
    about |= {"standardise": standardise, "keep_data": keep_data, "drift": drift}
    about |= {"lora_alpha": lora_alpha, "base": base}
    about |= {"method": method, "seed": seed, "settings": settings}
    source = f"pfl ({type(algorithm).__name__})"
    about |= {"keep": keep, "sketch": sketch, "resume": resume, "force": force}
    watched: Any = algorithm
    former = getattr(watched, "_fedscope", None)
    recorder = open_in_place_of(former, path, lambda: Recorder(path, source=source, **about))
    watched.recorder, watched._fedscope = recorder, AlgorithmWatch(algorithm, recorder, clients)
    return algorithm
