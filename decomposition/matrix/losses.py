"""One pass over the samples with all models of a round, whose losses are summed for every client's own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Weights
from ...evaluation.samples import Samples
from ...evaluation.validation import with_outputs
from ...training.data.membership import Members
from ..factors.model_outputs import PassSettings, model_outputs

Array = npt.NDArray[np.float64]

# A multiple of the batches that suit convolutions (50) and linear layers (1000) on a CPU, so that none is a remainder.
CHUNK = 2000


@dataclass(frozen=True)
class Means:
    """Means over samples, and the standard errors of these means; NaN where there are too few samples.

    Attributes:
        loss, loss_stderr, error, error_stderr: of one shape; errors are NaN where the task has none.
    """

    loss: Array
    loss_stderr: Array
    error: Array
    error_stderr: Array


def losses_at(
    module: torch.nn.Module,
    samples: Samples,
    models: Sequence[Weights],
    members: Members | None,
    pairs: Sequence[tuple[int, int, int]] = (),
    *,
    number: int,
    places: int = 1,
    **how: Unpack[PassSettings],
) -> tuple[npt.NDArray[np.int64], Means, Means]:
    """Measure loss and error of M models at P places, each with its own samples, in one pass over all samples.

    With m_k(x, y) = 1 where a sample counts at place k, and c_j the weight of sample j in its task (1 mostly),

        n_k        = Σ_j m_k(x_j, y_j)
        loss[i, k] = Σ_j m_k c_j l(f(x_j; w_i), y_j) / Σ_j m_k c_j
        stderr[i, k]² = n_k / (n_k − 1) Σ_j m_k c_j² (l_ij − loss[i, k])² / (Σ_j m_k c_j)²

    and alike for the differences of ``pairs``: (i, a, k) is l(w_i) − l(w_a) at place k, whose error is smaller than
    that of two means, because both models meet the same samples. Every model sees every sample once, whatever P is.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: the n samples.
        models: w_i, each [P].
        members: m_k, bool [places, n]; None where every sample counts at each of ``places``.
        number: of the round.
        how: ``compute``, ``progress`` and ``chunk``, of the pass over the samples
            (:class:`~fedscope.decomposition.factors.model_outputs.PassSettings`).

    Returns:
        n_k [places], the means [M, places], and those of the pairs [len(pairs)].

    Raises:
        FedscopeError: models that do not fit the module; members of other samples.

    >>> from fedscope.checkpoints import Layout
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> samples = Samples(torch.ones(3, 1), torch.tensor([0, 1, 1]), 2, "toy", "train", np.arange(3))
    >>> w = Weights(Layout.of(module), np.array([0, 0], np.float32), {})
    >>> own = np.array([[True, False, False], [False, True, True]])
    >>> count, means, _ = losses_at(module, samples, [w], own, number=1)
    >>> count.tolist(), means.loss.round(4).tolist(), means.error.tolist()
    ([1, 2], [[0.6931, 0.6931]], [[0.0, 1.0]])
    """
    samples = with_outputs(module, samples)
    n = len(samples)
    if members is not None and members.shape[1] != n:
        raise FedscopeError(
            f"members of round {number} are of {members.shape[1]:,} samples, and there are {n:,}; give those of these"
        )
    places = places if members is None else len(members)
    named = {"the client model": models[0]}
    settings: PassSettings = {"chunk": CHUNK, **how}
    sums = {name: _Sums(len(models), places, len(pairs)) for name in ("loss", "error")}
    counts = np.zeros(places, np.int64)
    for rows, outputs in model_outputs(module, samples, models, named, number=number, **settings):
        y = samples.y[rows].cpu()
        mine = np.ones((places, len(y)), np.bool_) if members is None else members[:, rows]
        counts += mine.sum(axis=1)
        losses = np.stack([_numbers(samples.task.loss(own, y)) for own in outputs])
        sums["loss"].add(losses, _weights(samples.task.weights(y), len(y)), mine, pairs)
        errors = [samples.task.error(own, y) for own in outputs]
        if any(error is None for error in errors):
            sums.pop("error", None)
        elif "error" in sums:
            measured = np.stack([_numbers(error) for error in errors if error is not None])
            sums["error"].add(measured, _weights(samples.task.error_weights(y), len(y)), mine, pairs)
    return counts, *_means(sums, counts, pairs, len(models))


class _Sums:
    """Σ c, Σ c², and of every model and pair Σ c l, Σ c² l, Σ c² l², by place."""

    def __init__(self, models: int, places: int, pairs: int) -> None:
        self.weights = np.zeros((2, places))
        self.models = np.zeros((3, models, places))
        self.pairs = np.zeros((3, pairs))

    def add(self, values: Array, weights: Array, mine: Members, pairs: Sequence[tuple[int, int, int]]) -> None:
        """Take in a chunk: values [M, B], weights [B], mine [places, B]."""
        once, twice = (mine * weights**power for power in (1, 2))
        self.weights += np.stack([once.sum(axis=1), twice.sum(axis=1)])
        # a diverged model's losses are NaN or infinite where they count, and not where 0 · ∞ would be added
        for i, own in enumerate(values):
            if np.isfinite(own).all():
                self.models[:, i] += np.stack([once @ own, twice @ own, twice @ own**2])
                continue
            for k, there in enumerate(mine):
                self.models[:, i, k] += _moments(own[there], weights[there])
        for j, (i, a, k) in enumerate(pairs):
            with np.errstate(invalid="ignore"):
                self.pairs[:, j] += _moments((values[i] - values[a])[mine[k]], weights[mine[k]])


def _moments(values: Array, weights: Array) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array([weights @ values, weights**2 @ values, weights**2 @ values**2])


def _means(
    sums: dict[str, _Sums], counts: npt.NDArray[np.int64], pairs: Sequence[tuple[int, int, int]], models: int
) -> tuple[Means, Means]:
    """Return the means of the models [M, places], and of the pairs."""
    where = [k for _, _, k in pairs]
    found: list[list[Array]] = [[], []]
    for name in ("loss", "error"):
        if name not in sums:
            for of, shape in zip(found, ((models, len(counts)), (len(pairs),)), strict=True):
                of += [np.full(shape, np.nan)] * 2
            continue
        own = sums[name]
        found[0] += _mean_of(own.models, own.weights, counts)
        found[1] += _mean_of(own.pairs, own.weights[:, where], counts[where])
    return Means(*found[0]), Means(*found[1])


def _mean_of(sums: Array, weights: Array, counts: npt.NDArray[np.int64]) -> list[Array]:
    """Return the mean and its standard error; NaN where nothing counts, or of one sample.

    Args:
        weights: Σ c and Σ c², as counts are.
    """
    weight, squares = weights
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[0] / weight
        spread = np.maximum(sums[2] - 2 * mean * sums[1] + mean**2 * squares, 0.0)
        return [mean, np.where(counts > 1, np.sqrt(counts / (counts - 1) * spread) / weight, np.nan)]


def _numbers(values: Tensor) -> Array:
    return values.detach().double().cpu().numpy()


def _weights(weights: Tensor | None, count: int) -> Array:
    return np.ones(count) if weights is None else weights.double().cpu().numpy()
