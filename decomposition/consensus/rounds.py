"""A recorded round's consensus: its distances and its merged model, put together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ...checkpoints import Run
from ...evaluation.device import CPU, Compute
from ...evaluation.samples import Samples
from .distances import RoundDistances, measure_distances
from .merged import merged_losses
from .result import LEAST, MeasuredRound, MixingWeight, RoundConsensus


def measure_round(
    module: torch.nn.Module,
    samples: Samples,
    run: Run,
    number: int,
    *,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuredRound:
    """Measure a round's distances, then its models.

    Args:
        progress: called with (samples done, of).

    Raises:
        FedscopeError: as :func:`~fedscope.decomposition.consensus.merged.merged_losses`.
    """
    found, round_ = measure_distances(run, number, compute=compute), run.round(number)
    losses = merged_losses(module, samples, round_, compute=compute, progress=progress)
    mixing, ages = found.mixing, round_.client_staleness
    row = RoundConsensus(
        run=run.name,
        round=number,
        nodes=len(round_.client_ids),
        before=found.before,
        after=found.after,
        moved=found.moved,
        before_relative=_share(found.before, found.moved),
        after_relative=_share(found.after, found.moved),
        mixing="one" if mixing is None else mixing.source,
        residual=None if mixing is None else mixing.residual,
        contraction=None if mixing is None else mixing.contraction,
        staleness=None if ages is None else float(ages.mean()),
        **{name: getattr(losses, name) for name in type(losses).__dataclass_fields__ if name != "diverged"},
    )
    weights = _weights(run, number, found)
    return MeasuredRound(row, weights, losses.diverged, "" if mixing is None else mixing.why)


def _weights(run: Run, number: int, found: RoundDistances) -> tuple[MixingWeight, ...]:
    """List the weights of a matrix that are not 0, and of an identified one not below what is told."""
    mixing = found.mixing
    if mixing is None or mixing.matrix is None:
        return ()
    ids = run.round(number).client_ids
    nodes = ids
    if mixing.source == "identified":
        then = run.round(number + 1).client_ids
        nodes = then[np.isin(then, ids)]
    least = LEAST if mixing.source == "identified" else 0.0
    return tuple(
        MixingWeight(int(nodes[row]), int(ids[column]), float(mixing.matrix[row, column]))
        for row, column in zip(*np.nonzero(np.abs(mixing.matrix) > least), strict=True)
    )


def _share(distance: float | None, moved: float | None) -> float | None:
    return None if distance is None or not moved else distance / moved
