"""A model against others on the same test samples, for what the paper says of test losses and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ...checkpoints import FedscopeError, Weights
from ...checkpoints.results import Kept
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.evaluator import Evaluator
from ...landscape.evaluation.samples import Samples
from ...landscape.evaluation.tasks import require_classes
from ..factors.streaming import CHUNK, CHUNK_NUMBERS


@dataclass(frozen=True)
class Against(Kept):
    """Another model: its mean cross-entropy (nats) and error (share, 0..1), and the means over samples of the first
    model's minus its own, with their standard errors over samples: sd of the n differences / √n."""

    name: str
    loss: float
    error: float
    loss_gap: float
    loss_stderr: float
    error_gap: float
    error_stderr: float


@dataclass(frozen=True)
class Comparison(Kept):
    """`model` of a round, "average" (of its clients) or "averaged" (over rounds), against others on `samples` samples:
    its mean cross-entropy (nats) and error (share, 0..1), and each of the others."""

    round: int
    model: str
    samples: int
    loss: float
    error: float
    others: tuple[Against, ...]


def compare_models(
    module: torch.nn.Module,
    samples: Samples,
    model: Weights,
    others: Mapping[str, Weights],
    *,
    name: str,
    number: int,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Cross-entropy and error of a model against those of others, sample by sample.

    The same samples meet all models, so that the difference to each has a standard error of its own, smaller than that
    of two means. Sums are in double precision. An output of NaN is a wrong answer, and its loss is NaN.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        name, number: of the model and its round, for the result.
        progress: called with (samples done, n).

    Raises:
        FedscopeError: models that do not fit the module.
    """
    require_classes(samples, "a comparison of cross-entropy and error")
    evaluator = Evaluator(module, samples, compute=compute)
    for label, weights in {name: model, **others}.items():
        if difference := evaluator.layout.difference(weights.layout):
            raise FedscopeError(f"{label} of round {number} does not fit the module: {difference}")
    models, n = [model, *others.values()], len(samples.y)
    size = max(16, min(CHUNK, CHUNK_NUMBERS // (len(models) * samples.classes)))
    # [loss or error; its mean, the mean gap, the mean squared gap; model]
    total = torch.zeros(2, 3, len(models), dtype=torch.float64)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f = evaluator.logits(models, rows).double()
        y = samples.y[rows].to(f.device).expand(len(models), -1)
        loss = -torch.log_softmax(f, dim=-1).gather(-1, y[..., None])[..., 0]
        wrong = (f.argmax(dim=-1) != y) | f.isnan().any(dim=-1)
        for row, values in enumerate((loss, wrong.double())):
            gap = values[:1] - values
            total[row] += torch.stack([values.sum(-1), gap.sum(-1), gap.square().sum(-1)])
        if progress is not None:
            progress(rows.stop, n)
    means, gaps, squares = (total / n).unbind(dim=1)
    spread = ((squares - gaps.square()).clamp(min=0) / n).sqrt()
    return Comparison(
        round=number,
        model=name,
        samples=n,
        loss=float(means[0, 0]),
        error=float(means[1, 0]),
        others=tuple(
            Against(label, *(float(values[row, k]) for row, values in _order(means, gaps, spread)))
            for k, label in enumerate(others, start=1)
        ),
    )


def _order(means: torch.Tensor, gaps: torch.Tensor, spread: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    """Where the fields of :class:`Against` stand, in their order."""
    return [(0, means), (1, means), (0, gaps), (0, spread), (1, gaps), (1, spread)]
