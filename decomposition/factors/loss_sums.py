"""Sums over samples that suffice for the bias and variance of a loss, streamed chunk by chunk in float64, and the rows
that they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..cohort.draws import CohortDraws
from .estimates import jackknife_error, mean_error
from .losses import Split, without_each
from .round_factors import FACTORS_OF, MEASURED_OF, FactorRow

Array = npt.NDArray[np.float64]

# Nats, or a share: a loss below it is rounding at the precision that a relative error is asked for.
FLOOR = 1e-9


@dataclass(frozen=True)
class LossSums:
    """Of n samples: `mean` and `squares`, by row of the result, the mean over samples and the sum of squared deviations
    from it; `left_out` [R], the sums over samples without each of the draws; `clients` [K], the sums of their
    variances."""

    n: int
    mean: Mapping[str, float]
    squares: Mapping[str, float]
    left_out: Mapping[str, Array]
    clients: Array

    def merge(self, more: LossSums) -> LossSums:
        """The sums of both sets of samples; squares about the common mean (Chan et al. 1983)."""
        n = self.n + more.n
        step = {name: more.mean[name] - value for name, value in self.mean.items()}
        return LossSums(
            n=n,
            mean={name: value + step[name] * (more.n / n) for name, value in self.mean.items()},
            squares={
                name: value + more.squares[name] + step[name] ** 2 * (self.n * more.n / n)
                for name, value in self.squares.items()
            },
            left_out={name: value + more.left_out[name] for name, value in self.left_out.items()},
            clients=self.clients + more.clients,
        )


def chunk_sums(parts: Split, over_draws: Mapping[str, Tensor], models: Mapping[str, Tensor]) -> LossSums:
    """The sums of one chunk of B samples.

    Args:
        parts: the factors.
        over_draws: what is a mean over draws, by name [R, B].
        models: what is one number a sample, by name [B].
    """
    columns = {**parts.factors, **{name: values.mean(0) for name, values in over_draws.items()}, **models}
    without = {**parts.left_out, **{name: without_each(values) for name, values in over_draws.items()}}
    mean = {name: float(values.mean()) for name, values in columns.items()}
    return LossSums(
        n=parts.clients.shape[1],
        mean=mean,
        squares={name: float((values - mean[name]).square().sum()) for name, values in columns.items()},
        left_out={name: values.sum(1).cpu().numpy() for name, values in without.items()},
        clients=parts.clients.sum(1).cpu().numpy(),
    )


def loss_rows(
    total: LossSums, cohort: CohortDraws, distance: Array, loss: str, *, population: bool
) -> Iterator[FactorRow]:
    """Every factor, plug-in and then the empty rows of unbiased estimates, which do not exist; then what is measured,
    in the orders of `records.FACTORS_OF` and `records.MEASURED_OF`.

    `distance` [K, R] are ||w_k^r - w_FMA^r||.
    """
    jackknife = cohort.independent and cohort.count >= 3

    def row(factor: str, kind: str) -> FactorRow:
        if factor not in total.mean:
            return FactorRow(factor, kind, None)
        left_out = total.left_out.get(factor)
        return FactorRow(
            factor,
            kind,
            total.mean[factor],
            jackknife_error(left_out / total.n) if jackknife and left_out is not None else None,
            None if population else float(np.sqrt(total.squares[factor]) / total.n),
        )

    yield from (row(factor, "plugin") for factor in FACTORS_OF[loss])
    yield from (FactorRow(factor, "unbiased", None) for factor in FACTORS_OF[loss])
    deltas = {"delta_max": distance.max(0), "delta_mean": distance.mean(0)}
    for factor in MEASURED_OF[loss]:
        if factor in deltas:
            values = deltas[factor]
            yield FactorRow(factor, "measured", float(values.mean()), mean_error(values) if jackknife else None)
        elif factor == "closure_error":
            yield FactorRow(factor, "measured", closure_error(total.mean))
        else:
            yield row(factor, "measured")


def closure_error(mean: Mapping[str, float]) -> float:
    """How far the factors are from adding up: the greater error of bias + variance against the clients' mean loss and,
    with the remainder, against mean_r L(w_FMA^r), relative to the greater of these two losses. nan where an output is
    not finite."""
    added = mean["bias"] + mean["variance"]
    errors = [abs(added - mean["client_loss"]), abs(added + mean["remainder"] - mean["fma_loss"])]
    return float(np.max(errors) / np.max([mean["client_loss"], mean["fma_loss"], FLOOR]))
