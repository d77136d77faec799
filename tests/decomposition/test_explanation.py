"""Statements on decompositions whose verdicts are known, and the pages made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from math import floor, log10, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import kendalltau, norm, t

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.decomposition import ClientRow, Decomposition, FactorRow, RoundFactors, RunFactors
from fedscope.decomposition.explanation.context_measures import (
    Against,
    ModelComparison,
    compare_models,
    measure_round,
)
from fedscope.decomposition.explanation.dominant_factor import greatest_part
from fedscope.decomposition.explanation.error_against_bias import relate
from fedscope.decomposition.explanation.explain import explain
from fedscope.decomposition.explanation.intervals import Reading, above, magnitude, mean_of_clients, read, subtract
from fedscope.decomposition.explanation.phases import Phase, last_early, phases, spread_rounds
from fedscope.decomposition.explanation.recorded_models import _against_words, gap
from fedscope.decomposition.explanation.result import Explanation
from fedscope.decomposition.explanation.single_factors import own_data, share_below, variance_of
from fedscope.decomposition.explanation.statements import Evidence
from fedscope.decomposition.explanation.wording import spell
from fedscope.evaluation.device import Compute
from fedscope.evaluation.samples import Samples
from fedscope.training.curves.run_curve import ErrorCurve

ROUNDS = (1, 20, 30, 40, 50, 60)
SPLIT = ("heter_bias", "train_bias", "bias_cross")
# Of a run of 60 rounds the first is early. Bias, distance and error fall, and locality is above 0 from round 20 on, so
# that what these factors can support is supported.
USUAL = {
    "heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.3),
    "train_bias": (2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5),
    "bias_cross": (1e-2, 5e-3, 1e-3, 5e-4, 2e-4, 1e-4),
    "variance": (0.01, 0.008, 0.006, 0.004, 0.002, 0.001),
    "covariance": (1e-5, -1e-5, 1e-5, -1e-5, 1e-5, -1e-5),
    "locality": (-0.05, 0.3, 0.29, 0.28, 0.25, 0.2),
    "delta_max": (3.0, 2.9, 2.8, 2.6, 2.0, 1.0),
}
ERRORS_OF = (0.9, 0.6, 0.5, 0.4, 0.3, 0.2)


def made(
    name: str = "ima",
    changes: dict[str, tuple[float | None, ...]] | None = None,
    *,
    error: float = 0.001,
    count: int = 4,
    draws: str = "local:4",
    split: bool = True,
    population: bool = True,
    independent: bool = True,
    own: float = 0.01,
    others: float = 1.0,
    clients: int = 10,
    scatter: float | None = None,
    cohorts: tuple[int, ...] = (0,) * 6,
    measured: tuple[float, ...] = ERRORS_OF,
) -> RunFactors:
    """A run of USUAL with `changes`; `error` is every standard error over draws, `scatter` every client's variance (by
    default the one that adds up to the factor); the ids of a round's clients begin with that of `cohorts`; `measured`
    are the test errors."""
    series = {**USUAL, **(changes or {})}
    rounds = []
    for i, (number, first) in enumerate(zip(ROUNDS, cohorts, strict=True)):
        value = {factor: numbers[i] for factor, numbers in series.items()}
        five = [value[factor] or 0.0 for factor in (*SPLIT, "variance", "covariance")]
        value["bias"] = sum(five[:3])
        value.setdefault("ensemble_loss", sum(five))
        value.setdefault("fma_loss", sum(five) + (value["locality"] or 0.0))
        value.setdefault("global_loss", value["fma_loss"])
        value.setdefault("server_step", 0.0)
        own_variance = clients * (value["variance"] or 0.0) * (count - 1) / count if scatter is None else scatter
        known = count > 2 and independent
        rows = []
        for factor, number_ in value.items():
            drawn = factor not in ("global_loss", "averaged_loss", "server_step")
            exact = factor in ("ensemble_loss", "fma_loss", "delta_max") or not drawn
            shown_ = None if factor in SPLIT and not split else number_
            kind = "measured" if exact else "unbiased" if independent else "plugin"
            over_draws = error if known and drawn and shown_ is not None else None
            rows.append(FactorRow(factor, kind, shown_, over_draws, None if population or shown_ is None else 0.002))
        each = tuple(
            ClientRow(first + k, 20, 1 / clients, *(numbers if split else (None, None)), own_variance, 1.0)
            for k in range(clients)
            for numbers in [(own * (1 + k / 100), others)]
        )
        rounds.append(
            RoundFactors(
                number, draws, count, independent, "probabilities", 1000, 10, population, split, tuple(rows), each
            )
        )
    return RunFactors(name, "global", tuple(rounds), (ErrorCurve("global", ROUNDS, measured),))


def compared(
    loss_gap: float = -0.5, error_gap: float = -0.1, *, stderr: float = 0.01, clients: int = 3, model: str = "average"
) -> list[ModelComparison]:
    """A model against others in rounds 1 and 60, the first of them better than the rest."""
    others = "global" if model == "averaged" else "client-{}"
    against = [
        Against(others.format(k), 0.8 + k - loss_gap, 0.3 - error_gap, loss_gap - k, stderr, error_gap, stderr)
        for k in range(1 if model == "averaged" else clients)
    ]
    return [ModelComparison(number, model, 400, 0.8, 0.3, tuple(against)) for number in (1, 60)]


TESTED = {"ima": compared() + compared(model="averaged")}


def explained(*runs: RunFactors, draws: str = "local:4", **options) -> Explanation:
    split = "train" if all(one.population for run in runs for one in run.rounds) else "test"
    return explain(Decomposition(runs, split=split, draws=draws, attrs={"seed": 0}), **options)


def verdicts(explanation: Explanation) -> dict[str, str]:
    return {one.claim: one.verdict for one in explanation.statements}


RUNS = {
    "usual": lambda: explained(made()),
    "two": lambda: explained(made("fma"), made("ima", {"heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.2)})),
    "wide": lambda: explained(made(error=0.2)),
    "pair": lambda: explained(made(count=2, draws="local:2"), draws="local:2"),
    "test": lambda: explained(made(split=False, population=False)),
    "dependent": lambda: explained(made(independent=False, draws="rounds:4"), draws="rounds:4"),
    "whole": lambda: explained(made(), similarity={"ima": [(1, 0.2, 0.01, 8), (60, 0.3, 0.01, 8)]}, compared=TESTED),
}


def test_everything_that_can_be_seen_is_supported_where_the_numbers_say_so():
    found = verdicts(RUNS["whole"]())
    assert found == dict.fromkeys(
        [
            *("greatest-part/early", "greatest-part/middle", "greatest-part/late", "own-data"),
            *("bias-and-error/later", "distance-and-error", "variance-and-clients", "locality-adds"),
            *("better-than-clients", "averaging-over-rounds", "outputs-differ"),
        ],
        "supported",
    ) | dict.fromkeys(["bias-and-error/early", "covariance-is-small"], "undecided")
    early = explained(made(measured=ERRORS_OF[::-1]), early=59)
    assert early.of("bias-and-error/early").verdict == "contradicted", "the error rises"


@pytest.mark.parametrize(
    ("changes", "options", "claim"),
    [
        ({"variance": (0.9,) * 6}, {}, "greatest-part/late"),
        ({"locality": (-0.9,) * 6}, {}, "greatest-part/late"),
        ({"heter_bias": (0.3, 0.3, 0.4, 0.5, 0.6, 0.7)}, {}, "bias-and-error/later"),
        ({"delta_max": (0.3, 0.3, 0.4, 0.5, 0.6, 0.7)}, {}, "distance-and-error"),
        ({}, {"scatter": 1e-6, "error": 1e-5}, "variance-and-clients"),
        ({"locality": (0.1, -0.1, -0.1, -0.1, -0.1, -0.1)}, {}, "locality-adds"),
        ({}, {"own": 0.5}, "own-data"),
        ({"server_step": (0.1,) * 6}, {}, "server-step"),
    ],
)
def test_each_claim_can_be_contradicted(changes, options, claim):
    statement = explained(made(changes=changes, **options)).of(claim)
    assert statement.verdict == "contradicted"
    assert statement.decide == ""


def test_wide_error_bars_decide_nothing():
    found = RUNS["wide"]()
    others = ("own-data", "bias-and-error/early", "covariance-is-small")  # of clients, too few rounds, not to be seen
    drawn = [one for one in found.statements if one.claim not in others]
    for one in drawn:
        assert one.verdict == "undecided", one
        assert "--draws local:8" in one.decide, one
    assert found.of("greatest-part/late").sentence == (
        "In round 40 heterogeneous bias (0.5 ± 0.6) and variance (0.0 ± 0.6) are not apart; in round 50 heterogeneous "
        "bias (0.4 ± 0.6) and variance (0.0 ± 0.6) are not apart; in round 60 heterogeneous bias (0.3 ± 0.6) and "
        "variance (0.0 ± 0.6) are not apart."
    )


@pytest.mark.parametrize("name", ["pair", "dependent"])
def test_without_intervals_what_needs_them_is_undecided(name):
    found = RUNS[name]()
    for one in found.statements:
        assert (one.verdict == "supported") == (one.claim == "own-data"), one
        without = one.claim in ("bias-and-error/early", "covariance-is-small")  # see above
        assert one.verdict == "supported" or without or "interval" in one.decide, one
    assert any("no interval over draws exists" in note for note in found.notes)


# The definition of t's and the normal's quantile, as tables print them.
@pytest.mark.parametrize(("count", "quantile"), [(3, 4.303), (4, 3.182), (8, 2.365)])
def test_intervals_are_t_over_draws_and_samples_are_added_in_quadrature(count, quantile):
    one = made(count=count, error=0.01).rounds[0]
    assert read(one, "locality").half == pytest.approx(quantile * 0.01, abs=1e-4)
    assert read(one, "global_loss").half == 0.0
    limited = made(count=count, error=0.01, population=False).rounds[0]
    assert read(limited, "locality").half == pytest.approx(np.hypot(quantile * 0.01, 1.96 * 0.002), abs=1e-4)
    assert read(limited, "server_step").half == pytest.approx(1.96 * 0.002)
    assert read(one, "no such factor") == Reading("no such factor", 1, None)


def test_the_mean_of_clients_has_the_interval_of_a_mean():
    one = made(clients=4).rounds[0]
    values = np.array([1.0, 2.0, 4.0, 9.0])
    got = mean_of_clients("x", one, list(zip(one.clients, values.tolist(), strict=True)))
    assert got.value == pytest.approx(4.0)
    assert got.half == pytest.approx(t.ppf(0.975, 3) * values.std(ddof=1) / 2)
    alone = mean_of_clients("x", one, [(one.clients[0], 3.0)])
    assert (alone.value, alone.half) == (3.0, None)
    weighted = [(replace(one.clients[0], weight=0.3), 0.0), (replace(one.clients[1], weight=0.1), 4.0)]
    assert mean_of_clients("x", one, weighted).value == pytest.approx(1.0)


def weighted_rows(weights: Sequence[float]) -> list[ClientRow]:
    p = np.array(weights, float)
    return [ClientRow(k, 20, float(own), 0.0, 0.0, 0.0, 1.0) for k, own in enumerate(p / p.sum())]


@pytest.mark.parametrize(
    "weights",
    [
        [1] * 10,
        [81, *[1] * 9],
        [50, 20, 10, 5, 5, 4, 3, 1, 1, 1],
        [1, 1, *[1e-3] * 8],
        [1, 1, *[0] * 8],
        [4, 1],
        list(np.exp(1.5 * np.random.default_rng(3).normal(size=30))),
    ],
)
def test_intervals_over_clients_of_unequal_weights_hold_the_mean_they_should(weights):
    """Of 1,500 cohorts of independent normal numbers 95 % at least; three standard errors of that are 1.7 %. Scaled by
    K/(K−1) with t on K − 1 degrees of freedom it was 10 % to 87 % for these."""
    one, draw, known = made().rounds[0], np.random.default_rng(7), weighted_rows(weights)
    held, cohorts = 0, 1500
    for x in draw.normal(size=(cohorts, len(known))).tolist():
        got = mean_of_clients("x", one, list(zip(known, x, strict=True)))
        held += got.low <= 0 <= got.high
    assert held / cohorts >= 0.95 - 0.017


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=7), st.integers(0, 99))
def test_the_degrees_of_freedom_are_those_of_the_quadratic_form(weights, seed):
    """Satterthwaite's from the matrix of the form itself; a client of weight 0 changes nothing."""
    known = weighted_rows(weights)
    assume(max(row.weight for row in known) <= 0.9)
    p, x = np.array([row.weight for row in known]), np.random.default_rng(seed).normal(size=len(known))
    centring = np.eye(len(p)) - p
    scale = p**2 / np.diag(centring @ centring.T)
    form = centring.T @ np.diag(scale) @ centring
    degrees = np.trace(form) ** 2 / np.trace(form @ form)
    one = made().rounds[0]
    got = mean_of_clients("x", one, list(zip(known, x.tolist(), strict=True)))
    assert got.value == pytest.approx(p @ x)
    assert got.half == pytest.approx(t.ppf(0.975, degrees) * np.sqrt(x @ form @ x), rel=1e-9)
    lost = (replace(known[0], weight=0.0), np.nan)
    assert mean_of_clients("x", one, [*zip(known, x.tolist(), strict=True), lost]) == got


