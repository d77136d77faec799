"""The network that models of files are, and the data on which an import looks at what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError

if TYPE_CHECKING:
    from torch import nn

    from ...checkpoints import Layout
    from ...evaluation.device import Compute
    from ...evaluation.samples import Samples
    from ...training.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class NetworkOfFiles:
    """A network, and data in the scale in which the run that is made will say that its models were trained.

    Attributes:
        samples: the test split.
        layout: of the models.
    """

    module: nn.Module
    dataset: Dataset
    samples: Samples
    layout: Layout
    source: EvaluationConfig

    @property
    def compute(self) -> Compute:
        """Where the network is called."""
        return self.source.compute


#: makes it for an option, which needs the architecture and the data for two reasons
NetworkFor = Callable[[str, tuple[str, str]], NetworkOfFiles]


def network_of_files(
    first: Path,
    option: str,
    why: tuple[str, str],
    *,
    model: Any,
    data: str | None,
    standardise: bool | None,
    base: Path | str | None,
) -> NetworkOfFiles:
    """Resolve the architecture and the data of an import.

    Args:
        first: of the clients' files, which the architecture must fit.
        option: what needs both, for sentences; why: what it needs the architecture for, and the data.

    Raises:
        FedscopeError: no architecture, or no data; samples in another scale than the model was trained on.
    """
    from ...training.inputs.fitting_scale import refuse_misfit
    from ...training.inputs.models import resolve_models
    from ...training.inputs.recorded_data import scale_of_name

    for given, needed, reason in ((model, "model", why[0]), (data, "data", why[1])):
        if given is None:
            raise FedscopeError(f"{option} needs --{needed}, because {reason}; give it, or leave out {option}")
    settings = {"model": model, "data": data, "standardise": standardise, "base": base}
    source = EvaluationConfig.of("test", settings)
    # as the run's own questions take it, which have no --standardise either
    scale = scale_of_name(source.data) if standardise is None else standardise
    resolved = resolve_models([str(first)], replace(source, standardise=scale))
    refuse_misfit(resolved.module, resolved.dataset, [(one.address, one.weights) for one in resolved.models], source)
    return NetworkOfFiles(
        resolved.module, resolved.dataset, resolved.samples, resolved.models[0].weights.layout, source
    )
