"""Where the running statistics of averages come from: averaged as the weights are, or measured on the average."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig, refuse_unknown_choice
from ...evaluation.calibration_batches import batches_settings
from .samples import limit_samples

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.measured_statistics import MeasuredStatistics
    from .. import Dataset

#: of averages of a round's clients
STATISTICS = ("averaged", "re-estimate")
#: training samples that statistics are measured on, and units are matched on, where there is no --limit
CALIBRATION = 2000


def refuse_unknown_statistics(normalization: str) -> None:
    """Refuse another word.

    Raises:
        FedscopeError: names the nearest.
    """
    refuse_unknown_choice("normalization", normalization, STATISTICS)


def statistics_settings(
    source: EvaluationConfig, normalization: str, module: nn.Module, dataset: Dataset
) -> dict[str, Any]:
    """Describe what numbers depend on, for a result's provenance; nothing where statistics are averaged.

    How samples are put in batches counts where there are several, and layers that are measured on them.
    """
    from ...evaluation.normalization import statistics_of

    if normalization == "averaged":
        return {}
    asked = source.limit or CALIBRATION
    batches = batches_settings(min(asked, len(dataset.y_train))) if statistics_of(module) else {}
    return {
        "normalization": normalization,
        "calibration_limit": asked,
        "calibration_seed": source.seed,
        **batches,
    }


def statistics_word(normalization: str) -> list[str]:
    """Return what the name of a result says of it.

    >>> statistics_word("averaged"), statistics_word("re-estimate")
    ([], ['re-estimated'])
    """
    return [] if normalization == "averaged" else ["re-estimated"]


def measured_statistics(
    module: nn.Module, dataset: Dataset, source: EvaluationConfig, normalization: str
) -> MeasuredStatistics | None:
    """Return what measures the statistics of averages on training samples; None where they are averaged.

    Raises:
        FedscopeError: data without training samples; statistics that are in no BatchNorm layer.
    """
    if normalization == "averaged":
        return None
    from ...evaluation.measured_statistics import MeasuredStatistics

    samples = limit_samples(dataset, replace(source, split="train", limit=source.limit or CALIBRATION))
    return MeasuredStatistics(module, samples, source.compute)