def test_a_client_with_nearly_all_weight_leaves_no_interval_and_is_named():
    one, known = made().rounds[0], weighted_rows([0.91, 0.05, 0.04])
    got = mean_of_clients("x", one, list(zip(known, [1.0, 2.0, 3.0], strict=True)))
    assert (got.value, got.half) == (pytest.approx(0.91 + 0.1 + 0.12), None)
    assert mean_of_clients("x", one, list(zip(weighted_rows([1, 0, 0]), [1.0, 2.0, 3.0], strict=True))).half is None
    run = made()
    heavy = tuple(
        replace(each, clients=tuple(replace(row, weight=0.955 if row.client == 3 else 0.005) for row in each.clients))
        for each in run.rounds
    )
    said = own_data(Evidence(replace(run, rounds=heavy), [])).sentence
    assert "client 3 has more than nine tenths of the weight, so means have no interval over clients." in said
    assert "nine tenths" not in own_data(Evidence(run, [])).sentence


def over_rounds(run: RunFactors, trained: tuple[int, ...] = (1, 2, 3)) -> RunFactors:
    """The same clients in several rounds of an average over rounds, each model with its part of the weight."""
    rounds = [
        replace(
            one,
            clients=tuple(
                replace(row, weight=row.weight / len(trained), trained=t) for t in trained for row in one.clients
            ),
        )
        for one in run.rounds
    ]
    return replace(run, model="averaged", rounds=tuple(rounds))


def test_a_client_in_several_rounds_of_an_average_is_one() -> None:
    """Its models are no more clients: what is said of clients is what one round of these clients would say."""
    for clients in (4, 10):
        once = made(clients=clients)
        thrice = over_rounds(once)
        page, wanted = (own_data(Evidence(run, [], "train")) for run in (thrice, once))
        assert (page.verdict, page.sentence, page.decide) == (wanted.verdict, wanted.sentence, wanted.decide)
        for one, own in zip(page.readings, wanted.readings, strict=True):
            assert (one.name, one.value) == (own.name, pytest.approx(own.value))
            assert (one.low, one.high) == (pytest.approx(own.low), pytest.approx(own.high))
    assert f"So it is for {clients} of {clients} clients" in page.sentence


