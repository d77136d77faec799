"""Cross-entropy and 0-1 loss of every sample: of single models, and the clients' mean in bias and variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .gram import unweighted_as_0

# Shares nearer than this are a tie: sums of the same p in another order differ by rounding.
TIE = 1e-12


@dataclass(frozen=True)
class Split:
    """The factors of one chunk of B samples: by name [B], the same without each of the draws [R, B], and the clients'
    own variances [K, B]."""

    factors: Mapping[str, Tensor]
    left_out: Mapping[str, Tensor]
    clients: Tensor


def log_probabilities(logits: Tensor) -> Tensor:
    """log f, float64 [..., C]: from here on no probability is taken the logarithm of, so one that underflows does no
    harm."""
    return torch.log_softmax(logits.to(torch.float64), dim=-1)


def cross_entropy(log_f: Tensor, y: Tensor) -> Tensor:
    """−log f_y in nats, [..., B], from log f [..., B, C] and y [B].

    >>> cross_entropy(log_probabilities(torch.zeros(2, 1, 4)), torch.tensor([3])).exp()
    tensor([[4.], [4.]], dtype=torch.float64)
    """
    return -log_f.gather(-1, y.expand(log_f.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def split_cross_entropy(log_f: Tensor, y: Tensor, p: Tensor) -> Split:
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
    by_draw = torch.tensordot(p, unweighted_as_0(p, log_f), dims=1)
    centre = torch.log_softmax(by_draw.mean(0), dim=-1)
    # 0 times a logarithm is 0, also of a class that is masked: −∞ in f̂, and in all clients or in one.
    share = centre.exp()
    apart = (centre - log_f.mean(1)).masked_fill(share == 0, 0.0)
    divergence = torch.einsum("bc,kbc->kb", share, apart)
    without = without_each(by_draw)
    return Split(
        factors={"bias": cross_entropy(centre, y), "variance": p @ unweighted_as_0(p, divergence)},
        left_out={
            "bias": cross_entropy(torch.log_softmax(without, dim=-1), y),
            "variance": -torch.logsumexp(without, dim=-1),
        },
        clients=divergence,
    )


def predictions(logits: Tensor) -> Tensor:
    """Return the predicted class, int64 [...], from logits [..., C]; among equal ones the lowest, and −1 where an
    output is nan: such a model votes for no class and is wrong, as in `Evaluator`."""
    return logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1)


def zero_one(predicted: Tensor, y: Tensor) -> Tensor:
    """1[f != y], float64 [..., B]."""
    return (predicted != y).to(torch.float64)


def split_zero_one(predicted: Tensor, y: Tensor, p: Tensor) -> Split:
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
    return Split(factors=factors, left_out=left_out, clients=zero_one(predicted, main).mean(1))


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


def without_each(values: Tensor) -> Tensor:
    """Means over the R−1 draws other than each, [R, ...] from [R, ...]; those of numbers that are infinite, as the
    logarithm of a masked class, too.

    >>> without_each(torch.tensor([1.0, 2.0, 6.0]))
    tensor([4.0000, 3.5000, 1.5000])
    >>> without_each(torch.tensor([1.0, -torch.inf, 6.0]))
    tensor([  -inf, 3.5000,   -inf])
    """
    draws, total = values.shape[0], values.sum(0)
    without = (total - values) / (draws - 1)
    if bool(total.isfinite().all()):
        return without
    # ∞ − ∞ says nothing of the others
    added = [values[[s for s in range(draws) if s != r]].mean(0) for r in range(draws)]
    return torch.where(total.isfinite(), without, torch.stack(added))


@dataclass(frozen=True)
class LossKind:
    """A loss: the name of its own form of the outputs, and functions of it, as those above."""

    outputs: str
    prepare: Callable[[Tensor], Tensor]
    losses: Callable[[Tensor, Tensor], Tensor]
    split: Callable[[Tensor, Tensor, Tensor], Split]


KINDS: Mapping[str, LossKind] = {
    "cross-entropy": LossKind("probabilities", log_probabilities, cross_entropy, split_cross_entropy),
    "zero-one": LossKind("predictions", predictions, zero_one, split_zero_one),
}
