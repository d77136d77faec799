"""Statements on decompositions whose verdicts are known, and the pages made of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from math import floor, log10

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t, ttest_ind

from fedscope.checkpoints import FedscopeError
from fedscope.decomposition import ClientRow, Decomposition, FactorRow, RoundFactors, RunFactors
from fedscope.decomposition.explaining import Explanation, Reading, explain, spread_rounds
from fedscope.decomposition.explaining.cohorts import welch
from fedscope.decomposition.explaining.intervals import above, difference, magnitude, mean_of_clients, read
from fedscope.decomposition.explaining.models import client_floor, client_loss
from fedscope.decomposition.explaining.phases import phases
from fedscope.decomposition.explaining.wording import shown

ROUNDS = (1, 20, 30, 40, 50, 60)
SPLIT = ("heter_bias", "train_bias", "bias_cross")
# Falling, with locality below 0 from round 30 on; every statement is supported where errors are small.
USUAL = {
    "heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.3),
    "train_bias": (2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5),
    "bias_cross": (1e-2, 5e-3, 1e-3, 5e-4, 2e-4, 1e-4),
    "variance": (0.01, 0.008, 0.006, 0.004, 0.002, 0.001),
    "covariance": (1e-5, -1e-5, 1e-5, -1e-5, 1e-5, -1e-5),
    "locality": (0.05, -0.3, -0.29, -0.28, -0.25, -0.2),
    "delta_max": (3.0, 2.9, 2.8, 2.6, 2.0, 1.0),
    "averaged_loss": (None, None, None, None, 0.10, 0.05),
}


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
    scatter: float = 1e-4,
    cohorts: tuple[int, ...] = (0,) * 6,
) -> RunFactors:
    """A run of USUAL with `changes`; `error` is every standard error over draws, `scatter` every client's variance; the
    ids of a round's clients begin with that of `cohorts`."""
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
        known = count > 2 and independent
        rows = []
        for factor, number_ in value.items():
            drawn = factor not in ("global_loss", "averaged_loss", "server_step")
            measured = factor in ("ensemble_loss", "fma_loss", "delta_max") or not drawn
            shown_ = None if factor in SPLIT and not split else number_
            kind = "measured" if measured else "unbiased" if independent else "plugin"
            over_draws = error if known and drawn and shown_ is not None else None
            rows.append(FactorRow(factor, kind, shown_, over_draws, None if population or shown_ is None else 0.002))
        each = tuple(
            ClientRow(first + k, 20, 1 / clients, *(numbers if split else (None, None)), scatter, 1.0)
            for k in range(clients)
            for numbers in [(own * (1 + k / 100), others)]
        )
        rounds.append(
            RoundFactors(
                number, draws, count, independent, "probabilities", 1000, 10, population, split, tuple(rows), each
            )
        )
    return RunFactors(name, "global", tuple(rounds))


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
    "similar": lambda: explained(made(), similarity={"ima": [(1, 0.2, 0.01, 8), (60, 0.8, 0.01, 8)]}),
}


def test_everything_is_supported_where_the_numbers_say_so():
    found = verdicts(RUNS["usual"]())
    assert set(found) == {
        "greatest-part/early",
        "greatest-part/middle",
        "greatest-part/late",
        "own-data",
        "heterogeneous-bias-falls",
        "scatter-is-small",
        "locality",
        "better-than-clients",
        "averaging-over-rounds",
    }
    assert set(found.values()) == {"supported"}


