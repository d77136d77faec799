"""Plug-in and unbiased estimates of the five factors from Gram matrices, their standard errors, and the rows of a
round that they make."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ...checkpoints.models.weights import taking_part
from ..draws.cohort_draws import CohortDraws
from .gram import COLUMNS, Array, OutputMoments
from .rows import FACTORS, MEASURED, FactorRow

SPLIT = ("train_bias", "heter_bias", "bias_cross")


def estimate(gram: Array, spread: Array, p: Array) -> tuple[dict[str, float], dict[str, float] | None]:
    """(plug-in, unbiased) estimates of training bias, heterogeneous bias, their cross term, their sum `bias`, variance
    and covariance.

    `gram` [2+2R, 2+2R] and `spread` [K, R, R] are means over samples (see `gram.OutputMoments`), `p` [K]. With <.> the
    mean over samples:

        plug-in                                                     unbiased (independent draws, R >= 2)
        train_bias  <|T|^2>                                         - <mean_r |e_T^r|^2> / (R-1)
        heter_bias  <|H|^2>                                         - <mean_r |e_H^r|^2> / (R-1)
        bias_cross  2 <T . H>                                       - 2 <mean_r e_T^r . e_H^r> / (R-1)
        variance    <sum_k p_k^2 mean_r |d_k^r|^2>                  x R/(R-1)
        covariance  <mean_r |e^r|^2> - variance                     x R/(R-1)

    The unbiased ones are None for R = 1, the recorded models alone or a draw of two left out.

    >>> plugin, unbiased = estimate(np.diag([1.0, 2.0, 0.5, 0.5, 0.0, 0.0]), np.full((1, 2, 2), 0.25), np.ones(1))
    >>> plugin["train_bias"], unbiased["train_bias"], plugin["variance"], plugin["covariance"], unbiased["covariance"]
    (1.0, 0.5, 0.25, 0.25, 0.5)
    """
    draws = spread.shape[1]
    train, heter = np.arange(2, 2 + draws), np.arange(2 + draws, 2 + 2 * draws)
    noise_train = float(gram[train, train].mean())
    noise_heter = float(gram[heter, heter].mean())
    noise_cross = 2.0 * float(gram[train, heter].mean())
    part = taking_part(p)
    variance = float(np.square(p[part]) @ np.trace(spread[part], axis1=1, axis2=2)) / draws
    noise = noise_train + noise_heter + noise_cross
    plugin = {
        "train_bias": float(gram[0, 0]),
        "heter_bias": float(gram[1, 1]),
        "bias_cross": 2.0 * float(gram[0, 1]),
        "variance": variance,
        "covariance": noise - variance,
    }
    plugin["bias"] = plugin["train_bias"] + plugin["heter_bias"] + plugin["bias_cross"]
    if draws < 2:
        return plugin, None
    unbiased = {
        "train_bias": plugin["train_bias"] - noise_train / (draws - 1),
        "heter_bias": plugin["heter_bias"] - noise_heter / (draws - 1),
        "bias_cross": plugin["bias_cross"] - noise_cross / (draws - 1),
        "variance": variance * draws / (draws - 1),
        "covariance": plugin["covariance"] * draws / (draws - 1),
    }
    unbiased["bias"] = unbiased["train_bias"] + unbiased["heter_bias"] + unbiased["bias_cross"]
    return plugin, unbiased


def leave_out(gram: Array, spread: Array, draw: int) -> tuple[Array, Array]:
    """Return the Gram matrices of the R-1 draws other than `draw` (counted from 0), without going back to the outputs.

    The mean over the others is mean_s f^s - d^r/(R-1), so T^(-r) = T + e_T^r/(R-1), e_T^s^(-r) = e_T^s + e_T^r/(R-1),
    and alike for H, e_H and d_k.
    """
    draws = spread.shape[1]
    others = np.delete(np.eye(draws), draw, axis=0)
    others[:, draw] = 1.0 / (draws - 1)
    bias = np.zeros(draws)
    bias[draw] = 1.0 / (draws - 1)
    zeros = np.zeros_like(others)
    unit = np.eye(2)
    linear = np.block(
        [
            [unit[:1], bias[None], np.zeros((1, draws))],
            [unit[1:], np.zeros((1, draws)), bias[None]],
            [np.zeros((draws - 1, 2)), others, zeros],
            [np.zeros((draws - 1, 2)), zeros, others],
        ]
    )
    return linear @ gram @ linear.T, others @ spread @ others.T


def jackknife_error(left_out: npt.ArrayLike) -> float:
    """sqrt((R-1)/R sum_r (theta^(-r) - mean)^2) from the R estimates theta^(-r) that leave one draw out each; to be
    read with t on R-1 degrees of freedom.

    Of the mean of 1, 2, 3 and 4 it is their standard deviation over the square root of 4:

    >>> round(jackknife_error([(10 - x) / 3 for x in (1, 2, 3, 4)]), 4)
    0.6455
    """
    values = np.asarray(left_out, dtype=np.float64)
    return float(np.sqrt((values.size - 1) / values.size * np.square(values - values.mean()).sum()))


def mean_error(values: Array) -> float:
    """Compute the jackknife standard error of a mean over R draws."""
    return jackknife_error((values.sum() - values) / (values.size - 1))


def combinations(draws: int) -> dict[tuple[str, str], Mapping[str, float]]:
    """(factor, estimate) -> its value for one sample as a linear combination of `gram.COLUMNS`; for standard errors
    over samples."""
    biases = {"train_bias": ("TT", "eTeT", 1.0), "heter_bias": ("HH", "eHeH", 1.0), "bias_cross": ("TH", "eTeH", 2.0)}
    table: dict[tuple[str, str], Mapping[str, float]] = {
        ("ensemble_loss", "measured"): {"wens": 1.0},
        ("fma_loss", "measured"): {"fma": 1.0},
        ("global_loss", "measured"): {"global": 1.0},
        ("averaged_loss", "measured"): {"averaged": 1.0},
    }
    kinds = [("plugin", 0.0, 1.0)]
    if draws > 1:
        kinds.append(("unbiased", 1.0 / (draws - 1), draws / (draws - 1)))
    for kind, share, scale in kinds:
        parts = {name: {mean: k, noise: -k * share} for name, (mean, noise, k) in biases.items()}
        parts["bias"] = parts["train_bias"] | parts["heter_bias"] | parts["bias_cross"]
        parts["variance"] = {"dd": scale}
        parts["covariance"] = {"dd": -scale} | {noise: k * scale for _, noise, k in biases.values()}
        parts["locality"] = {"fma": 1.0, "wens": -1.0}
        table |= {(name, kind): combination for name, combination in parts.items()}
    return table


def sample_error(combination: Mapping[str, float], comoment: Array, n: int) -> float:
    """Compute the bootstrap standard error over n samples of a mean, in closed form: sd / sqrt(n), with sd^2 = comoment
    / n.

    Resampling n samples with replacement gives means whose variance, over infinitely many resamples, is exactly this;
    so nothing is resampled. `comoment` [Q, Q] is that of `gram.COLUMNS`.
    """
    a = np.zeros(len(COLUMNS))
    for name, weight in combination.items():
        a[COLUMNS.index(name)] = weight
    used = np.flatnonzero(a)
    # Only the columns in use: an absent model's column is nan, and 0 * nan is nan.
    total = float(a[used] @ comoment[np.ix_(used, used)] @ a[used])
    return float(np.sqrt(max(total, 0.0) / n / n)) if np.isfinite(total) else float("nan")


def factor_rows(
    total: OutputMoments,
    cohort: CohortDraws,
    distance: Array,
    *,
    split: bool,
    recorded: Container[str],
    population: bool,
    own: Container[str] = (),
) -> Iterator[FactorRow]:
    """Every factor in both estimates, then what is measured, in the order of `FACTORS` and `MEASURED`;
    empty rows for what does not exist.

    `distance` [K, R] are ||w_k^r - w_FMA^r||, of which those of clients of weight 0 do not count; `recorded` holds the
    names of the models there are, "global" and "averaged", and `own` those of which each draw has its own: their losses
    are means over draws.
    """
    draws, p, n = cohort.count, np.asarray(cohort.p, dtype=np.float64), total.n
    gram, spread = total.gram / n, total.spread / n
    wens, fma = total.wens / n, total.fma / n
    plugin, unbiased = estimate(gram, spread, p)
    parts = {"plugin": plugin} | ({} if unbiased is None else {"unbiased": unbiased})
    jackknife = cohort.independent and draws >= 3
    left_out = [estimate(*leave_out(gram, spread, draw), p) for draw in range(draws)] if jackknife else []
    by_sample = {} if population else combinations(draws)
    locality = fma - wens
    # of an average over rounds it is what the servers' steps in its window add
    deployed = "global" if cohort.trained is None else "averaged"
    beside = "fma" if deployed in own else "fma_1"

    def row(factor: str, kind: str, value: float, error: float | None = None) -> FactorRow:
        combination = by_sample.get((factor, kind))
        if factor == "server_step" and by_sample:
            combination = {deployed: 1.0, beside: -1.0}
        over_samples = None if combination is None else sample_error(combination, total.comoment, n)
        return FactorRow(factor, kind, float(value), error, over_samples)

    for index, kind in enumerate(("plugin", "unbiased")):
        for factor in FACTORS:
            between_draws = factor in ("variance", "covariance") and draws < 2
            if (factor in SPLIT and not split) or (kind == "unbiased" and not cohort.independent) or between_draws:
                yield FactorRow(factor, kind, None)
            elif factor == "locality":
                yield row(factor, kind, locality.mean(), mean_error(locality) if jackknife else None)
            else:
                without = [pair[index] for pair in left_out]
                error = jackknife_error([one[factor] for one in without if one is not None]) if jackknife else None
                yield row(factor, kind, parts[kind][factor], error)

    far = distance[taking_part(p)]
    over_draws = {"ensemble_loss": wens, "fma_loss": fma, "delta_max": far.max(0), "delta_mean": far.mean(0)}
    of_draws = dict(zip(("global", "averaged"), total.recorded / n, strict=True))
    over_draws |= {f"{name}_loss": values for name, values in of_draws.items() if name in own}
    if deployed in own:
        over_draws["server_step"] = of_draws[deployed] - fma
    mean = dict(zip(COLUMNS, total.mean.tolist(), strict=True))
    models = {
        "global_loss": mean["global"] if "global" in recorded else None,
        "server_step": mean[deployed] - mean[beside] if deployed in recorded else None,
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
    """Measure how far the factors are from adding up: the greatest relative error, over both kinds of estimate, of bias
    + variance + covariance against mean_r L(WENS^r), and with locality against mean_r L(w_FMA^r). `wens` and `fma` [R]
    are the measured losses. nan where an output is not finite."""
    errors = []
    for part in parts.values():
        split = part["train_bias"] + part["heter_bias"] + part["bias_cross"] + part["variance"] + part["covariance"]
        for added, measured in ((split, wens.mean()), (split + (fma - wens).mean(), fma.mean())):
            errors.append(abs(added - measured) / np.maximum(measured, np.finfo(np.float64).tiny))
    return float(np.max(errors))


def corollary_rows(total: OutputMoments, cohort: CohortDraws) -> Iterator[FactorRow]:
    """Corollary 1, plug-in (a minimum over pairs has no unbiased estimate; empty for one client, who has no pair), and
    Corollary 2, see `factors.decompose_round`."""
    clients = len(cohort.client_ids)
    least = (clients - 1) / clients * total.least / total.n if clients > 1 else None
    yield FactorRow("corollary_1", "plugin", least)
    yield FactorRow("corollary_2", "measured", total.equal / total.n)


def client_biases(total: OutputMoments) -> list[tuple[float | None, float | None]]:
    """Every client's mean inside and outside of its own samples; None over no samples."""
    counts = zip(total.own, total.own_count, total.other, total.n - total.own_count, strict=True)
    return [
        (float(own / inside) if inside else None, float(other / outside) if outside else None)
        for own, inside, other, outside in counts
    ]