def test_a_client_of_several_models_has_the_mean_of_theirs() -> None:
    """Against the numbers of a table that says one row a client."""
    draw = np.random.default_rng(5)
    ids, p = np.array([3, 5, 8, 3, 8, 9]), np.array([0.1, 0.2, 0.1, 0.3, 0.1, 0.2])
    values = draw.normal(size=6)
    rows = [ClientRow(int(k), 20, float(w), 0.0, 0.0, 0.0, 1.0) for k, w in zip(ids, p, strict=True)]
    wanted = [
        (
            ClientRow(k, 20, float(p[ids == k].sum()), 0.0, 0.0, 0.0, 1.0),
            float(np.average(values[ids == k], weights=p[ids == k])),
        )
        for k in (3, 5, 8, 9)
    ]
    one = made().rounds[0]
    got, expected = (
        mean_of_clients("x", one, known) for known in (list(zip(rows, values.tolist(), strict=True)), wanted)
    )
    assert got.value == pytest.approx(float(p @ values))
    assert (got.low, got.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    # of two clients of equal weight, one of which has four models, none has nine tenths; of one alone there is no other
    pair = [ClientRow(k, 20, w, 0.0, 0.0, 0.0, 1.0) for k, w in ((1, 0.5), *[(2, 0.125)] * 4)]
    assert mean_of_clients("x", one, [(row, float(row.client)) for row in pair]).low is not None
    assert mean_of_clients("x", one, [(row, float(i)) for i, row in enumerate(pair[1:])]).low is None
    heavy = [replace(pair[0], weight=0.04), *(replace(row, weight=0.24) for row in pair[1:])]
    assert mean_of_clients("x", one, [(row, 1.0) for row in heavy]).low is None, "client 2 has 96 %"


def test_models_of_one_client_are_told_from_clients() -> None:
    said = explained(over_rounds(made(clients=4))).of("variance-and-clients").sentence
    assert "for one model of a client (the mean over all, ± over clients)" in said
    assert "for all 12 models of 4 clients." in said
    assert "for one client (the mean over all" in explained(made(clients=4)).of("variance-and-clients").sentence
    alone = explained(over_rounds(made(clients=1))).of("variance-and-clients")
    assert (alone.verdict, alone.decide) == ("undecided", "Rounds with two clients or more would decide it.")


def test_clients_of_an_average_over_rounds_are_counted_once_from_a_run(tmp_path: Path) -> None:
    run = fedscope.train(method="ima", clients=8, participation=0.5, rounds=8, out=tmp_path / "ima", data="digits")
    (one,) = [run_.rounds[0] for run_ in fedscope.decompose(run, rounds=8, of="averaged", draws="none").runs]
    models, ids = len(one.clients), {row.client for row in one.clients}
    assert models > len(ids)
    page = explain(fedscope.decompose(run, rounds=8, of="averaged", draws="none"))
    said = page.of("own-data").sentence
    assert f" of {len(ids)} clients in round 8." in said


def test_a_difference_that_all_samples_share_has_no_interval():
    """It is that of a single sample, or of too few."""
    one = compared(stderr=0.0)[0]
    shown = gap(one, one.others[0], "loss")
    assert (shown.low, shown.high) == (None, None)
    assert shown.value == one.others[0].loss_gap
    alike = replace(one.others[0], error_gap=0.0)
    assert gap(one, alike, "error").half == 0.0


NUMBERS = st.floats(-2, 2, allow_nan=False)
ERRORS = st.sampled_from([0.0, 1e-4, 0.01, 0.1, 1.0])


@given(values=st.lists(NUMBERS, min_size=6, max_size=6), other=st.lists(NUMBERS, min_size=6, max_size=6), error=ERRORS)
def test_nothing_is_decided_where_intervals_overlap(values, other, error):
    """Recomputed from the readings of each statement, by the definition: two intervals overlap or they do not."""
    run_ = made(changes={"heter_bias": tuple(values), "locality": tuple(other)}, error=error)
    found = explained(replace(run_, curves=()))  # relations are tested by themselves, and take longer
    for phase in ("early", "middle", "late"):
        one = found.of(f"greatest-part/{phase}")
        if one.verdict == "undecided":
            continue
        for number in {reading.round for reading in one.readings}:
            parts = {r.name: magnitude(r) for r in one.readings if r.round == number and not r.name.endswith("_loss")}
            signed = {r.name: r.value for r in one.readings if r.round == number}
            named = {"heter_bias", *(["locality"] if signed["locality"] > 0 else [])}
            first = max(parts, key=lambda name: parts[name].value)
            rivals = set(parts) - {first} if phase == "early" else set(parts) - named if first in named else named
            assert all(parts[first].low > parts[name].high for name in rivals)
            assert phase == "early" or (first in named) == (one.verdict == "supported")
    signs = found.of("locality-adds")
    later = [r for r in signs.readings if r.name == "locality" and r.round > 6]
    if signs.verdict == "supported":
        assert all(r.low > 0 for r in later)
    if signs.verdict == "contradicted":
        assert all(r.high < 0 for r in later)


@given(a=st.tuples(NUMBERS, ERRORS), b=st.tuples(NUMBERS, ERRORS))
def test_a_difference_holds_0_exactly_where_intervals_meet(a, b):
    one, two = (Reading("x", 1, value, value - half, value + half) for value, half in (a, b))
    gap = subtract(one, two)
    assert (gap.low > 0) == (one.low > two.high)
    assert gap.value == one.value - two.value
    assert above(one, two) == (one.low > two.high)
    assert magnitude(one).low >= 0
    assert magnitude(one).low <= abs(one.value) <= magnitude(one).high


def test_what_is_not_comparable_is_never_above():
    nothing, number = Reading("x", 1, 5.0), Reading("x", 1, 1.0, 0.9, 1.1)
    broken = Reading("x", 1, float("nan"), float("nan"), float("nan"))
    for a, b in ((nothing, number), (number, nothing), (broken, number), (number, broken)):
        assert not above(a, b)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_value_that_does_not_exist_is_said_and_decides_nothing(value):
    found = explained(made(changes={"heter_bias": (value,) * 6}))
    late = found.of("greatest-part/late")
    assert late.verdict == "undecided"
    assert "in round 60 there is no finite value of heterogeneous bias" in late.sentence
    assert found.of("bias-and-error/later").verdict == "undecided"
    assert found.of("bias-and-error/later").sentence == "No round has values of both."
    lost = explained(made(changes={"locality": (value,) * 6})).of("locality-adds")
    assert lost.verdict == "undecided"
    assert "without a finite value in rounds 1, 20, 30, 40, 50 and 60" in lost.sentence


def test_both_that_dominate_support_a_phase_and_another_leaves_it_undecided():
    """Heterogeneous bias and a locality that adds are named together; a locality that takes away is another factor."""
    swapped = explained(made(changes={"locality": (0.05, 0.3, 0.9, 0.28, 0.4, 0.2)}))
    middle = swapped.of("greatest-part/middle")
    assert middle.verdict == "supported"
    assert middle.sentence == "The greatest part is heterogeneous bias in round 20 and locality in round 30."
    assert swapped.of("greatest-part/late").verdict == "supported", "0.4 and 0.4 are not apart, but both are named"
    away = explained(made(changes={"locality": (0.05, 0.3, -0.9, 0.28, 0.25, 0.2)})).of("greatest-part/middle")
    assert away.verdict == "undecided"
    assert "heterogeneous bias in round 20 and locality in round 30" in away.sentence
    assert "disagrees with the reading that O(Δ²) adds to it (5.3.2)" in away.sentence


def test_a_locality_that_takes_away_is_never_supported_as_what_dominates():
    late = explained(made(changes={"locality": (-0.9,) * 6})).of("greatest-part/late")
    assert late.verdict == "contradicted"
    assert "disagrees with the reading that O(Δ²) adds to it (5.3.2)" in late.sentence
    near = explained(made(changes={"locality": (-0.3,) * 6})).of("greatest-part/late")
    assert near.verdict == "undecided", "0.3 and 0.3 in round 60 are not apart"
    early = explained(made(changes={"locality": (-0.9,) * 6})).of("greatest-part/early")
    assert (early.verdict, "disagrees" in early.sentence) == ("supported", False)
    whole = explained(made(changes={"locality": (-0.9,) * 6}, split=False))
    assert whole.of("greatest-part/late").verdict == "contradicted"
    smaller = explained(made(changes={"locality": (-0.1,) * 6}, split=False))
    assert smaller.of("greatest-part/late").verdict == "undecided", "the bias is not split"
    early = smaller.of("greatest-part/early")
    assert early.verdict == "undecided", "an unsplit bias supports nothing early, either"
    assert early.decide.startswith("The bias is not split here, into own data and others'. ")


def test_a_small_factor_with_a_wide_interval_is_not_apart():
    """It is not the next in value."""
    run = made()
    last = run.rounds[-1]
    rows = tuple(replace(row, stderr_draws=0.5) if row.factor == "bias_cross" else row for row in last.rows)
    late = explained(replace(run, rounds=(*run.rounds[:-1], replace(last, rows=rows)))).of("greatest-part/late")
    assert late.verdict == "undecided"
    assert "(0.300 ± 0.003) and the cross term (0.0 ± 1.6) are not apart" in late.sentence


def test_between_small_and_large_is_undecided():
    changes = {"covariance": (0.01, 0.008, 0.006, 0.004, 0.04, 0.001)}
    found = explained(made(changes=changes, draws="runs"), draws="runs").of("covariance-is-small")
    assert found.verdict == "undecided"  # 0.04 ± 0.003 is a tenth of 0.4
    assert "at most 10 % of it: 0.040 ± 0.003 beside 0.400 ± 0.003 in round 50" in found.sentence


def test_rounds_that_disagree_are_undecided():
    first, last = compared(-0.5, model="averaged")[0], compared(0.5, model="averaged")[1]
    averaged = explained(made(), compared={"ima": [first, last]})
    statement = averaged.of("averaging-over-rounds")
    assert statement.verdict == "undecided"
    assert "lower in 1 and higher in 1 of 2 rounds" in statement.sentence
    step = explained(made(changes={"server_step": (-0.1, 0.1, -0.1, -0.1, -0.1, -0.1)})).of("server-step")
    assert step.verdict == "undecided"
    assert explained(made(changes={"server_step": (-0.1,) * 6})).of("server-step").verdict == "supported"
    assert any("the global model is the clients' average in every round" in note for note in averaged.notes)
    signs = explained(made(changes={"locality": (0.05, -0.3, 0.29, -0.28, -0.25, -0.2)})).of("locality-adds")
    assert signs.verdict == "undecided"
    assert "It is above 0 in rounds 1 and 30." in signs.sentence
    assert signs.decide == "Rounds between these, where there are any, would say where its sign changes."


def test_a_phase_without_rounds_says_which_round_would_decide():
    run = made()
    found = explained(replace(run, rounds=run.rounds[:2]), lengths={"ima": 60})
    for claim, span in (("late", "from 34 to 60"),):
        assert found.of(f"greatest-part/{claim}").verdict == "undecided"
        assert span in found.of(f"greatest-part/{claim}").decide
    for claim in ("bias-and-error/later", "distance-and-error"):
        assert found.of(claim).decide == (
            "It has 1 of the 5 rounds that it needs; more --rounds from 7 to 60 would decide it."
        )
    assert found.notes[0] == (
        "ima: decomposed rounds 1 and 20; early is rounds 1 to 6, middle is rounds 7 to 33 and late is rounds 34 to 60."
    )
    assert found.notes[1] == (
        "Early training ends with a tenth of the rounds, at least 5 and at most a third (--early sets it); in the "
        "paper it ends near round 40 of 400. Halving what follows is our choice."
    )
    early = explained(replace(run, rounds=run.rounds[:1]), lengths={"ima": 60}).of("locality-adds")
    assert (early.verdict, early.decide) == ("undecided", "A round after early training would decide it.")


def test_phases_of_a_run_that_goes_on_are_those_of_the_whole_run():
    run = made()
    found = explained(replace(run, rounds=run.rounds[:2]), lengths={"ima": 90}, recorded={"ima": 23})
    assert found.notes[1] == (
        "ima: this was made when the run had 23 of its 90 rounds. Its phases are those of all of them."
    )
    late = found.of("greatest-part/late")
    assert late.title.startswith("Late (rounds 50 to 90)")
    assert late.decide == "The run has 23 rounds so far; a longer one would decide it."
    # remedies name rounds that are there
    assert found.of("bias-and-error/later").decide.endswith("more --rounds from 10 to 23 would decide it.")
    middle = explained(replace(run, rounds=run.rounds[:1]), lengths={"ima": 90}, recorded={"ima": 23})
    assert (
        middle.of("greatest-part/middle").decide == "Decompose one of them: RUN --rounds with a number from 10 to 23."
    )
    whole = explained(run, lengths={"ima": 60}, recorded={"ima": 60})
    assert not any("was made when" in note for note in whole.notes)


def test_training_bias_is_judged_by_clients_and_never_by_the_factor():
    statement = explained(made(own=0.05, others=0.2)).of("own-data")
    assert statement.verdict == "contradicted"
    # uniform outputs: sum_k p_k^2 n_k / n (1 - 1/C) = 10 * 0.01 * 0.02 * 0.9
    assert "it carries p_k², and these clients would give 0.002 with uniform outputs" in statement.sentence
    assert explained(made(clients=5)).of("own-data").verdict == "undecided", "five clients are too few"
    assert explained(made(clients=6)).of("own-data").verdict == "supported"
    assert explained(made(split=False)).of("own-data").verdict == "undecided"


def test_the_covariance_of_replays_cannot_be_seen_and_that_of_runs_is_measured():
    changes = {"covariance": (0.9,) * 6}
    local = explained(made(changes=changes))
    statement = local.of("covariance-is-small")
    assert (statement.verdict, statement.decide) == (
        "undecided",
        "--draws runs, with runs that differ in their seed, measures it.",
    )
    assert "0 by construction" in statement.sentence
    assert local.of("greatest-part/late").verdict == "supported"
    assert not any(reading.name == "covariance" for one in local.statements for reading in one.readings)
    runs = explained(made(changes=changes, draws="runs"), draws="runs")
    assert runs.of("covariance-is-small").verdict == "contradicted"
    assert runs.of("greatest-part/late").verdict == "contradicted"
    assert explained(made(draws="runs"), draws="runs").of("covariance-is-small").verdict == "supported"


def test_the_variance_itself_is_no_claim():
    """Σ p²V is lower for ten clients than for one also where it is as large as the bias."""
    large = explained(made(changes={"variance": (0.9,) * 6})).of("variance-and-clients")
    assert large.verdict == "supported"
    assert "small" not in large.title + large.paper
    assert "1/m of the mean by arithmetic" in large.sentence


def test_the_variance_of_an_average_is_that_of_its_subsets():
    def clients_of(p: np.ndarray, v: np.ndarray) -> RoundFactors:
        one = made(clients=4, count=4).rounds[0]
        of_all = zip(one.clients, p.tolist(), v.tolist(), strict=True)
        return replace(one, clients=tuple(replace(row, weight=p, variance=v) for row, p, v in of_all))

    p, plugin = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, 2, 3, 8])
    one, v = clients_of(p, plugin), plugin * 4 / 3  # unbiased: R / (R - 1)
    pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    by_hand = np.mean([(p[own] / p[own].sum()) ** 2 @ v[own] for own in pairs])
    assert variance_of(one, 2).value == pytest.approx(by_hand)
    assert variance_of(one, 4).value == pytest.approx(p**2 @ v)
    single = variance_of(one, 1)
    assert single.value == pytest.approx(v.mean())
    assert single.half == pytest.approx(t.ppf(0.975, 3) * v.std(ddof=1) / 2)
    assert variance_of(replace(one, independent=False), 4).value == pytest.approx(p**2 @ plugin)
    # a client of weight 0 is in no average, however it varies
    left_out = clients_of(np.array([0.5, 0.0, 0.5, 0.0]), np.array([1.0, nan, 3.0, 100.0]))
    assert variance_of(left_out, 1).value == pytest.approx(4 / 3 * 2)
    assert variance_of(left_out, 2).value == pytest.approx(4 / 3)
    # one client with nearly all the weight and all the variance: more clients do not lower it
    heavy = clients_of(np.array([0.97, 0.01, 0.01, 0.01]), np.array([1.0, 0, 0, 0]))
    assert variance_of(heavy, 4).value > variance_of(heavy, 1).value