@pytest.mark.parametrize(
    ("changes", "options", "claim"),
    [
        ({"variance": (0.9,) * 6}, {}, "greatest-part/late"),
        ({"heter_bias": (0.3, 0.3, 0.4, 0.5, 0.6, 0.7)}, {}, "heterogeneous-bias-falls"),
        ({"variance": (0.01, 0.01, 0.01, 0.01, 0.2, 0.01)}, {}, "scatter-is-small"),
        ({"locality": (-0.1, -0.1, 0.1, 0.1, 0.1, 0.1)}, {}, "locality"),
        ({"averaged_loss": (None, None, None, None, 0.9, 0.9)}, {}, "averaging-over-rounds"),
        ({"locality": (0.9,) * 6}, {"others": 0.5}, "better-than-clients"),
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
    drawn = [one for one in found.statements if one.claim not in ("own-data", "averaging-over-rounds")]
    for one in drawn:
        assert one.verdict == "undecided", one
        assert "--draws local:8" in one.decide, one
    assert found.of("greatest-part/late").sentence == (
        "In round 50 heterogeneous bias (0.4 ± 0.6) and locality (-0.2 ± 0.6) are not apart; in round 60 heterogeneous "
        "bias (0.3 ± 0.6) and locality (-0.2 ± 0.6) are not apart."
    )


@pytest.mark.parametrize("name", ["pair", "dependent"])
def test_without_intervals_what_needs_them_is_undecided(name):
    found = RUNS[name]()
    for one in found.statements:
        assert (one.verdict == "supported") == (one.claim in ("own-data", "averaging-over-rounds")), one
        assert one.verdict == "supported" or "interval" in one.decide, one
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
    assert read(one, "averaged_loss") == Reading("averaged_loss", 1, None)
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


NUMBERS = st.floats(-2, 2, allow_nan=False)
ERRORS = st.sampled_from([0.0, 1e-4, 0.01, 0.1, 1.0])


@given(values=st.lists(NUMBERS, min_size=6, max_size=6), other=st.lists(NUMBERS, min_size=6, max_size=6), error=ERRORS)
def test_nothing_is_decided_where_intervals_overlap(values, other, error):
    """Recomputed from the readings of each statement, by the definition: two intervals overlap or they do not."""
    found = explained(made(changes={"heter_bias": tuple(values), "locality": tuple(other)}, error=error))
    for phase in ("early", "middle", "late"):
        one = found.of(f"greatest-part/{phase}")
        if one.verdict == "undecided":
            continue
        winners = set()
        for number in {reading.round for reading in one.readings}:
            parts = {r.name: magnitude(r) for r in one.readings if r.round == number and not r.name.endswith("_loss")}
            first = max(parts, key=lambda name: parts[name].value)
            winners.add(first)
            assert all(parts[first].low > part.high for name, part in parts.items() if name != first)
        assert len(winners) == 1
    falls = found.of("heterogeneous-bias-falls")
    first, last = falls.readings[0], falls.readings[-1]
    overlap = first.low <= last.high and last.low <= first.high
    assert (falls.verdict == "undecided") == overlap
    assert falls.verdict != "supported" or first.value > last.value
    signs = found.of("locality")
    later = [r for r in signs.readings if r.name == "locality" and r.round > 20]
    if signs.verdict == "supported":
        assert all(r.high < 0 for r in later)
    if signs.verdict == "contradicted":
        assert all(r.low > 0 for r in later)


@given(a=st.tuples(NUMBERS, ERRORS), b=st.tuples(NUMBERS, ERRORS))
def test_a_difference_holds_0_exactly_where_intervals_meet(a, b):
    one, two = (Reading("x", 1, value, value - half, value + half) for value, half in (a, b))
    gap = difference(one, two)
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
    assert found.of("heterogeneous-bias-falls").verdict == "undecided"
    assert found.of("scatter-is-small").verdict == "undecided"
    assert "0.00" not in found.of("heterogeneous-bias-falls").sentence
    lost = explained(made(changes={"locality": (value,) * 6})).of("locality")
    assert lost.verdict == "undecided"
    assert "without a finite value in rounds 1, 20, 30, 40, 50 and 60" in lost.sentence


def test_a_factor_of_another_phase_or_another_factor_first_leaves_a_phase_undecided():
    swapped = explained(made(changes={"locality": (0.05, -0.3, -0.9, -0.28, -0.25, -0.2)}))
    middle = swapped.of("greatest-part/middle")
    assert middle.verdict == "undecided"
    assert "locality in round 30 and heterogeneous bias in round 40" in middle.sentence
    assert verdicts(swapped)["greatest-part/late"] == "supported"


def test_a_small_factor_with_a_wide_interval_is_not_apart():
    """It is not the next in value."""
    run = made()
    last = run.rounds[-1]
    rows = tuple(replace(row, stderr_draws=0.5) if row.factor == "bias_cross" else row for row in last.rows)
    late = explained(replace(run, rounds=(*run.rounds[:-1], replace(last, rows=rows)))).of("greatest-part/late")
    assert late.verdict == "undecided"
    assert "(0.300 ± 0.003) and the cross term (0.0 ± 1.6) are not apart" in late.sentence


def test_between_small_and_large_is_undecided():
    found = explained(made(changes={"variance": (0.01, 0.008, 0.006, 0.004, 0.04, 0.001)})).of("scatter-is-small")
    assert found.verdict == "undecided"  # 0.04 ± 0.003 is a tenth of 0.4
    assert "at most 10 % of it: 0.040 ± 0.003 beside 0.400 ± 0.003 in round 50" in found.sentence


def test_rounds_that_disagree_are_undecided():
    averaged = explained(made(changes={"averaged_loss": (None, None, None, None, 0.9, 0.05)}))
    statement = averaged.of("averaging-over-rounds")
    assert statement.verdict == "undecided"
    assert "lower in 1 and higher in 1 of 2 rounds" in statement.sentence
    step = explained(made(changes={"server_step": (-0.1, 0.1, -0.1, -0.1, -0.1, -0.1)})).of("server-step")
    assert step.verdict == "undecided"
    assert explained(made(changes={"server_step": (-0.1,) * 6})).of("server-step").verdict == "supported"
    assert any("the server's step is 0 in every round" in note for note in averaged.notes)
    signs = explained(made(changes={"locality": (0.05, -0.3, 0.29, -0.28, -0.25, -0.2)})).of("locality")
    assert signs.verdict == "undecided"
    assert "It is above 0 in rounds 1 and 30." in signs.sentence
    assert signs.decide == "Rounds between these would say where its sign changes."


def test_a_phase_without_rounds_says_which_round_would_decide():
    run = made()
    found = explained(replace(run, rounds=run.rounds[:2]), lengths={"ima": 60})
    for claim, span in (("middle", "from 21 to 40"), ("late", "from 41 to 60")):
        assert found.of(f"greatest-part/{claim}").verdict == "undecided"
        assert span in found.of(f"greatest-part/{claim}").decide
    assert found.of("own-data").verdict == found.of("locality").verdict == "undecided"
    assert found.notes[0] == (
        "ima: decomposed rounds 1 and 20; by thirds of the run, early is rounds 1 to 20, middle is rounds 21 to 40 and "
        "late is rounds 41 to 60."
    )


def test_training_bias_is_judged_by_clients_and_never_by_the_factor():
    statement = explained(made(own=0.05, others=0.2)).of("own-data")
    assert statement.verdict == "contradicted"
    # uniform outputs: sum_k p_k^2 n_k / n (1 - 1/C) = 10 * 0.01 * 0.02 * 0.9
    assert "it carries p_k², and these clients would give 0.002 with uniform outputs" in statement.sentence
    assert explained(made(clients=5)).of("own-data").verdict == "undecided", "five clients are too few"
    assert explained(made(clients=6)).of("own-data").verdict == "supported"
    assert explained(made(split=False)).of("own-data").verdict == "undecided"


def test_the_covariance_of_replays_is_no_finding_and_that_of_runs_is_measured():
    changes = {"covariance": (0.9,) * 6}
    local = explained(made(changes=changes))
    assert local.of("scatter-is-small").verdict == "supported"
    assert local.of("greatest-part/late").verdict == "supported"
    assert "0 by construction" in local.of("scatter-is-small").sentence
    assert not any(reading.name == "covariance" for one in local.statements for reading in one.readings)
    runs = explained(made(changes=changes, draws="runs"), draws="runs")
    assert runs.of("scatter-is-small").verdict == "contradicted"
    assert runs.of("greatest-part/late").verdict == "contradicted"
    assert "the covariance is measured" in runs.of("scatter-is-small").sentence


def test_a_variance_of_full_batches_says_where_it_comes_from():
    found = explained(made(changes={"variance": (3e-16,) * 6}, error=0.0)).of("scatter-is-small")
    assert "comes of full batches" in found.sentence
    assert "full batches" not in explained(made()).of("scatter-is-small").sentence


def test_a_clients_loss_is_the_mean_over_draws_exactly():
    rng = np.random.default_rng(0)
    n, own, draws = 50, 20, 4
    y, f = rng.normal(size=(n, 3)), rng.normal(size=(draws, n, 3))
    centre = f.mean(0)
    bias = np.square(y - centre).sum(-1)
    variance = np.square(f - centre).sum(-1).mean()
    row = ClientRow(0, own, 0.1, bias[:own].mean(), bias[own:].mean(), variance, 1.0)
    one = replace(made().rounds[0], samples=n)
    assert client_loss(one, row) == pytest.approx(np.square(y - f).sum(-1).mean(), rel=1e-12)
    assert client_loss(replace(one, population=False), row) is None
    assert client_loss(one, replace(row, heter_bias=None)) is None
    assert client_loss(one, replace(row, samples=n, heter_bias=None)) is not None
    names = verdicts(explained(made(population=False)))
    assert "better-than-clients" not in names


def test_ranks_of_locality_and_squared_distance_are_spearmans():
    from scipy.stats import rankdata

    found = explained(made()).of("locality").readings[-1]
    a, b = rankdata(np.abs(USUAL["locality"])), rankdata(np.square(USUAL["delta_max"]))
    assert found.value == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert found.half is None
    few = made()
    assert explained(replace(few, rounds=few.rounds[:4])).of("locality").readings[-1].value is None
    same = explained(made(changes={"delta_max": (1.0,) * 6})).of("locality")
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
    changed = {"heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.2), "locality": (0.05, -0.3, -0.29, -0.28, -0.25, -0.1)}
    assert explained(made("fma"), made("ima", changed)).of("differs-most").verdict == "undecided"
    apart = made("ima")
    apart = replace(apart, rounds=apart.rounds[:1]), replace(made("fma"), rounds=made().rounds[1:])
    assert "no decomposed round in common" in explained(*apart).of("differs-most").sentence


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([(1, 0.2, 0.01, 8), (60, 0.8, 0.01, 8)], "supported"),
        ([(60, 0.2, 0.01, 8), (1, 0.8, 0.01, 8)], "contradicted"),
        ([(1, 0.2, 0.4, 8), (60, 0.8, 0.4, 8)], "undecided"),
        # t of two minibatches, on one degree of freedom, is 12.7
        ([(1, 0.2, 0.03, 2), (60, 0.8, 0.03, 2)], "undecided"),
        ([(1, 0.2, 0.03, 8), (60, 0.8, 0.03, 8)], "supported"),
        ([(1, 0.2, None, 1), (60, 0.8, None, 1)], "undecided"),
        ([(60, 0.8, 0.1, 8)], "undecided"),
        ([], "undecided"),
    ],
)
def test_similarity_is_judged_where_it_is_given(values, verdict):
    assert explained(made(), similarity={"ima": values}).of("more-alike").verdict == verdict
    assert "more-alike" not in verdicts(explained(made(), similarity={"fma": values}))


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
    path = found.save(tmp_path / "figures" / "e.v1")
    assert path.name == "e.v1.explain.json"
    again = Explanation.load(tmp_path / "figures" / "e.v1")
    assert again == found
    assert again.as_html(b"png") == RUNS[name]().as_html(b"png")
    assert again.as_text() == found.as_text()


def test_what_is_no_page_is_refused(tmp_path):
    with pytest.raises(FedscopeError, match=r"e\.explain\.json does not exist; run `fedscope explain` again"):
        Explanation.load(tmp_path / "e")
    (tmp_path / "e.explain.json").write_text("{}")
    with pytest.raises(FedscopeError, match=r"e\.explain\.json is no result of `fedscope explain`"):
        Explanation.load(tmp_path / "e")


@pytest.mark.parametrize("name", RUNS)
def test_markdown_has_every_number_of_the_json(name, tmp_path):
    found = RUNS[name]()
    info = json.loads(found.save(tmp_path / "e").read_text())
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
    text = shown(Reading("x", 1, value, value - half, value + half))
    number, _, bar = text.partition(" ± ")
    if bar:
        assert float(bar) == pytest.approx(half, rel=0.35)
        # Half a unit of the digit that the bar ends with, which is less than the bar itself, or of the fourth digit.
        fourth = 10.0 ** (floor(log10(abs(value))) - 3) if value else 0.0
        assert abs(float(number) - value) <= 0.5 * max(float(bar), fourth) + 1e-12
        assert len(re.sub(r"e.*|[^0-9]", "", number).lstrip("0")) <= 5, "rounding up may add one"


def test_phases_are_thirds_and_rounds_are_spread():
    names = [[one.round for one in phase.rounds] for phase in phases(made().rounds, 60)]
    assert names == [[1, 20], [30, 40], [50, 60]]
    assert [phase.span for phase in phases((), 2)] == ["round 1", "round 2"]
    assert spread_rounds([7]) == [7]
    for available in (range(1, 501), range(10, 61, 10), [2, 3], [1, 15, 30]):
        chosen = spread_rounds(available)
        assert set(chosen) <= set(available)
        assert {chosen[0], chosen[-1]} == {available[0], available[-1]}
        assert len(chosen) <= 9
    late = [number for number in spread_rounds(range(1, 501)) if number > 333]
    assert len(late) == 2


# Of 10 clients each, without one in common between rounds.
DRAWN = (0, 10, 20, 30, 40, 50)
EARLY = (1, 5, 12, 45, 50, 60)


def drawn(values: tuple[float, ...], cohorts: tuple[int, ...] = DRAWN, rounds: tuple[int, ...] = EARLY, **options):
    """A run whose heterogeneous bias is `values` in `rounds`, of which the third and the fourth part the thirds."""
    run = made(changes={"heter_bias": values}, cohorts=cohorts, **options)
    moved = tuple(replace(one, round=number) for one, number in zip(run.rounds, rounds, strict=True))
    return replace(run, rounds=moved)


FALLING = (0.9, 0.85, 0.8, 0.3, 0.25, 0.2)


@pytest.mark.parametrize(
    ("values", "cohorts", "verdict", "decide"),
    [
        (FALLING, DRAWN, "supported", ""),
        (FALLING[::-1], DRAWN, "contradicted", ""),
        # the first and the last are apart, but a round between them is as low: clients, or training
        ((0.9, 0.25, 0.8, 0.3, 0.25, 0.2), DRAWN, "undecided", "full participation would decide it"),
        # every round is apart from every other, but the scatter within thirds is as large as between them
        ((2.0, 0.31, 0.31, 0.3, 0.3, 0.3), DRAWN, "undecided", "more rounds would decide it"),
        # the same clients in all rounds, or in the first and the last: these two are compared
        ((0.9, 0.25, 0.8, 0.3, 0.25, 0.2), (0,) * 6, "supported", ""),
        ((0.9, 0.25, 0.8, 0.3, 0.25, 0.2), (0, 10, 20, 30, 40, 0), "supported", ""),
    ],
)
def test_a_fall_between_different_clients_must_be_more_than_their_scatter(values, cohorts, verdict, decide):
    run = drawn(values, cohorts)
    statement = explained(run).of("heterogeneous-bias-falls")
    assert statement.verdict == verdict
    assert decide in statement.decide
    # rising similarity is the same question, with the sign turned around
    alike = [(one.round, 1 - value, 1e-3, 8) for one, value in zip(run.rounds, values, strict=True)]
    assert explained(run, similarity={"ima": alike}).of("more-alike").verdict == verdict


def test_two_rounds_with_different_clients_decide_nothing():
    """As `--rounds 59,60` of a run in which each round draws its clients anew."""
    whole = drawn(FALLING)
    for rounds in (whole.rounds[-2:], (whole.rounds[0], *whole.rounds[3:]), whole.rounds[:4]):
        run = replace(whole, rounds=rounds)
        alike = [(one.round, 0.1 * one.round / 60, 1e-5, 8) for one in rounds]
        found = explained(run, lengths={"ima": 60}, similarity={"ima": alike})
        for claim in ("heterogeneous-bias-falls", "more-alike"):
            assert found.of(claim).verdict == "undecided"
            assert found.of(claim).decide == (
                "The rounds have different clients; more rounds would decide it, at least two from 1 to 20 and two "
                "from 41 to 60."
            )
    short = replace(whole, rounds=tuple(replace(one, round=t) for t, one in enumerate(whole.rounds[2:4], start=1)))
    assert "a longer run would decide it" in explained(short).of("heterogeneous-bias-falls").decide


def test_a_similarity_of_rounds_that_are_not_decomposed_is_one_of_other_clients():
    alike = [(2, 0.1, 1e-3, 8), (59, 0.9, 1e-3, 8)]
    assert explained(made(), similarity={"ima": alike}).of("more-alike").verdict == "undecided"


def test_rises_between_different_clients_are_not_told():
    values = (0.8, 0.85, 0.9, 0.3, 0.25, 0.2)
    assert "rises from round 1 to 5, and from 5 to 12" in (
        explained(drawn(values, (0,) * 6)).of("heterogeneous-bias-falls").sentence
    )
    assert "rises" not in explained(drawn(values)).of("heterogeneous-bias-falls").sentence


def test_that_clients_differ_between_rounds_is_noted():
    words = "ima: the clients differ between rounds. Intervals are over draws of the same clients"
    assert any(note.startswith(words) for note in explained(drawn(FALLING)).notes)
    assert not any("clients differ" in note for note in explained(made()).notes)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=5), st.lists(st.floats(-2, 2), min_size=2, max_size=5))
