"""From the moments of a round to its rows of factors and of clients."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from ..cohort.draws import CohortDraws
from .estimates import combinations, estimate, jackknife_error, leave_out, mean_error, sample_error
from .gram import COLUMNS, Array, Moments
from .records import FACTORS, MEASURED, ClientRow, FactorRow

SPLIT = ("train_bias", "heter_bias", "bias_cross")


def factor_rows(
    total: Moments, cohort: CohortDraws, distance: Array, *, split: bool, recorded: Container[str], population: bool
) -> Iterator[FactorRow]:
    """Every factor in both estimates, then what is measured, in the order of `records.FACTORS` and `records.MEASURED`;
    empty rows for what does not exist.

    `distance` [K, R] are ||w_k^r - w_FMA^r||; `recorded` holds the names of the models there are, "global" and
    "averaged".
    """
    draws, p, n = cohort.count, np.asarray(cohort.p, dtype=np.float64), total.n
    gram, spread = total.gram / n, total.spread / n
    wens, fma = total.wens / n, total.fma / n
    plugin, unbiased = estimate(gram, spread, p)
    assert unbiased is not None, "CohortDraws has refused R = 1"
    parts = {"plugin": plugin, "unbiased": unbiased}
    jackknife = cohort.independent and draws >= 3
    left_out = [estimate(*leave_out(gram, spread, draw), p) for draw in range(draws)] if jackknife else []
    by_sample = {} if population else combinations(draws)
    locality = fma - wens

    def row(factor: str, kind: str, value: float, error: float | None = None) -> FactorRow:
        combination = by_sample.get((factor, kind))
        if factor == "server_step":
            combination = {deployed: 1.0, "fma_1": -1.0} if by_sample else None
        over_samples = None if combination is None else sample_error(combination, total.comoment, n)
        return FactorRow(factor, kind, float(value), error, over_samples)

    for index, kind in enumerate(("plugin", "unbiased")):
        for factor in FACTORS:
            if (factor in SPLIT and not split) or (kind == "unbiased" and not cohort.independent):
                yield FactorRow(factor, kind, None)
            elif factor == "locality":
                yield row(factor, kind, locality.mean(), mean_error(locality) if jackknife else None)
            else:
                without = [pair[index] for pair in left_out]
                error = jackknife_error([one[factor] for one in without if one is not None]) if jackknife else None
                yield row(factor, kind, parts[kind][factor], error)

    over_draws = {"ensemble_loss": wens, "fma_loss": fma, "delta_max": distance.max(0), "delta_mean": distance.mean(0)}
    mean = dict(zip(COLUMNS, total.mean.tolist(), strict=True))
    # of an average over rounds it is what the servers' steps in its window add
    deployed = "global" if cohort.trained is None else "averaged"
    models = {
        "global_loss": mean["global"] if "global" in recorded else None,
        "server_step": mean[deployed] - mean["fma_1"] if deployed in recorded else None,
        "averaged_loss": mean["averaged"] if "averaged" in recorded else None,
    }
    for factor in MEASURED:
        if factor in over_draws:
            values = over_draws[factor]
            yield row(factor, "measured", values.mean(), mean_error(values) if jackknife else None)
        elif factor == "closure_error":
            yield row(factor, "measured", closure_error(parts, wens, fma))
        else:
            value = models[factor]
            yield FactorRow(factor, "measured", None) if value is None else row(factor, "measured", value)


def closure_error(parts: Mapping[str, Mapping[str, float]], wens: Array, fma: Array) -> float:
    """How far the factors are from adding up: the greatest relative error, over both kinds of estimate, of bias +
    variance + covariance against mean_r L(WENS^r), and with locality against mean_r L(w_FMA^r). `wens` and `fma` [R]
    are the measured losses. nan where an output is not finite."""
    errors = []
    for part in parts.values():
        split = part["train_bias"] + part["heter_bias"] + part["bias_cross"] + part["variance"] + part["covariance"]
        for added, measured in ((split, wens.mean()), (split + (fma - wens).mean(), fma.mean())):
            errors.append(abs(added - measured) / np.maximum(measured, np.finfo(np.float64).tiny))
    return float(np.max(errors))


def corollary_rows(total: Moments, cohort: CohortDraws) -> Iterator[FactorRow]:
    """Corollary 1, plug-in (a minimum over pairs has no unbiased estimate; empty for one client, who has no pair), and
    Corollary 2, see `factors.decompose_round`."""
    clients = len(cohort.client_ids)
    least = (clients - 1) / clients * total.least / total.n if clients > 1 else None
    yield FactorRow("corollary_1", "plugin", least)
    yield FactorRow("corollary_2", "measured", total.equal / total.n)


def client_rows(
    cohort: CohortDraws, distance: Array, variance: Array, biases: Sequence[tuple[float | None, float | None]] = ()
) -> Iterator[ClientRow]:
    """One row a client, in the order of the cohort, with its variance [K] and, where something splits them, its biases
    inside and outside of its own samples."""
    for k, client in enumerate(cohort.client_ids):
        yield ClientRow(
            int(client),
            int(cohort.client_samples[k]),
            float(cohort.p[k]),
            *(biases[k] if biases else (None, None)),
            float(variance[k]),
            float(distance[k].mean()),
            None if cohort.trained is None else int(cohort.trained[k]),
        )


def client_biases(total: Moments) -> list[tuple[float | None, float | None]]:
    """Every client's mean inside and outside of its own samples; None over no samples."""
    counts = zip(total.own, total.own_count, total.other, total.n - total.own_count, strict=True)
    return [
        (float(own / inside) if inside else None, float(other / outside) if outside else None)
        for own, inside, other, outside in counts
    ]