@pytest.mark.parametrize(
    ("loss_gap", "error_gap", "verdict"),
    [
        (-0.5, -0.1, "supported"),
        # a client is better in one of both
        (-0.5, 0.1, "contradicted"),
        (0.5, -0.1, "contradicted"),
        # 0.05 of 0.01 is beyond 1.96 standard errors, and within those of three clients
        (-0.5, -0.022, "undecided"),
        (0.022, -0.1, "undecided"),
    ],
)
def test_the_average_is_compared_with_every_client_on_test_data(loss_gap, error_gap, verdict):
    statement = explained(made(), compared={"ima": compared(loss_gap, error_gap)}).of("better-than-clients")
    assert statement.verdict == verdict
    assert "On 400 test samples it has cross-entropy 0.8 (its clients' " in statement.sentence


def test_models_are_compared_sample_by_sample():
    """Against plain torch, with more samples than a chunk has, one model of NaN and one that is the first again."""
    module, draw = torch.nn.Linear(3, 4), torch.Generator().manual_seed(0)
    x, y = torch.randn(700, 3, generator=draw), torch.randint(4, (700,), generator=draw)
    rows = torch.randn(3, 16, generator=draw).numpy()
    rows[2] = np.nan
    layout = Layout.of(module)
    models = [Weights(layout, row, {}) for row in rows]
    samples = Samples(x, y, 4, "toy", "test", np.arange(700))
    others = {"other": models[1], "same": models[0], "lost": models[2]}
    found = compare_models(module, samples, models[0], others, name="average", number=7, compute=Compute(workers=1))

    def each(row):
        weight, bias = torch.from_numpy(row[:12]).reshape(4, 3).double(), torch.from_numpy(row[12:]).double()
        f = x.double() @ weight.T + bias
        loss = torch.nn.functional.cross_entropy(f, y, reduction="none").numpy()
        return loss, (f.argmax(1) != y).double().numpy()

    (loss, error), (other_loss, other_error) = each(rows[0]), each(rows[1])
    assert (found.round, found.model, found.samples) == (7, "average", 700)
    assert (found.loss, found.error) == pytest.approx((loss.mean(), error.mean()), rel=1e-5)
    other, same, lost = found.others
    for of, first, second in (("loss", loss, other_loss), ("error", error, other_error)):
        gaps = first - second
        assert getattr(other, of) == pytest.approx(second.mean(), rel=1e-5)
        assert getattr(other, f"{of}_gap") == pytest.approx(gaps.mean(), rel=1e-4)
        assert getattr(other, f"{of}_stderr") == pytest.approx(gaps.std(ddof=1) / np.sqrt(700), rel=1e-4)
    assert (same.loss_gap, same.loss_stderr, same.error_gap, same.error_stderr) == (0, 0, 0, 0)
    assert lost.error == 1.0, "NaN is a wrong answer"
    assert np.isnan(lost.loss)
    assert ModelComparison.from_json(json.loads(json.dumps(found.to_json()))).others[0] == other
    single = Samples(x[:1], y[:1], 4, "toy", "test", np.arange(1))
    (other,) = compare_models(module, single, models[0], {"other": models[1]}, name="average", number=7).others
    assert np.isnan(other.loss_stderr), "one sample has none"
    wrong = Weights(Layout.of(torch.nn.Linear(3, 5)), np.zeros(20, np.float32), {})
    with pytest.raises(FedscopeError, match="other of round 7 does not fit the module: "):
        compare_models(module, samples, models[0], {"other": wrong}, name="average", number=7)


def test_intervals_of_several_clients_hold_together():
    one = compared(clients=5)[0]
    assert gap(one, one.others[0], "loss").half == pytest.approx(norm.ppf(1 - 0.05 / 2 / 5) * 0.01)
    alone = compared(model="averaged")[0]
    assert gap(alone, alone.others[0], "error").half == pytest.approx(1.96 * 0.01, rel=1e-4)


def test_rounds_of_the_average_and_its_clients_that_disagree_or_are_not_finite_decide_nothing():
    mixed = [compared()[0], compared(0.5)[1]]
    statement = explained(made(), compared={"ima": mixed}).of("better-than-clients")
    assert (statement.verdict, statement.decide) == (
        "undecided",
        "Rounds between these, where there are any, would say where it changes.",
    )
    lost = explained(made(), compared={"ima": [compared()[0], compared(NAN)[1]]}).of("better-than-clients")
    assert (lost.verdict, lost.decide) == ("undecided", "Only rounds with finite losses can decide it.")
    assert "Losses are not finite in round 60." in lost.sentence


def test_without_a_test_nothing_is_said_of_the_clients_and_their_average():
    found = explained(made())
    assert not {"better-than-clients", "averaging-over-rounds"} & set(verdicts(found))
    assert "ima: no model was measured on test data, so clients are not compared with their average." in found.notes
    tested = explained(made(), compared={"ima": compared()})
    assert "averaging-over-rounds" not in verdicts(tested)
    assert any("no average over rounds was recorded" in note for note in tested.notes)


@pytest.mark.parametrize(("loss_gap", "verdict"), [(-0.5, "supported"), (0.5, "contradicted"), (0.01, "undecided")])
def test_the_average_over_rounds_is_compared_with_the_global_model_on_test_data(loss_gap, verdict):
    tested = {"ima": compared(loss_gap, model="averaged")}
    statement = explained(made(), compared=tested).of("averaging-over-rounds")
    assert statement.verdict == verdict
    assert "Table 1 is another comparison" in statement.paper


# What a statement may say of the paper, by section 5.3 and 4.1, and what it must never say again.
PAPER = {
    "greatest-part/late": ("heterogeneous bias and O(Δ²) dominate the loss (5.3.5)",),
    "own-data": ("throughout training (5.3.5)", "local steps suffice to fit the local data (5.3.1)"),
    "bias-and-error/early": ("the error falls even where heterogeneous bias rises (5.3.1)",),
    "bias-and-error/later": ("round 40 of 400", "up and down with", "slightly up without decay (5.3.1)"),
    "distance-and-error": ("the greatest distance of a client", "(5.3.2)"),
    "variance-and-clients": ("lowered to some extent by averaging many clients (5.3.3, 5.3.5)",),
    "covariance-is-small": ("too small to matter (5.3.4, 5.3.5)",),
    "locality-adds": ("is read as adding to the loss, which falls as Δ does (5.3.2)", "Nothing is said of a sign"),
    "better-than-clients": ("On test data the mean of three clients", "lower loss and a lower error", "(4.1)"),
    "server-step": ("Theorem 1 is of the plain average", "(Table 1)", "(Table 2)", "(Fig. 7c)"),
    "averaging-over-rounds": (
        "(Fig. 5b)",
        "IMA's is in the flat centre (Fig. 5c)",
        "at almost the lowest point",
        "without it",
    ),
    "outputs-differ": ("the measure of the covariance", "small under heterogeneity", "without a decaying", "(5.3.4)"),
    "differs-most": ("Figures 2 to 4 compare", "decays by 0.01 a round with one that does not"),
}