def test_thirds_are_compared_by_welchs_t(a, b):
    assume(np.std(a) > 1e-3 and np.std(b) > 1e-3)
    found = welch(*([Reading("x", 1, value) for value in values] for values in (a, b)))
    low, high = ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    assert welch([Reading("x", 1, 1.0)] * 2, [Reading("x", 1, 3.0)] * 2).half == 0.0


def test_runs_with_different_clients_in_a_round_are_not_compared():
    changed = {"heter_bias": (0.8, 0.7, 0.6, 0.5, 0.4, 0.2)}
    statement = explained(made("fma"), made("ima", changed, cohorts=DRAWN)).of("differs-most")
    assert statement.verdict == "undecided"
    assert "The round has different clients in them." in statement.sentence


@given(st.integers(0, 2**31), st.floats(0, 3), st.integers(3, 6))
def test_no_interval_of_a_clients_loss_lies_lower_than_its_floor(seed, size, draws):
    """Against Student's interval of the losses of the single draws, which the records do not keep."""
    rng = np.random.default_rng(seed)
    n, own = 20, 8
    y, f = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    # some draws far away, in the direction of the bias: that is where the bound is nearest
    f = f + size * rng.normal(size=(draws, 1, 1)) ** 3 * (y - f) + 0.1 * rng.normal(size=(draws, n, 3))
    losses = np.square(y - f).sum(-1).mean(-1)
    bias = np.square(y - f.mean(0)).sum(-1)
    variance = np.square(f - f.mean(0)).sum(-1).mean()
    row = ClientRow(0, own, 0.1, bias[:own].mean(), bias[own:].mean(), variance, 1.0)
    one = replace(made(count=draws).rounds[0], samples=n)
    low = losses.mean() - t.ppf(0.975, draws - 1) * losses.std(ddof=1) / np.sqrt(draws)
    assert client_floor(one, row) <= low + 1e-9
    assert client_floor(replace(one, count=2), row) is client_floor(replace(one, independent=False), row) is None


