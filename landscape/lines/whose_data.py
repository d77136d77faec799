"""On whose data lines are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...analysis.analysis import slug
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ...training.inputs.data_of import SampleSet, describe_sets, sample_sets
from ...training.inputs.models import ModelLike, ResolvedModels

if TYPE_CHECKING:
    from ...evaluation.samples import Samples


def asked_sets(
    models: Sequence[ModelLike], source: EvaluationConfig, data_of: str | None, one_set: str
) -> list[SampleSet]:
    """Return the sets of samples that --data-of asks for; none without it.

    Args:
        one_set: the option with which there can be one set only; "" without such a one.

    Raises:
        FedscopeError: several sets where there can be one; as :func:`~fedscope.training.inputs.data_of.sample_sets`.
    """
    if data_of is None:
        return []
    sets = sample_sets(models, source, data_of)
    if one_set and len(sets) > 1:
        raise FedscopeError(
            f"--data-of {data_of} is {len(sets)} sets of samples, and {one_set} draws a map of one; give one of them, "
            f"as --data-of {quoted(sets[0].name)}"
        )
    return sets


def read_sets(
    sets: Sequence[SampleSet], resolved: ResolvedModels, source: EvaluationConfig
) -> tuple[Mapping[str, Samples], dict[str, Any]]:
    """Read each set once, by its name, and what a result says of them; without sets it is the models' samples."""
    if not sets:
        return {"": resolved.samples}, {}
    read = {one.name: one.read(resolved, source) for one in sets}
    return {name: samples for name, (samples, _) in read.items()}, describe_sets(read)


def named_after(name: str, data_of: str | None) -> str:
    """Return the name of a result's files, which says whose data."""
    return name if data_of is None else f"{name}.data-of-{slug(data_of)}"