@pytest.mark.parametrize("claim", PAPER)
def test_what_is_said_of_the_paper_is_what_it_says(claim):
    run_ = made(changes={"server_step": (0.1,) * 6})
    found = explained(run_, made("fma"), similarity={"ima": [(1, 0.2, 0.01, 8)]}, compared=TESTED)
    for words in PAPER[claim]:
        assert words in found.of(claim).paper
    every = " ".join(one.title + one.paper for one in found.statements)
    for false in (
        "after early training, training bias",
        "Heterogeneous bias falls",
        "averages plainly",
        "Variance and covariance are small",
        "follows the clients' similarity",
        "become more alike",
        "hides how much is gained",
        "compares factors between set-ups",
        "beats averaging outputs (locality below 0)",
        "which adds to the loss, dominate",
        "by accuracy alone",
        "so it is between the FMA and the IMA model",
    ):
        assert false.lower() not in every.lower()


def test_the_source_is_the_section_and_its_summary():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "explain.md").read_text(encoding="utf-8")
    for words in (explain.__doc__, page):
        assert "Section 5.3, of which 5.3.5 is the summary" in " ".join(words.split())


@given(st.permutations(range(7)))
def test_where_all_are_apart_the_relation_is_kendalls(order):
    def read_(values):
        return [Reading("x", i, float(value), float(value), float(value)) for i, value in enumerate(values)]

    found, known = relate(read_(range(7)), read_(order)), kendalltau(range(7), order, method="exact")
    assert found.tau == pytest.approx(known.statistic)
    assert found.p == pytest.approx(known.pvalue)
    assert found.together - found.against == round(found.tau * 21)


def test_intervals_that_touch_are_ties():
    def read_(values, half):
        return [Reading("x", i, value, value - half, value + half) for i, value in enumerate(values)]

    errors = read_([1.0, 2, 3, 4, 5], 0.0)
    assert relate(read_([1.0, 2, 3, 4, 5], 0.6), errors).level == 4, "neighbours are not apart"
    assert relate(read_([1.0, 2, 3, 4, 5], 0.6), errors).tau == pytest.approx(0.6)
    assert relate(read_([1.0, 2, 3, 4, 5], 9.0), errors).tau is None
    assert relate(read_([1.0, 2, 3, 4], 0.1), errors[:4]).tau is None, "four rounds are too few"
    without = [Reading("x", i, float(i)) for i in range(5)]
    assert relate(without, errors).sign == 0
    many = read_(np.arange(30.0), 0.1)
    assert relate(many, many).p == pytest.approx(2 / 1000)


@pytest.mark.parametrize(
    ("bias", "error", "verdict"),
    [
        ((0.3, 0.4, 0.5, 0.6, 0.7, 0.8), ERRORS_OF, "supported"),
        ((0.8, 0.7, 0.6, 0.5, 0.4, 0.3), ERRORS_OF, "contradicted"),
        ((0.8, 0.7, 0.6, 0.5, 0.4, 0.3), ERRORS_OF[::-1], "contradicted"),
        ((0.3, 0.8, 0.4, 0.7, 0.5, 0.6), ERRORS_OF, "undecided"),
    ],
)
def test_early_bias_and_error_are_judged_apart_from_later(bias, error, verdict):
    run_ = made(changes={"heter_bias": bias}, measured=error)
    found = explained(run_, lengths={"ima": 600})  # all of them are early
    assert found.of("bias-and-error/early").verdict == verdict
    later = found.of("bias-and-error/later")
    assert (later.verdict, later.sentence) == ("undecided", "No round has values of both.")


def test_bias_and_error_say_what_would_decide_them():
    def decide(run_: RunFactors, **options) -> str:
        return explained(run_, **options).of("bias-and-error/later").decide

    assert decide(replace(made(), curves=())) == "Test errors, measured while training, would decide it."
    mixed = made(changes={"heter_bias": (0.8, 0.3, 0.7, 0.4, 0.6, 0.5)})
    assert decide(mixed) == "More decomposed rounds from 7 to 60 may decide it."
    moved = [replace(one, round=t) for t, one in enumerate(mixed.rounds, start=1)]
    short = replace(mixed, rounds=tuple(moved), curves=(ErrorCurve("global", (1, 2, 3, 4, 5, 6), ERRORS_OF),))
    assert decide(short, early=1) == "All of these rounds are decomposed; runs with other seeds may decide it."
    assert decide(short, early=2) == "A longer run would decide it; 5 rounds are needed here."
    assert decide(replace(short, rounds=short.rounds[:1])) == "A longer run would decide it."
    averaged = replace(made(), model="averaged")
    assert decide(averaged) == "Test errors, measured while training, would decide it.", "the curve is global's"


def test_ranks_of_locality_and_squared_distance_are_spearmans():
    from scipy.stats import rankdata

    found = explained(made()).of("locality-adds").readings[-1]
    a, b = rankdata(np.abs(USUAL["locality"])), rankdata(np.square(USUAL["delta_max"]))
    assert found.value == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert found.half is None
    few = made()
    assert explained(replace(few, rounds=few.rounds[:4])).of("locality-adds").readings[-1].value is None
    lost = made(changes={"locality": (*USUAL["locality"][:5], nan)})
    assert "over 5 rounds, which depend on each other" in explained(lost).of("locality-adds").sentence
    same = explained(made(changes={"delta_max": (1.0,) * 6})).of("locality-adds")
    assert same.readings[-1].value is None


def test_between_runs_the_greatest_difference_must_be_apart():
    two = RUNS["two"]()
    statement = two.of("differs-most")
    assert (statement.verdict, statement.run) == ("supported", "fma, ima")
    assert "Heterogeneous bias differs most" in statement.sentence
    assert "says nothing about other seeds" in statement.sentence
    gap = next(r for r in statement.readings if r.name == "heter_bias: fma - ima")
    assert gap.value == pytest.approx(0.1)
    assert gap.half == pytest.approx(2 * t.ppf(0.975, 3) * 0.001)
    seeds = explained(made("fma", draws="runs"), made("ima", draws="runs"), draws="runs").of("differs-most")
    assert "other seeds" not in seeds.sentence
    same = explained(made("fma"), made("ima")).of("differs-most")
    assert same.verdict == "undecided"
    assert "the same, to the last digit" in same.sentence
    changed = {"heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.2), "locality": (-0.05, 0.3, 0.29, 0.28, 0.25, 0.1)}
    assert explained(made("fma"), made("ima", changed)).of("differs-most").verdict == "undecided"
    apart = made("ima")
    apart = replace(apart, rounds=apart.rounds[:1]), replace(made("fma"), rounds=made().rounds[1:])
    assert "no decomposed round in common" in explained(*apart).of("differs-most").sentence


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([(1, 0.2, 0.01, 8), (60, 0.3, 0.01, 8)], "supported"),
        ([(1, 0.8, 0.01, 8), (60, 0.7, 0.01, 8)], "contradicted"),
        # that it rises, or falls, is no claim
        ([(1, 0.2, 0.01, 8), (60, 0.8, 0.01, 8)], "undecided"),
        ([(1, 0.1, 0.01, 8), (60, 0.3, 0.01, 8)], "supported"),
        ([(1, 0.3, 0.2, 8)], "undecided"),
        # t of two minibatches, on one degree of freedom, is 12.7
        ([(1, 0.2, 0.03, 2)], "undecided"),
        ([(1, 0.2, 0.03, 8)], "supported"),
        ([(1, 0.2, None, 1)], "undecided"),
        ([], "undecided"),
    ],
)
def test_similarity_is_judged_where_it_is_given(values, verdict):
    assert explained(made(), similarity={"ima": values}).of("outputs-differ").verdict == verdict
    assert "outputs-differ" not in verdicts(explained(made(), similarity={"fma": values}))


def test_what_cannot_be_explained_is_refused():
    with pytest.raises(FedscopeError, match="of the zero-one loss, but only factors of the squared error"):
        explain(Decomposition((made(),), split="train", draws="local:4", loss="zero-one"))
    with pytest.raises(FedscopeError, match="ima has no decomposed round, so there is nothing to explain"):
        explained(RunFactors("ima", "global", ()))


def test_an_average_over_rounds_is_told_from_the_global_model():
    averaged = replace(made(), model="averaged")
    found = explained(made(), averaged)
    assert found.runs == ("ima", "ima (averaged)")
    assert found.of("differs-most").run == "ima, ima (averaged)"


@pytest.mark.parametrize("name", RUNS)
def test_a_page_comes_back_exactly_and_is_the_same_again(name, tmp_path):
    found = RUNS[name]()
    ends = ("factors.csv", "clients.csv", "factors.json", "md", "explain.json")
    paths = found.save(tmp_path / "figures" / "e.v1")
    assert [path.name for path in paths] == [f"e.v1.{end}" for end in ends]
    assert paths[3].read_text() == found.as_markdown("e.v1.png")
    again = Explanation.load(tmp_path / "figures" / "e.v1")
    assert again == found
    assert again.as_html(b"png") == RUNS[name]().as_html(b"png")
    assert again.as_text() == found.as_text()


def test_words_on_the_paper_that_were_mended_since_are_not_taken_from_a_file(tmp_path):
    found = explained(made())
    path = found.save(tmp_path / "e")[-1]
    kept = json.loads(path.read_text())
    for one in kept["statements"]:
        one["paper"] = "The paper says otherwise."
    other = {**kept["statements"][0], "claim": "of-another-version"}
    path.write_text(json.dumps({**kept, "statements": [*kept["statements"], other]}))
    again = Explanation.load(tmp_path / "e")
    assert again.statements[:-1] == found.statements
    assert again.statements[-1].paper == "The paper says otherwise."