def test_a_client_whose_draws_may_reach_the_averaged_model_leaves_it_undecided():
    """Of loss 1, which V = 0.02 lets fall to 1 - 3.18 (2 sqrt(0.02) + 0.02 sqrt(3)) / sqrt(3) = 0.42."""
    statement = explained(made(scatter=0.02)).of("better-than-clients")
    assert statement.verdict == "undecided"
    assert "It is below every client's in every round, and apart from all of them in rounds 20, 30, 40, 50 and 60." in (
        statement.sentence
    )
    assert "A single client's loss has no interval: it is a mean over R draws" in statement.sentence


def test_what_an_interval_of_similarity_is_over_is_said():
    alike = [(1, 0.2, 0.01, 8), (60, 0.8, 0.01, 8)]
    sentence = explained(made(), similarity={"ima": alike}).of("more-alike").sentence
    assert "± is over minibatches of samples" in sentence
    assert not sentence.startswith("Of the run")
    runs = made("a+b+c", draws="runs")
    found = explained(runs, draws="runs", similarity={"a+b+c": alike}, stand_ins={"a+b+c": "a"})
    assert found.of("more-alike").sentence.startswith("Of the run a alone. Their mean CKA")
    assert any("similarity and the figure's test errors are of the first of them (a)." in note for note in found.notes)


