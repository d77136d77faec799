"""From the sums of a round to its rows, for losses other than the squared one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..cohort.draws import CohortDraws
from .estimates import jackknife_error, mean_error
from .loss_sums import Array, LossSums
from .records import FACTORS_OF, MEASURED_OF, FactorRow

# Nats, or a share: a loss below it is rounding at the precision that a relative error is asked for.
FLOOR = 1e-9


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