def test_what_is_no_page_is_refused(tmp_path):
    with pytest.raises(FedscopeError, match=r"e\.factors\.json does not exist: a result of decompose"):
        Explanation.load(tmp_path / "e")
    found = explained(made())
    path = found.save(tmp_path / "e")[-1]
    kept = json.loads(path.read_text())

    def beside(**changes):
        """What is taken for these statements, and why it cannot be read back."""
        path.write_text(json.dumps({**kept, **changes}))
        with pytest.raises(FedscopeError) as refused:
            Explanation.load(tmp_path / "e")
        return Explanation.beside(tmp_path / "e", found.decomposition, found.early, again=False), str(refused.value)

    # what would be made anew is refused where it is only read back
    taken, why = beside(attrs={"draws": "runs"})
    assert taken is None
    assert f"e.explain.json explains another result than {tmp_path}/e.factors.json holds" in why
    # what is no page is refused in both
    for changes, sentence in (
        ({"format": "other"}, "e.explain.json is not a result of `fedscope explain`"),
        ({"statements": [{"claim": "own-data"}]}, "e.explain.json is damaged"),
        ({"notes": 3}, "e.explain.json is damaged"),
    ):
        path.write_text(json.dumps({**kept, **changes}))
        with pytest.raises(FedscopeError, match=sentence):
            Explanation.load(tmp_path / "e")
        with pytest.raises(FedscopeError, match=sentence):
            Explanation.beside(tmp_path / "e", found.decomposition, found.early, again=False)
    # another early phase is judged anew, and read back as it was made
    path.write_text(json.dumps(kept))
    assert Explanation.beside(tmp_path / "e", found.decomposition, found.early, again=False) == found
    assert Explanation.beside(tmp_path / "e", found.decomposition, {"ima": 2}, again=False) is None
    assert Explanation.beside(tmp_path / "e", found.decomposition, {"ima": 2}, again=True) == found
    path.unlink()
    assert Explanation.beside(tmp_path / "e", found.decomposition, found.early, again=False) is None
    with pytest.raises(FedscopeError, match=r"e\.explain\.json does not exist; run `fedscope explain` again"):
        Explanation.load(tmp_path / "e")


@pytest.mark.parametrize("name", RUNS)
def test_markdown_has_every_number_of_the_json(name, tmp_path):
    found = RUNS[name]()
    info = json.loads(found.save(tmp_path / "e")[-1].read_text())
    page = found.as_markdown("e.png")
    table = page[page.index("| statement | number") :].splitlines()[2:]
    shown_ = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    kept = [
        [str(number), r["name"], "" if r["round"] is None else str(r["round"]), r["value"], r["low"], r["high"]]
        for number, one in enumerate(info["statements"], start=1)
        for r in one["readings"]
    ]
    assert len(shown_) == len(kept)
    for cells, numbers in zip(shown_, kept, strict=True):
        assert cells[:3] == numbers[:3]
        for text, value in zip(cells[3:], numbers[3:], strict=True):
            assert (text == "") == (value is None)
            assert value is None or float(text) == pytest.approx(value, rel=1e-5)
    assert "![The factors over rounds](e.png)" in page
    assert "![" not in found.as_markdown()
    for one in found.statements:
        assert one.sentence in page
        assert f"{one.title}: {one.verdict}" in page
        assert (one.decide != "") == (one.verdict == "undecided"), one


class Checked(HTMLParser):
    """Every tag that is opened is closed, in order; nothing outside of the page is named."""

    EMPTY = ("meta", "img", "!doctype")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for key, value in attrs if key in ("src", "href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("name", RUNS)
def test_html_is_whole_and_needs_no_other_file(name):
    found = RUNS[name]()
    page = found.as_html(b"\x89PNG")
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.sources == ["data:image/png;base64,iVBORw=="]
    assert not re.search(r"https?:|url\(|@import|<script|<link", page)
    words = "".join(parser.words).replace("\N{NO-BREAK SPACE}", " ")
    for one in found.statements:
        for part in (one.title, one.sentence, one.decide, one.paper):
            assert part in words
    assert found.as_html().count("<img") == 0


def test_names_are_escaped():
    page = explained(made("<b>&"), made("ima")).as_html()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_text_is_wrapped_and_numbers_stay_whole():
    found = RUNS["two"]()
    text = found.as_text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\N{NO-BREAK SPACE}" not in text
    assert not re.search(r"(±|^\s*%|^\s*±)$|^\s*[%±]", text, re.MULTILINE)
    flat = " ".join(text.split())
    for one in found.statements:
        assert f"{one.title}: {one.verdict.upper()} {one.sentence}" in flat
        assert one.decide in flat


@given(st.floats(-10, 10), st.floats(1e-9, 10))
def test_shown_numbers_round_to_their_interval(value, half):
    text = spell(Reading("x", 1, value, value - half, value + half))
    number, _, bar = text.partition(" ± ")
    if bar:
        assert float(bar) == pytest.approx(half, rel=0.35)
        # Half a unit of the digit that the bar ends with, which is less than the bar itself, or of the fourth digit.
        fourth = 10.0 ** (floor(log10(abs(value))) - 3) if value else 0.0
        assert abs(float(number) - value) <= 0.5 * max(float(bar), fourth) + 1e-12
        assert len(re.sub(r"e.*|[^0-9]", "", number).lstrip("0")) <= 5, "rounding up may add one"


def test_early_is_a_tenth_or_what_is_asked_for_and_rounds_are_spread():
    names = [[one.round for one in phase.rounds] for phase in phases(made().rounds, 60)]
    assert names == [[1], [20, 30], [40, 50, 60]]
    assert [phase.span for phase in phases((), 2)] == ["round 1", "round 2"]
    assert [phase.span for phase in phases((), 1)] == ["round 1"]
    asked = [phase.span for phase in phases((), 60, 20)]
    assert asked == ["rounds 1 to 20", "rounds 21 to 40", "rounds 41 to 60"]
    # the paper's run, and where a tenth is too short or a third too long
    assert [last_early(length) for length in (400, 100, 50, 20, 15, 9, 3, 2)] == [40, 10, 5, 5, 5, 3, 1, 1]
    with pytest.raises(
        FedscopeError, match="--early 60: the run has 60 rounds, so none comes after early training; give"
    ):
        explained(made(), early=60)
    assert explained(made(), early=30).early == {"ima": 30}
    assert any("ends as given by --early; in the paper" in note for note in explained(made(), early=30).notes)
    assert spread_rounds([7]) == [7]
    for available in (range(1, 501), range(10, 61, 10), [2, 3], [1, 15, 30]):
        chosen = spread_rounds(available)
        assert set(chosen) <= set(available)
        assert {chosen[0], chosen[-1]} == {available[0], available[-1]}
        assert len(chosen) <= 12
    for early in (None, 20):
        chosen = spread_rounds(range(1, 101), 100, early)
        first = early or 10
        half = first + (100 - first) // 2
        assert sum(number <= first for number in chosen) >= 5
        assert sum(number > first for number in chosen) >= 5
        assert min(sum(first < n <= half for n in chosen), sum(n > half for n in chosen)) >= 2


# Of 10 clients each, without one in common between rounds.
DRAWN = (0, 10, 20, 30, 40, 50)


def test_that_clients_differ_between_rounds_is_noted():
    words = "ima: the clients differ between rounds. Intervals are over draws of the same clients"
    assert any(note.startswith(words) for note in explained(made(cohorts=DRAWN)).notes)
    assert not any("clients differ" in note for note in explained(made()).notes)


def test_runs_with_different_clients_in_a_round_are_not_compared():
    changed = {"heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.2)}
    statement = explained(made("fma"), made("ima", changed, cohorts=DRAWN)).of("differs-most")
    assert statement.verdict == "undecided"
    assert "The round has different clients in them." in statement.sentence


def test_what_an_interval_of_similarity_is_over_is_said():
    alike = [(1, 0.2, 0.01, 8), (60, 0.8, 0.01, 8)]
    sentence = explained(made(), similarity={"ima": alike}).of("outputs-differ").sentence
    assert "± is over minibatches of samples" in sentence
    assert not sentence.startswith("Of the run")
    runs = made("a+b+c", draws="runs")
    found = explained(runs, draws="runs", similarity={"a+b+c": alike}, stand_ins={"a+b+c": "a"})
    assert found.of("outputs-differ").sentence.startswith("Of the run a alone. Their mean CKA")
    assert any(
        "similarity, and what is compared on test data, are of the first of them (a)." in note for note in found.notes
    )


@pytest.mark.parametrize("error", [1e-12, 0.0])
def test_replays_that_are_all_alike_have_no_interval(error):
    found = explained(made(changes={"variance": (3e-16,) * 6}, error=error))
    words = "The replays are all alike, as where clients take full batches: no interval over draws exists."
    for one in found.statements:
        if one.claim == "own-data":  # over clients
            assert one.verdict == "supported"
        elif one.claim not in ("bias-and-error/early", "covariance-is-small"):  # of one round, not to be seen
            assert (one.verdict, one.decide) == ("undecided", words), one
    assert any(note.startswith(words) for note in found.notes)
    assert not any("t on 3 degrees" in note for note in found.notes)
    some = explained(made(changes={"variance": (3e-16, *USUAL["variance"][1:])}))
    assert "In round 1 the replays are all alike" in some.of("variance-and-clients").decide
    assert some.of("greatest-part/late").verdict == "supported"


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.89922261582, 4e-11, "0.8992 ± 4e-11"),
        (0.0456, 1e-9, "0.04560 ± 1e-09"),
        (1.2345, 0.0012, "1.234 ± 0.001"),
        (1234.56, 0.01, "1235 ± 0.01"),
        (0.685, 0.0013, "0.6850 ± 0.0013"),
    ],
)
def test_not_more_than_four_digits_are_shown(value, half, text):
    assert spell(Reading("x", 1, value, value - half, value + half)) == text