@pytest.mark.parametrize("error", [1e-12, 0.0])
def test_replays_that_are_all_alike_have_no_interval(error):
    found = explained(made(changes={"variance": (3e-16,) * 6}, error=error))
    words = "The replays are all alike, because clients take full batches: no interval over draws exists."
    for one in found.statements:
        if one.claim in ("own-data", "averaging-over-rounds"):  # over clients, and without draws
            assert one.verdict == "supported"
        else:
            assert (one.verdict, one.decide) == ("undecided", words), one
    assert any(note.startswith(words) for note in found.notes)
    assert not any("t on 3 degrees" in note for note in found.notes)
    some = explained(made(changes={"variance": (3e-16, *USUAL["variance"][1:])}))
    assert "In round 1 the replays are all alike" in some.of("heterogeneous-bias-falls").decide
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
    assert shown(Reading("x", 1, value, value - half, value + half)) == text


NAN = float("nan")


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_where_values_are_not_finite_no_draws_are_asked_for(value):
    """The third of six rounds diverged: what needs it says which values are not finite, and that draws cannot help."""
    factors = (*SPLIT, "variance", "locality")
    run_ = made(changes={name: (*USUAL[name][:3], value, *USUAL[name][4:]) for name in factors})
    other = made("fma")
    found = explained(run_, other)
    cannot = "More draws cannot help where values are not finite; only rounds without such values can decide it."
    assert found.of("greatest-part/middle", "ima").decide == cannot
    assert found.of("scatter-is-small", "ima").decide == (
        f"Not finite: variance and heterogeneous bias in round 40. {cannot}"
    )
    assert found.of("locality", "ima").decide == f"Not finite: locality in round 40. {cannot}"
    better = found.of("better-than-clients", "ima")
    if better.verdict == "undecided":  # an infinite loss is above the clients'
        assert better.decide == f"Not finite: the loss of the averaged model in round 40. {cannot}"
    assert better.verdict == ("contradicted" if value == float("inf") else "undecided")
    assert "More draws" not in "".join(one.decide for one in found.statements if one.run == "fma")
    # the last round is finite, and only that is compared
    assert "not finite" not in found.of("differs-most").decide
    last = made(changes={"locality": (*USUAL["locality"][:5], value)})
    assert explained(last, other).of("differs-most").decide == f"Not finite: locality in round 60. {cannot}"


