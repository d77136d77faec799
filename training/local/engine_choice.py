"""The choice of the engine that trains a run's clients: a fixed rule, never a measurement, so that the same command
gives the same numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ..guards.returned_arrays import is_own_method
from ..rng import cohort_size
from ..settings.registry import method_name
from .engine import EngineName

if TYPE_CHECKING:
    from torch import nn

    from ...checkpoints import Run
    from ..config.config import Config
    from ..data.dataset import Dataset

#: ``auto`` trains clients in one pass where a cohort has so many and the model no more parameters (measured)
FEWEST_CLIENTS, MOST_PARAMETERS = 8, 30_000
#: and on a CUDA device no more than this, with convolutions too: launching an operator takes longer there than its work
#: for one client. Measured with 772,682 parameters: 3.9 times as fast as one client after the other.
MOST_PARAMETERS_ON_CUDA = 1_000_000


def one_by_one(device: str) -> EngineName:
    """Return the engine that trains one client a worker there: ``threads`` on CPUs, ``device`` on an accelerator."""
    return "threads" if device.startswith("cpu") else "device"


def engine_of(config: Config, module: nn.Module, data: Dataset) -> EngineName:
    """Return the engine of a run, ``auto`` resolved.

    ``auto`` is ``cohort`` for cohorts of at least `FEWEST_CLIENTS` clients, client methods and optimisers that take
    several clients at once, and models that can be vectorised and are small enough: on a CUDA device at most
    `MOST_PARAMETERS_ON_CUDA` parameters, elsewhere at most `MOST_PARAMETERS` and no convolutions. Else it is the one
    that trains clients one by one on ``run.device``. Where ``cohort`` is asked for and the model cannot be vectorised,
    it is that one, too, and a warning says so.

    Args:
        config: its ``run.device`` resolved.

    Raises:
        FedscopeError: an engine that does not go with the device, or cannot run the method.
    """
    from .vectorized_model import why_not_vectorised

    asked, alone = config.run.engine, one_by_one(config.run.device)
    if asked in ("threads", "device"):
        if asked != alone:
            raise FedscopeError(
                f"run.engine = {asked!r} does not go with run.device = {config.run.device!r}; give --set "
                "run.engine=auto"
            )
        return alone
    if asked == "cohort" and not config.client.takes_several:
        which = f"method = {method_name(config.client)!r}"
        more = (
            ", or say vectorised = True in its class if its train takes several" if is_own_method(config.client) else ""
        )
        if config.client.vectorised:
            which, more = f"optimiser = {str(config.client.optimiser)!r}", ""
        raise FedscopeError(
            f"run.engine = 'cohort' trains several clients in one pass, which client.{which} cannot; give --set "
            f"run.engine=auto{more}"
        )
    if asked == "auto":
        cohort = cohort_size(config.data.clients, config.run.participation)
        if cohort < FEWEST_CLIENTS or not config.client.takes_several or not is_small(module, config.run.device):
            return alone
    if why := why_not_vectorised(module, data.samples("train")):
        if asked == "cohort":
            warn_user(
                f"run.engine = 'cohort' cannot train {config.model.name} in one pass, because {why}; clients are "
                f"trained one by one, as with run.engine={alone}"
            )
        return alone
    return "cohort"


def with_engine(config: Config, module: nn.Module, data: Dataset) -> Config:
    """Return the configuration with its engine resolved, as a run keeps it. Raises as :func:`engine_of`."""
    return replace(config, run=replace(config.run, engine=engine_of(config, module, data)))


def is_small(module: nn.Module, device: str) -> bool:
    """Check whether one pass for several models pays: on CPUs convolutions become grouped ones, which are slower."""
    from torch.nn.modules.conv import _ConvNd

    size = sum(parameter.numel() for parameter in module.parameters())
    if device.startswith("cuda"):
        return size <= MOST_PARAMETERS_ON_CUDA
    return size <= MOST_PARAMETERS and not any(isinstance(layer, _ConvNd) for layer in module.modules())


def refuse_one_by_one(run: Run, config: Config) -> None:
    """Refuse to go on one client after the other where several were trained in one pass: numbers would be others.

    A method of somebody's own that an earlier fedscope took for one that may be trained so is that by its own word now.

    Raises:
        FedscopeError: names the method.
    """
    if config.run.engine == "cohort" and is_own_method(config.client) and not config.client.takes_several:
        raise FedscopeError(
            f"{run.path} trained several clients in one pass, and client.method = {method_name(config.client)!r} has "
            "functions of which nothing says that they take several; write vectorised = True in its class if they do, "
            "and give --code-changed, or train anew"
        )
