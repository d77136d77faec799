"""Jobs of NVFlare, recorded by a component that their server gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ...io.keywords import speak_keywords
from ...io.untrusted import expand_home
from ...runs.folders import refuse_occupied
from ..client_names import ClientNames
from ..coerce_models import architecture
from ..framework_rounds import check_version
from ..inputs import named_method
from ..retention import ClientRetention

Job = TypeVar("Job")

#: of NVFlare, with which recording is tested
TESTED = "2.9.0"


@partial(speak_keywords, called={"out": "path"}, typed=False)
def record_nvflare(
    job: Job,
    path: Path | str,
    *,
    model: Any = None,
    data: str | None = None,
    standardise: bool | None = None,
    method: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    clients: Sequence[str] | None = None,
    keep: str = "all",
    sketch: int = 0,
    drift: bool = False,
    lora_alpha: float | None = None,
    base: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
) -> Job:
    """Have an NVFlare job record what its clients send and what its controller makes of it; gives the same job back.

    The job's server gets a component, which writes the run there. The clients' models in the run are, bit for bit,
    those that reached the controller; of clients that send differences, ``start`` plus the difference. ``start`` and
    ``global`` have the dtypes of the clients' tensors. What cannot be recorded is a warning in the server's log: the
    job goes on.

    Args:
        job: a recipe or a ``FedJob`` whose controller is ``ScatterAndGather``, ``FedAvg``, ``Scaffold``, or one of your
            own derived from ``BaseFedAvg`` or ``ScatterAndGather``.
        path: of the new run's folder, on the server's machine; relative to where the job is made.
        model: the architecture, by its name (``cnn``, ``module:factory``), or a class or function without arguments
            from a file that can be imported: a job is sent as files.
        data: what models are measured on, by its name.
        clients: the clients' names in the order of their numbers, from 0. Without them a name that ends in a number has
            that number (``site-3`` is client 3), others the next one that is free.
        method, seed, settings: as of :class:`~fedscope.Recorder`; without a method ``table`` and ``ls`` call the run
            ``NVFlare``.
        standardise, keep, sketch, drift, lora_alpha, base, resume, force: as of :class:`~fedscope.Recorder`.

    Raises:
        FedscopeError: no job; NVFlare is not installed; a model or data without a name; something is in the way at
            ``path``.

    Example::

        recipe = fedscope.record_nvflare(FedAvgRecipe(...), "runs/nvflare", model="task:Net")
        recipe.execute(SimEnv(num_clients=8))
    """
    inner: Any = getattr(job, "_job", job)  # of a recipe
    if not callable(getattr(inner, "to_server", None)):
        raise FedscopeError(
            f"{type(job).__name__} is not a job of NVFlare: it has no to_server; give a recipe or a FedJob, as in "
            "record_nvflare(FedAvgRecipe(...), ...)"
        )
    check_version("nvflare", TESTED)
    words = {"data": _name("data", data), "model": _name("model", _architecture(model))}
    ClientRetention(keep, sketch)  # refuses what is none before the job is sent
    ClientNames(clients)
    named = named_method(method, seed, settings)
    if not resume:
        refuse_occupied(
            expand_home(path).absolute(), force, "give force=True to replace it, or resume=True", "give another path"
        )
    from .widget import RoundRecorder

    args: dict[str, Any] = {**words, **named, "clients": None if clients is None else list(clients)}
    args |= {"standardise": standardise, "keep": keep, "sketch": sketch, "drift": drift}
    args |= {"lora_alpha": lora_alpha, "base": None if base is None else str(Path(base).absolute())}
    inner.to_server(RoundRecorder(str(path), resume=resume, force=force, **args), id="fedscope")
    _leave_out(inner)
    return job


def _architecture(model: Any) -> Any:
    """Return the name of an architecture; one without a name as it is."""
    return model if model is None or isinstance(model, str) else architecture(model)[0] or model


def _name(what: str, given: Any) -> Any:
    """Make sure that something can be written into a job's files.

    Raises:
        FedscopeError: it is no name.
    """
    if given is not None and not isinstance(given, str):
        raise FedscopeError(
            f"{what}= is a {type(given).__name__} without a name, and a job of NVFlare is sent as files; give its "
            f'name, as {what}="module:name"'
        )
    return given


def _leave_out(job: Any) -> None:
    """Have NVFlare not copy fedscope into the job's files."""
    config = getattr(job, "job", None)
    packages = list(getattr(config, "app_packages", None) or ())
    if callable(getattr(job, "set_app_packages", None)) and "fedscope" not in packages:
        job.set_app_packages([*packages, "fedscope"])