def test_a_place_where_the_greatest_part_changes_is_told_beside_what_is_not_finite():
    run_ = made(changes={"heter_bias": (0.8, 0.7, 0.6, 0.01, 0.01, NAN)})
    early = explained(run_, lengths={"ima": 180}).of("greatest-part/early")  # all six rounds
    assert re.fullmatch(r"More draws cannot help .* Rounds between these would say where it changes\.", early.decide)


def test_a_fall_without_finite_values_says_so_and_asks_for_no_split():
    every = explained(made(changes={"heter_bias": (NAN,) * 6})).of("heterogeneous-bias-falls")
    assert every.sentence == "It has a finite value in no round."
    assert every.decide.startswith(
        "Not finite: heterogeneous bias in rounds 1, 20, 30, 40, 50 and 60. More draws cannot"
    )
    one = explained(made(changes={"heter_bias": (0.8, *(NAN,) * 5)})).of("heterogeneous-bias-falls")
    assert one.sentence.endswith("in round 1, the only one with a finite value.")
    assert "second round" not in one.decide
    none = explained(made(changes={"heter_bias": (None,) * 6})).of("heterogeneous-bias-falls")
    assert none.decide == "More clients, each with data of its own, would decide it."
    some = explained(made(changes={"heter_bias": (0.8, *(None,) * 5)})).of("heterogeneous-bias-falls")
    assert some.decide == "Another round with a value would decide it."
    alone = made()
    single = explained(replace(alone, rounds=alone.rounds[:1])).of("heterogeneous-bias-falls")
    assert single.decide == "A second round with a value would decide it."


