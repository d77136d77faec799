"""The clients' mean 0-1 loss, in bias and variance."""

from __future__ import annotations

import torch
from torch import Tensor

from .loss_sums import Split, without_each

# Shares nearer than this are a tie: sums of the same p in another order differ by rounding.
TIE = 1e-12


def prepare(logits: Tensor) -> Tensor:
    """The predicted class, int64 [...], from logits [..., C]; among equal ones the lowest, and −1 where an output is
    nan: such a model votes for no class and is wrong, as in `Evaluator`."""
    return logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1)


def losses(predicted: Tensor, y: Tensor) -> Tensor:
    """1[f != y], float64 [..., B]."""
    return (predicted != y).to(torch.float64)


def split(predicted: Tensor, y: Tensor, p: Tensor) -> Split:
    """Bias and variance of every sample about the main prediction y*: the class with the greatest p-weighted share of
    the votes of clients and draws, among equal ones the lowest; −1, which is no class and wrong, where nobody votes.

        bias = 1[y* != y]
        variance_where_right = P(f != y*) where y* = y, else 0        variance_where_wrong = P(f = y) where y* != y,
        variance = variance_where_right − variance_where_wrong                               else 0

    bias + variance is Σ_k p_k mean_r 1[f_k^r != y]: where the main prediction is wrong, to vary about it helps, so that
    the variance is signed. Of every client: the share of its draws with another prediction than y*.

    Args:
        predicted: [K, R, B].
        y: [B].
        p: [K].

    Source: Domingos, "A Unified Bias-Variance Decomposition and its Applications" (ICML 2000), Theorem 2.
    """
    cohort, draws, batch = predicted.shape
    classes = 2 + int(torch.maximum(predicted.max(), y.max()))
    # The last column is of those who vote for no class; they are never the main prediction.
    shares = torch.zeros(draws, batch, classes, dtype=p.dtype, device=p.device)
    shares.scatter_add_(2, (predicted % classes).permute(1, 2, 0), p.expand(draws, batch, cohort))
    main, factors = _about_main(shares.mean(0), y)
    _, left_out = _about_main(without_each(shares), y)
    return Split(factors=factors, left_out=left_out, clients=losses(predicted, main).mean(1))


def _about_main(shares: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """(y*, factors) from shares [..., B, C + 1] of the votes."""
    classes = shares[..., :-1]
    most = classes.amax(-1, keepdim=True)
    main = (classes >= most - TIE).to(torch.uint8).argmax(-1).masked_fill(most.squeeze(-1) <= TIE, -1)
    right = main == y
    # A sum over the other columns and not 1 − share, which is rarely exactly 0 where all agree.
    unlike = shares.scatter(-1, main.unsqueeze(-1) % shares.shape[-1], 0.0).sum(-1)
    hits = shares.gather(-1, y.expand(main.shape).unsqueeze(-1)).squeeze(-1)
    where_right, where_wrong = unlike.masked_fill(~right, 0.0), hits.masked_fill(right, 0.0)
    return main, {
        "bias": (~right).to(shares.dtype),
        "variance": where_right - where_wrong,
        "variance_where_right": where_right,
        "variance_where_wrong": where_wrong,
    }
