"""HSIC of all pairs of models on a minibatch, and what follows from it: linear CKA and its standard error.

Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019, eq. 4-5. The estimator of a batch
is that of Song et al., "Feature Selection via Dependence Maximization", JMLR 2012, eq. 4; averaged over minibatches as
in Nguyen et al., "Do Wide and Deep Networks Learn the Same Things?", ICLR 2021, eq. 2-4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError

Array = npt.NDArray[np.float64]
Estimator = Literal["unbiased", "biased"]

#: samples that a batch needs: HSIC_1 divides by n - 3, and of one sample nothing is left when it is centred
LEAST = {"unbiased": 4, "biased": 2}

# So many features are brought to float64 at a time: a convolution has more of them than fit beside the others'.
BLOCK = 8192


def usual_batch(samples: int) -> int:
    """256 samples, or an eighth of them where that is less, so that a standard error has seven degrees of freedom; at
    least 32, because HSIC of a few samples is noise.

    >>> [usual_batch(samples) for samples in (10_000, 360, 50)]
    [256, 45, 32]
    """
    return min(256, max(32, samples // 8))


def minibatches(samples: int, batch: int, seed: int, estimator: Estimator = "unbiased") -> list[np.ndarray]:
    """Return the samples 0..n-1, shuffled once and cut into minibatches of at most ``batch``, as equal as they can be;
    for every model the same.

    Equal ones, because all count alike in the average: a last batch of a few samples would bring in more noise than it
    holds. Only where they would fall below what the estimator needs they are fewer and larger.

    Raises:
        FedscopeError: an estimator that is neither unbiased nor biased; fewer samples, or smaller batches, than it
            needs.

    >>> [len(rows) for rows in minibatches(600, 256, seed=0)]
    [200, 200, 200]
    """
    if estimator not in LEAST:
        raise FedscopeError(f"estimator {estimator!r} is unknown; take one of {', '.join(LEAST)}")
    least = LEAST[estimator]
    remedy = "give more (--limit, --batch)" + ("" if estimator == "biased" else ", or take --estimator biased")
    for what, count in ((f"{samples} in all", samples), (f"batches of {batch}", batch)):
        if count < least:
            raise FedscopeError(f"the {estimator} estimator of HSIC needs {least} samples, not {what}; {remedy}")
    count = min(-(-samples // batch), samples // least)
    return np.array_split(np.random.default_rng(seed).permutation(samples), count)


def gram(parts: Sequence[Tensor], masked: Tensor | None = None) -> Tensor:
    """Compute the linear kernel of centred features, K = H X X' H with H = 1 - 11'/n, float64 [n, n].

    ``parts`` are X [n, d], cut along its rows. HSIC does not change when the features are centred, and what cancels
    in it is then small. Features that do not vary give exactly 0. Of infinite ones only those do that are ``masked``
    [d], as :func:`masked_columns` finds them; others make the kernel NaN.

    >>> gram([torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    n = sum(len(part) for part in parts)
    kernel = torch.zeros(n, n, dtype=torch.float64, device=parts[0].device)
    for start in range(0, parts[0].shape[1], BLOCK):
        x = torch.cat([part[:, start : start + BLOCK] for part in parts]).double()
        # first one row, which is exact: the mean of n equal numbers is not always that number
        x -= x[0].clone()
        if masked is not None:
            x.masked_fill_(masked[start : start + BLOCK], 0.0)
        x -= x.mean(dim=0)
        kernel.addmm_(x, x.T)
    return kernel


def masked_columns(parts: Sequence[Tensor]) -> Tensor:
    """Find the features that are minus infinity for every sample, as classes that a module masks, bool [d].

    >>> masked_columns([torch.tensor([[1.0, -torch.inf, -torch.inf]]), torch.tensor([[1.0, 0.0, -torch.inf]])]).tolist()
    [False, False, True]
    """
    return torch.stack([torch.isneginf(part).all(dim=0) for part in parts]).all(dim=0)


def hsic(grams: Tensor, estimator: Estimator = "unbiased") -> Array:
    """HSIC of every pair of M models on one batch, float64 [M, M], from their kernels [M, n, n] as :func:`gram` makes.

    ``unbiased``, with K~ the kernel without its diagonal:

        HSIC_1 = [tr(K~ L~) + 1'K~1 1'L~1 / ((n-1)(n-2)) - 2 1'K~L~1 / (n-2)] / (n (n-3))

    which may be negative; ``biased``: tr(K L) / (n-1)^2. The traces are one matrix product of the kernels as rows
    [M, n^2], the other terms are products of sums. ``grams`` is changed.

    Raises:
        FedscopeError: fewer samples than the estimator needs.

    >>> x = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
    >>> hsic(torch.stack([gram([x]), gram([-2 * x])])).round(6).tolist()
    [[4.666667, 18.666667], [18.666667, 74.666667]]
    """
    models, n = grams.shape[:2]
    if n < LEAST[estimator]:
        raise FedscopeError(
            f"the {estimator} estimator of HSIC needs {LEAST[estimator]} samples in a batch, not {n}; give more"
        )
    if estimator == "biased":
        rows = grams.reshape(models, n * n)
        return _numbers(rows @ rows.T / (n - 1) ** 2)
    grams.diagonal(dim1=1, dim2=2).zero_()
    rows, sums = grams.reshape(models, n * n), grams.sum(dim=2)
    whole = sums.sum(dim=1)
    value = rows @ rows.T + torch.outer(whole, whole) / ((n - 1) * (n - 2)) - sums @ sums.T * (2 / (n - 2))
    return _numbers(value / (n * (n - 3)))


def cka(hsics: Array) -> Array:
    """CKA_ab = H_ab / sqrt(H_aa H_bb) from HSICs averaged over batches, [..., M, M].

    NaN where a model's own HSIC is not positive: its features do not vary, or the estimate of it is negative. Values
    of the unbiased estimator may lie a little below 0 or above 1.

    >>> cka(np.array([[4.0, 3.0], [3.0, 9.0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    own = np.diagonal(hsics, axis1=-2, axis2=-1)
    # each by itself: of two negative ones the product is positive
    length = np.sqrt(np.where(own > 0, own, np.nan))
    value: Array = hsics / (length[..., :, None] * length[..., None, :])
    return value


def jackknife(hsics: Array, statistic: Callable[[Array], Array]) -> Array:
    """Compute the standard error of ``statistic(mean over batches)``, each batch of ``hsics`` [B, M, M] left out in
    turn.

    sqrt((B-1)/B Σ_b (θ_(-b) - mean θ_(-b))^2); ``statistic`` takes [..., M, M]. NaN where there is one batch.

    >>> round(float(jackknife(np.array([1.0, 2.0, 6.0]).reshape(3, 1, 1), lambda h: h[..., 0, 0])), 6)  # s / sqrt(3)
    1.527525
    """
    batches = len(hsics)
    if batches == 1:
        return np.full_like(statistic(hsics[0]), np.nan)
    without = statistic((hsics.sum(axis=0) - hsics) / (batches - 1))
    error: Array = np.sqrt((batches - 1) * without.var(axis=0))
    return error


def _numbers(values: Tensor) -> Array:
    """Copy as an array, symmetric to the last bit, which a matrix product need not be."""
    symmetric: Array = ((values + values.T) / 2).cpu().numpy()
    return symmetric