@pytest.mark.parametrize(("split", "told"), [("test", True), ("train", False)])
def test_the_training_split_is_recommended_only_to_others(split, told):
    found = explain(Decomposition((made(split=False, population=split == "train"),), split=split, draws="local:4"))
    for claim in ("greatest-part/late", "own-data", "heterogeneous-bias-falls"):
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
        return explained(run_, similarity={"ima": list(values)}).of("more-alike").decide

    run_ = made()
    assert decide(run_) == "Two rounds would decide it whose outputs are finite and not the same for all samples."
    assert decide(run_, (1, 0.2, 0.01, 8)).startswith("Two rounds would decide it whose outputs are finite")
    assert decide(replace(run_, rounds=run_.rounds[:1]), (1, 0.2, 0.01, 8)) == "A second round would decide it."
    assert decide(made(clients=1)) == (
        "Rounds 1, 20, 30, 40, 50 and 60 had one client; two rounds with two clients or more would decide it."
    )


def test_a_step_that_is_not_finite_is_not_called_none():
    for name, changes in (("server's step", "server_step"), ("average over rounds", "averaged_loss")):
        notes = explained(made(changes={changes: (NAN,) * 6})).notes
        assert f"ima: what the {name} changes is not finite in rounds 1, 20, 30, 40, 50 and 60." in notes
        assert not any("step is 0" in note for note in notes) or name != "server's step"
        assert not any("no average over rounds" in note for note in notes)
    assert any("step is 0" in note for note in explained(made()).notes)


@pytest.mark.parametrize(
    ("last", "said"),
    [(2, "Decompose it: --rounds 2."), (3, "Decompose one of them: --rounds with a number from 2 to 3.")],
)
def test_a_phase_of_one_round_is_asked_for_by_its_number(last: int, said: str) -> None:
    from fedscope.decomposition.explaining.greatest import greatest_part
    from fedscope.decomposition.explaining.phases import Phase

    assert greatest_part("fma", Phase("middle", 2, last, ())).decide == said