NAN = float("nan")


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_where_values_are_not_finite_no_draws_are_asked_for(value):
    """The third of six rounds diverged: what needs it says which values are not finite, and that draws cannot help."""
    factors = (*SPLIT, "variance", "locality")
    run_ = made(changes={name: (*USUAL[name][:3], value, *USUAL[name][4:]) for name in factors})
    other = made("fma")
    found = explained(run_, other, lengths={"ima": 60})
    cannot = "More draws cannot help where values are not finite; only rounds without such values can decide it."
    assert found.of("greatest-part/late", "ima").decide == cannot
    assert found.of("bias-and-error/later", "ima").decide == f"Not finite: heterogeneous bias in round 40. {cannot}"
    assert "variance in round 40" in found.of("variance-and-clients", "ima").decide
    assert found.of("locality-adds", "ima").decide == f"Not finite: locality in round 40. {cannot}"
    assert "More draws" not in "".join(one.decide for one in found.statements if one.run == "fma")
    # the last round is finite, and only that is compared
    assert "not finite" not in found.of("differs-most").decide
    last = made(changes={"locality": (*USUAL["locality"][:5], value)})
    assert explained(last, other).of("differs-most").decide == f"Not finite: locality in round 60. {cannot}"


def test_a_place_where_the_greatest_part_changes_is_told_beside_what_is_not_finite():
    run_ = made(changes={"heter_bias": (0.8, 0.7, 0.6, 0.01, 0.01, NAN)})
    early = explained(run_, lengths={"ima": 600}).of("greatest-part/early")  # all six rounds
    assert re.fullmatch(
        r"More draws cannot help .* Rounds between these, where there are any, would say where it changes\.",
        early.decide,
    )


def test_bias_without_finite_values_says_so_and_asks_for_no_split():
    every = explained(made(changes={"heter_bias": (NAN,) * 6})).of("bias-and-error/later")
    assert every.sentence == "No round has values of both."
    assert every.decide.startswith("Not finite: heterogeneous bias in rounds 20, 30, 40, 50 and 60. More draws cannot")
    none = explained(made(changes={"heter_bias": (None,) * 6})).of("bias-and-error/later")
    assert none.decide == "More clients, each with data of its own, would decide it."


@pytest.mark.parametrize(("split", "told"), [("test", True), ("train", False)])
def test_the_training_split_is_recommended_only_to_others(split, told):
    found = explain(Decomposition((made(split=False, population=split == "train"),), split=split, draws="local:4"))
    for claim in ("greatest-part/late", "own-data", "bias-and-error/later"):
        decide = found.of(claim).decide
        assert ("--split train" in decide) == told, claim
        assert ("Knowing whose samples are whose" in decide) != told, claim


def test_clients_that_are_not_finite_contradict_nothing_and_are_named():
    def broken(one: RoundFactors, rows: range) -> RoundFactors:
        nan = [replace(row, train_bias=NAN, heter_bias=NAN) if k in rows else row for k, row in enumerate(one.clients)]
        return replace(one, clients=tuple(nan))

    run_ = made()
    lost = replace(run_, rounds=(*run_.rounds[:4], *(broken(one, range(10)) for one in run_.rounds[4:])))
    found = explained(lost).of("own-data")
    assert found.verdict == "undecided"  # without the rule 0 of 10 in rounds 50 and 60 contradict
    assert found.sentence.endswith(
        "In rounds 50 and 60 clients 0, 1, 2, 3, 4, 5, 6, 7, 8 and 9 have no finite error and count as not below."
    )
    assert found.decide.startswith("More draws cannot help")
    one = explained(replace(run_, rounds=(*run_.rounds[:5], broken(run_.rounds[5], range(3, 4))))).of("own-data")
    assert one.verdict == "supported"  # 9 of 10
    assert one.sentence.endswith("In round 60 client 3 has no finite error and counts as not below.")
    worse = explained(made(own=0.9)).of("own-data")
    assert worse.verdict == "contradicted"


def test_a_client_with_all_data_needs_company_and_not_another_split():
    run_ = made(clients=1)
    rows = [[replace(row, heter_bias=None) for row in one.clients] for one in run_.rounds]
    found = explained(
        replace(run_, rounds=tuple(map(lambda one, own: replace(one, clients=tuple(own)), run_.rounds, rows)))
    )
    assert found.of("own-data").decide == "More clients, each with data of its own, would decide it."


def test_similarity_without_values_says_what_is_missing():
    def decide(run_: RunFactors, *values: tuple) -> str:
        return explained(run_, similarity={"ima": list(values)}).of("outputs-differ").decide

    run_ = made()
    words = "Rounds would decide it whose outputs are finite and not the same for all samples."
    assert decide(run_) == words
    assert decide(made(clients=1)) == (
        "Rounds 1, 20, 30, 40, 50 and 60 had one client; rounds with two clients or more would decide it."
    )


def test_a_step_that_is_not_finite_is_not_called_none():
    notes = explained(made(changes={"server_step": (NAN,) * 6})).notes
    assert "ima: what the server's step changes is not finite in rounds 1, 20, 30, 40, 50 and 60." in notes
    assert not any("adds no step of its own" in note for note in notes)
    assert any("adds no step of its own" in note for note in explained(made()).notes)


@pytest.mark.parametrize(
    ("last", "said"),
    [(2, "Decompose it: RUN --rounds 2."), (3, "Decompose one of them: RUN --rounds with a number from 2 to 3.")],
)
def test_a_phase_of_one_round_is_asked_for_by_its_number(last: int, said: str) -> None:
    assert greatest_part(Evidence(made(), [Phase("middle", 2, last, ())]), "middle").decide == said


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ((3, 5, 6), "Decompose one of those with their clients: RUN --rounds with a number of 3, 5-6."),
        ((5, 20), "Decompose the one with its clients: RUN --rounds 5."),
        ((1, 20), "No round of it has its clients recorded; a run that keeps them there would decide it."),
        ((2, 3, 4, 5, 6, 7), "Decompose one of them: RUN --rounds with a number from 2 to 7."),
    ],
)
def test_rounds_without_their_clients_are_no_remedy(kept: tuple[int, ...], said: str) -> None:
    evidence = Evidence(made(), [Phase("middle", 2, 7, ())], kept=kept)
    judged = greatest_part(evidence, "middle")
    assert judged is not None
    assert judged.decide == said


def test_rounds_with_too_few_before_them_for_their_draws_are_said_to_be_that() -> None:
    """Their clients were recorded."""
    run = made(independent=False, draws="rounds:4")
    for undrawn, said in (
        (
            (1, 2, 3),
            "Rounds 2 and 3 have too few rounds of the cohort before them: --draws rounds:4 needs 3.",
        ),
        ((1, 2), "Round 2 has too few rounds of the cohort before it: --draws rounds:4 needs 3."),
    ):
        evidence = Evidence(run, [Phase("middle", 2, 3, ())], kept=(20,), undrawn=undrawn)
        judged = greatest_part(evidence, "middle")
        assert judged is not None
        assert judged.decide == said
    few = replace(run, rounds=run.rounds[3:])
    told = {"lengths": {"ima": 60}, "early": 5, "draws": "rounds:4"}
    found = explained(few, kept={"ima": [*range(4, 61)]}, undrawn={"ima": [1, 2, 3]}, **told)
    assert found.of("bias-and-error/early").decide == (
        "5 rounds are needed here; rounds 1, 2 and 3 have too few rounds of the cohort before them: --draws rounds:4 "
        "needs 3."
    )
    found = explained(few, kept={"ima": [4, 60]}, undrawn={"ima": [1, 2]}, **told)
    decide = found.of("bias-and-error/early").decide
    assert decide == "A run that keeps more rounds' clients would decide it; 5 rounds are needed here."


def test_no_replays_are_offered_of_a_run_that_cannot_be_replayed() -> None:
    both = made("fma", independent=False, draws="rounds:4"), made(independent=False, draws="rounds:4")
    replayed, recorded = (explained(*both, draws="rounds:4", unreplayed=names) for names in ((), {"fma", "ima"}))
    said = {one.decide for one in replayed.statements if "Dependent draws" in one.decide}
    assert said == {"Dependent draws have no intervals; --draws local:8 has."}
    said = {one.decide for one in recorded.statements if "Dependent draws" in one.decide}
    assert said == {
        "Dependent draws have no intervals, and the run's training cannot be replayed for independent ones."
    }
    assert not any("local:" in one.decide for one in recorded.statements)
    assert len(recorded.statements) == len(replayed.statements)


def test_a_longer_run_is_no_remedy_where_clients_were_not_kept() -> None:
    run = made()
    found = explained(replace(run, rounds=run.rounds[:1]), lengths={"ima": 60}, kept={"ima": [1, 20, 30]})
    decide = found.of("bias-and-error/later").decide
    assert decide == "A run that keeps more rounds' clients would decide it; 5 rounds are needed here."
    found = explained(replace(run, rounds=run.rounds[:1]), lengths={"ima": 60}, kept={"ima": [1, 20, 30, 31, 32, 40]})
    said = "It has 0 of the 5 rounds that it needs; more --rounds of 20, 30-32, 40 would decide it."
    assert found.of("bias-and-error/later").decide == said


def soup(locality: float, *, population: bool = False, step: float = 0.0) -> RunFactors:
    """One round of recorded models, whose samples nobody owns."""
    whole = made(
        changes={
            "heter_bias": (0.04,) * 6,
            "train_bias": (0.0,) * 6,
            "bias_cross": (0.0,) * 6,
            "variance": (None,) * 6,
            "covariance": (None,) * 6,
            "locality": (locality,) * 6,
            "server_step": (step,) * 6,
        },
        draws="none",
        count=1,
        independent=False,
        split=False,
        population=population,
        scatter=0.0,
    )
    return replace(whole, rounds=whole.rounds[:1], curves=())


