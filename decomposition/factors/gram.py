"""Sums over samples that suffice for every factor, streamed chunk by chunk in float64.

For one sample let T, H be the weighted biases and e_T^r, e_H^r the weighted deviations of draw r (decomposition of Zhou
et al., Theorem 1; definitions in `factors`). The factors are quadratic in V = (T, H, e_T^1..e_T^R, e_H^1..e_H^R) and in
the clients' own deviations d_k^r = f_k^r - mean_r f_k^r, so their Gram matrices over classes, summed over samples, hold
all of them, and by a linear map also what they would be had one draw been left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]

# One value a sample each; every factor is a linear combination of them, so their means and co-moments give every
# standard error over samples.
COLUMNS = ("TT", "HH", "TH", "eTeT", "eHeH", "eTeH", "dd", "wens", "fma", "fma_1", "global", "averaged")


@dataclass(frozen=True)
class OutputMoments:
    """Sums over n samples, float64.

    `gram` [2+2R, 2+2R]: <V_i, V_j>; `spread` [K, R, R]: <d_k^r, d_k^s>; `wens` [R], `fma` [R]: the losses of WENS^r and
    of w_FMA^r, from the outputs themselves; `recorded` [2, R]: those of "global" and "averaged", nan unless each draw
    has its own; `own`, `other` [K]: ||y - mean_r f_k^r||^2 inside and outside of the
    client's samples, and their counts; `mean` [Q], `comoment` [Q, Q]: means of COLUMNS and sums of products of their
    deviations (nan for a model that was not given); `least` the least covariance of two clients, min_{k != l} mean_r
    <d_k^r, d_l^r>, and `equal` the loss of the unweighted ensemble, mean_r ||y - (1/K) sum_k f_k^r||^2 (both nan where
    the corollaries were not asked for; `least` also for one client).
    """

    n: int
    gram: Array
    spread: Array
    wens: Array
    fma: Array
    recorded: Array
    own: Array
    other: Array
    own_count: npt.NDArray[np.int64]
    mean: Array
    comoment: Array
    least: float
    equal: float

    def merge(self, more: OutputMoments) -> OutputMoments:
        """Return the moments of both sets of samples. The co-moments are merged about the common mean (Chan et al.
        1983): plain sums of squares would cancel where a factor hardly varies."""
        n, step = self.n + more.n, more.mean - self.mean
        sums = {one.name: getattr(self, one.name) + getattr(more, one.name) for one in fields(self)}
        sums["mean"] = self.mean + step * (more.n / n)
        sums["comoment"] += np.outer(step, step) * (self.n * more.n / n)
        return OutputMoments(**sums)


def chunk_moments(
    clients: Tensor,
    fma: Tensor,
    recorded: Mapping[str, Tensor],
    y: Tensor,
    members: Tensor,
    p: Tensor,
    corollaries: bool = False,
) -> OutputMoments:
    """Compute the moments of one chunk of B samples.

    Args:
        clients: f_k^r, [K, R, B, C]; all outputs in float64.
        fma: outputs of w_FMA^r, [R, B, C].
        recorded: outputs of "global" and "averaged", [B, C], where there are such models, or [R, B, C] where each draw
            has its own, of which the mean loss is taken.
        y: one-hot, [B, C].
        members: m_k, bool [K, B].
        p: [K].
        corollaries: whether to take `least` and `equal` too, which costs O(K^2) a sample.
    """
    cohort, draws, batch, classes = clients.shape
    centre = clients.mean(1)
    residual = y - centre
    own = clients - centre.unsqueeze(1)
    # in sums with p; the clients' own numbers stay
    summed, deviation = unweighted_as_0(p, clients), unweighted_as_0(p, own)
    weighed = residual if summed is clients else unweighted_as_0(p, residual)
    inside = p.unsqueeze(1) * members
    outside = p.unsqueeze(1) * ~members

    train = torch.einsum("kb,kbc->bc", inside, weighed)
    heter = torch.einsum("kb,kbc->bc", outside, weighed)
    e = torch.tensordot(p, deviation, dims=1)
    e_train = torch.einsum("kb,krbc->rbc", inside, deviation)
    e_heter = e - e_train
    flat = torch.cat([train.unsqueeze(0), heter.unsqueeze(0), e_train, e_heter]).reshape(2 + 2 * draws, batch * classes)
    rows = own.reshape(cohort, draws, batch * classes)

    # Measured from the outputs and not from the Gram matrix: closure compares the two.
    wens_loss = _square(y - torch.tensordot(p, summed, dims=1))
    fma_loss = _square(y - fma)
    absent = torch.full((batch,), torch.nan, dtype=y.dtype, device=y.device)
    models = [_square(y - recorded[name]) if name in recorded else absent for name in COLUMNS[-2:]]
    of_draws = [one.sum(1) if one.dim() == 2 else torch.full_like(wens_loss[:, 0], torch.nan) for one in models]
    columns = torch.stack(
        [
            _square(train),
            _square(heter),
            (train * heter).sum(-1),
            _square(e_train).mean(0),
            _square(e_heter).mean(0),
            (e_train * e_heter).sum(-1).mean(0),
            torch.tensordot(p.square(), _square(deviation).mean(1), dims=1),
            wens_loss.mean(0),
            fma_loss.mean(0),
            fma_loss[0],
            *(one.mean(0) if one.dim() == 2 else one for one in models),
        ]
    )
    mean = columns.mean(1)
    about = columns - mean.unsqueeze(1)
    norms = _square(residual)
    return OutputMoments(
        n=batch,
        gram=_numpy(flat @ flat.T),
        spread=_numpy(torch.bmm(rows, rows.transpose(1, 2))),
        wens=_numpy(wens_loss.sum(1)),
        fma=_numpy(fma_loss.sum(1)),
        recorded=_numpy(torch.stack(of_draws)),
        own=_numpy(norms.masked_fill(~members, 0.0).sum(1)),
        other=_numpy(norms.masked_fill(members, 0.0).sum(1)),
        own_count=members.sum(1).cpu().numpy(),
        mean=_numpy(mean),
        comoment=_numpy(about @ about.T),
        least=_least_covariance(own) if corollaries else float("nan"),
        equal=float(_square(y - clients.mean(0)).mean(0).sum()) if corollaries else float("nan"),
    )


def unweighted_as_0(p: Tensor, values: Tensor) -> Tensor:
    """Values of K clients, [K, ...], as they enter sums with p: 0 of a client of weight 0, which may have diverged.

    >>> unweighted_as_0(torch.tensor([1.0, 0.0]), torch.tensor([[2.0], [torch.nan]])).tolist()
    [[2.0], [0.0]]
    """
    without = p == 0
    return values.masked_fill(without.view(-1, *[1] * (values.dim() - 1)), 0.0) if bool(without.any()) else values


def _least_covariance(deviation: Tensor) -> float:
    """Sum over samples of min_{k != l} mean_r <d_k^r, d_l^r>, from d [K, R, B, C]; a hundred samples at a time, so that
    the K^2 products of each stay small. nan for one client, who has no pair."""
    cohort, draws = deviation.shape[:2]
    if cohort < 2:
        return float("nan")
    own = torch.eye(cohort, dtype=torch.bool, device=deviation.device)
    total = 0.0
    for part in torch.split(deviation, 100, dim=2):
        rows = part.permute(2, 0, 1, 3).flatten(2)
        products = torch.bmm(rows, rows.transpose(1, 2)) / draws
        total += float(products.masked_fill(own, torch.inf).amin((1, 2)).sum())
    return total


def _square(vectors: Tensor) -> Tensor:
    """Squared norm over the classes, the last dimension."""
    return vectors.square().sum(-1)


def _numpy(tensor: Tensor) -> Array:
    array: Array = tensor.cpu().numpy()
    return array
