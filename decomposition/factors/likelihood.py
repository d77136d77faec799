"""The clients' mean cross-entropy, in bias and variance."""

from __future__ import annotations

import torch
from torch import Tensor

from .loss_sums import Split, without_each


def prepare(logits: Tensor) -> Tensor:
    """log f, float64 [..., C]: from here on no probability is taken the logarithm of, so one that underflows does no
    harm."""
    return torch.log_softmax(logits.to(torch.float64), dim=-1)


def losses(log_f: Tensor, y: Tensor) -> Tensor:
    """−log f_y in nats, [..., B], from log f [..., B, C] and y [B].

    >>> losses(prepare(torch.zeros(2, 1, 4)), torch.tensor([3])).exp()
    tensor([[4.], [4.]], dtype=torch.float64)
    """
    return -log_f.gather(-1, y.expand(log_f.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def split(log_f: Tensor, y: Tensor, p: Tensor) -> Split:
    """bias = CE(f̂) and variance = Σ_k p_k mean_r KL(f̂ ‖ f_k^r) of every sample, where

        log f̂ = Σ_k p_k mean_r log f_k^r − log Z,        Z = Σ_c exp(Σ_k p_k mean_r log f_k^r(c)) <= 1

    is the normalised geometric mean of the clients and draws. They add up to Σ_k p_k mean_r CE(f_k^r), and the variance
    is also −log Z. Of every client: mean_r KL(f̂ ‖ f_k^r).

    Args:
        log_f: [K, R, B, C], float64.
        y: [B].
        p: [K].

    Source: Heskes, "Bias/variance decompositions for likelihood-based estimators", Neural Computation 10 (1998).
    """
    by_draw = torch.tensordot(p, log_f, dims=1)
    centre = torch.log_softmax(by_draw.mean(0), dim=-1)
    # f̂ may underflow to 0; log f̂ does not, and 0 times it is 0.
    divergence = torch.einsum("bc,kbc->kb", centre.exp(), centre - log_f.mean(1))
    without = without_each(by_draw)
    return Split(
        factors={"bias": losses(centre, y), "variance": p @ divergence},
        left_out={
            "bias": losses(torch.log_softmax(without, dim=-1), y),
            "variance": -torch.logsumexp(without, dim=-1),
        },
        clients=divergence,
    )