@pytest.mark.parametrize(
    ("locality", "greatest", "adds"),
    [(0.85, "Locality is the greatest part", "supported"), (-0.1, "Locality is the greatest", "contradicted"),
     (0.0001, "Bias is the greatest part", "undecided")],
)  # fmt: skip
def test_a_single_round_of_recorded_models_is_judged_by_its_samples(locality: float, greatest: str, adds: str) -> None:
    page = explained(soup(locality), draws="none", unknown_owners={"ima"})
    one, adding = page.of("greatest-part/early"), page.of("locality-adds")
    assert one.title == "In the only round: one factor is the greatest part of the loss"
    # a bias that is not split is the ensemble's whole loss where nothing varies
    assert one.verdict == ("undecided" if greatest.startswith("Bias") else "supported")
    assert one.sentence.startswith(greatest)
    assert (adding.title, adding.verdict) == ("In the only round locality adds to the loss", adds)
    # 1.96 of the error over samples, 0.002, and nothing over draws
    reading = read(page.decomposition.runs[0].rounds[0], "locality")
    assert reading.half == pytest.approx(1.96 * 0.002)
    assert not {"variance-and-clients", "covariance-is-small", "bias-and-error/early", "bias-and-error/later",
                "distance-and-error"} & verdicts(page).keys()  # fmt: skip
    if adds == "undecided":
        assert adding.decide == "More samples would make the intervals narrower."
    assert page.of("own-data").decide == "Knowing whose samples are whose tells them apart."
    notes = " ".join(page.notes)
    assert "ima: decomposed round 1, the only one." in notes
    assert "Draws none: these models alone." in notes
    assert "± is half a 95 % interval over samples, of these models" in notes
    assert "Early training ends" not in notes
    # where the run says whose samples are whose, another split would tell
    assert explained(soup(locality), draws="none").of("own-data").decide == "--split train tells them apart."


def test_on_all_samples_recorded_models_are_what_they_are() -> None:
    page = explained(soup(0.0001, population=True), draws="none")
    assert page.of("locality-adds").verdict == "supported"
    assert "numbers are exact for these models" in " ".join(page.notes)
    assert explained(soup(0.0, population=True), draws="none").of("locality-adds").decide == (
        "All samples are measured and nothing is drawn: only other models would decide it."
    )


def without_samples_in_distances(run: RunFactors) -> RunFactors:
    """As they are measured: no sample enters a distance, so none has an error over samples."""

    def without(row: FactorRow) -> FactorRow:
        return replace(row, stderr_samples=None) if row.factor.startswith("delta_") else row

    return replace(run, rounds=tuple(replace(one, rows=tuple(map(without, one.rows))) for one in run.rounds))


def recorded(**changes: tuple[float, ...]) -> RunFactors:
    """Six rounds of recorded models on a sample of D, whose errors fall."""
    known = {"variance": (None,) * 6, "covariance": (None,) * 6, **changes}
    run = made(changes=known, draws="none", count=1, independent=False, population=False, scatter=0.0)
    return without_samples_in_distances(run)


def test_the_distance_of_recorded_models_is_exact_on_a_sample_too() -> None:
    falling, rising = recorded(), recorded(delta_max=USUAL["delta_max"][::-1])
    for one, value in zip(falling.rounds, USUAL["delta_max"], strict=True):
        assert read(one, "delta_max") == Reading("delta_max", one.round, value, value, value)
    page, against = (explained(run, draws="none") for run in (falling, rising))
    said = page.of("distance-and-error")
    assert (said.verdict, against.of("distance-and-error").verdict) == ("supported", "contradicted")
    assert (
        "Of 10 pairs of rounds, 10 have the greater error where Δ is greater, 0 where it is smaller." in said.sentence
    )
    assert "Kendall's τ is 1.00" in said.sentence
    # what samples enter still has its interval
    assert read(falling.rounds[0], "locality").half == pytest.approx(1.96 * 0.002)


def test_the_distance_over_draws_that_cannot_say_has_no_interval() -> None:
    """That no sample enters it does not help where draws do."""
    pair = made(count=2, draws="local:2", population=False)
    alike = made(changes={"variance": (0.0,) * 6}, population=False)
    for run in map(without_samples_in_distances, (pair, alike)):
        assert read(run.rounds[0], "delta_max").low is None


def test_where_runs_are_draws_their_recorded_models_are_draws_too() -> None:
    """Each run has its own global model, so that a step of the server has an interval over runs, and needs one."""
    runs = made("a+b+c+d", {"server_step": (-0.1,) * 6}, draws="runs")
    rows = [replace(one, rows=tuple(replace(row, stderr_draws=0.002) for row in one.rows)) for one in runs.rounds]
    run = replace(runs, rounds=tuple(rows))
    assert read(run.rounds[0], "server_step").half == pytest.approx(t.ppf(0.975, 3) * 0.002)
    assert explained(run, draws="runs").of("server-step").verdict == "supported"
    lost = made("a+b", {"server_step": (-0.1,) * 6}, count=2, draws="runs")
    said = explained(lost, draws="runs").of("server-step")
    assert (said.verdict, said.decide) == ("undecided", "R = 2 draws have no interval; --draws local:4 has.")
    # replays share one global model, which no draw enters
    assert read(made(draws="local:2", count=2).rounds[0], "server_step").half == 0


def test_what_is_exact_on_a_sample_is_not_told_to_need_more_of_it() -> None:
    """Distances that are all the same: no pair is apart."""
    said = explained(recorded(delta_max=(2.0,) * 6), draws="none").of("distance-and-error")
    assert (said.verdict, said.decide) == (
        "undecided",
        "No sample enters these numbers and nothing is drawn: only other models would decide it.",
    )


def test_a_measured_distance_decides_on_a_few_samples(tmp_path: Path) -> None:
    """Δ of the page is the greatest distance of the stored clients to their mean, whatever the samples."""
    run = fedscope.train(clients=4, participation=1, rounds=2, out=tmp_path / "run")
    for measured in ({"split": "train", "limit": 40}, {"split": "test"}):
        readings = fedscope.explain(run, rounds="all", draws="none", **measured).of("locality-adds").readings
        found = {one.round: one for one in readings if one.name == "delta_max"}
        for number in (1, 2):
            clients, p = run.round(number).clients().parameters.astype(float), run.round(number).weights
            expected = max(np.linalg.norm(clients - p @ clients, axis=1))
            one = found[number]
            assert one.value == pytest.approx(expected, rel=1e-5)
            assert (one.low, one.high) == (one.value, one.value)


@pytest.mark.parametrize(("step", "judged"), [(1e-9, False), (-3e-8, False), (1e-3, True)])
def test_what_rounding_an_average_changes_is_no_step_of_a_server(step: float, judged: bool) -> None:
    page = explained(soup(0.1, step=step), draws="none")
    assert ("server-step" in verdicts(page)) == judged
    assert any("adds no step of its own" in note for note in page.notes) != judged


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``, 0 to 1 (WCAG 2.1)."""
    digits = "".join(2 * one for one in colour[1:]) if len(colour) == 4 else colour[1:]
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_page_can_be_read_by_day_in_the_dark_and_in_print():
    """Every text has the contrast 4.5 to what is behind it that WCAG asks for, in each of three sets of colours."""
    page = explained(made("ima")).as_html()
    sets = [dict(re.findall(r"--(\w+): (#\w+);", own)) for own in re.findall(r":root \{([^}]*)\}", page)]
    assert len(sets) == 3
    assert "color-scheme: light dark" in page
    pages = [luminance(one["page"]) for one in sets]
    assert pages[0] > 0.9
    assert pages[1] < 0.05
    assert pages[2] == 1
    for one, behind in zip(sets, pages, strict=True):
        for ink in ("ink", "soft"):
            low, high = sorted((luminance(one[ink]), behind))
            assert (high + 0.05) / (low + 0.05) > 4.5
    assert not re.search(r"[ {;]color: #(?!fff|000)", page), "a colour of text that is not of the sets"


def test_a_client_whose_loss_is_no_number_is_not_the_best() -> None:
    """Wherever it stands among them."""
    clients = [Against(f"client {k}", loss, 0.1 + k / 10, 0.0, 0.0, 0.0, 0.0) for k, loss in enumerate((nan, 0.5, 0.7))]
    for others in (clients, clients[::-1], clients[1:] + clients[:1]):
        said = _against_words(ModelComparison(3, "average", 40, 0.4, 0.1, tuple(others)))
        assert "its clients' 0.5 at best, nan on average" in said


def test_the_nearest_client_is_one_with_a_number() -> None:
    """Wherever one that diverged stands among them."""
    clients = [Against(f"client {k}", 0.5, 0.1, gap_, 0.01, 0.0, 0.01) for k, gap_ in enumerate((nan, -0.5, -0.2))]
    for others in (clients, clients[::-1], clients[1:] + clients[:1]):
        page = explained(made("ima"), compared={"ima": [ModelComparison(60, "average", 40, 0.4, 0.1, tuple(others))]})
        read_ = [one for said in page.statements for one in said.readings if one.name.endswith(" (nearest)")]
        assert (read_[0].name, read_[0].value) == ("test_loss: average - client 2 (nearest)", -0.2)


def test_clients_of_weight_0_are_no_part_of_the_average(tmp_path: Path) -> None:
    """They counted among those whose error on own data is small, and those that the average is better than."""
    round_ = made(clients=8).rounds[0]
    known = [replace(row, train_bias=0.01, heter_bias=1.0) for row in round_.clients]
    apart = [replace(row, client=90 + k, weight=0.0, train_bias=1.0) for k, row in enumerate(known)]
    with_them, without = (share_below(replace(round_, clients=tuple(rows))) for rows in ([*known, *apart], known))
    assert with_them == without
    assert without.value == 1.0
    torch.manual_seed(0)
    models = [torch.nn.Linear(3, 2) for _ in range(4)]
    x = torch.randn(20, 3)
    with fedscope.Recorder(tmp_path / "run", data=(x, x[:, 0] > 0)) as recorder:
        recorder.round(clients=models, weights=[0.5, 0.0, 0.3, 0.2])
    samples = Samples(x, (x[:, 0] > 0).long(), 2, "mine", "test", np.arange(20), "")
    (found,) = measure_round(models[0], samples, samples, fedscope.Run.open(tmp_path / "run").round(1)).comparisons
    assert [other.name for other in found.others] == ["client-0", "client-2", "client-3"]
