"""Averages of subsets of clients against literal loops, votes that a hypergeometric law counts, and finite samples."""

from __future__ import annotations

import csv
import json
import re
import warnings
from dataclasses import replace
from itertools import combinations
from math import comb, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_inside
from random_models import Table
from scipy.stats import hypergeom

import fedscope
from fedscope.checkpoints import (
    FedscopeError,
    FedscopeWarning,
    Layout,
    Round,
    RoundRecord,
    Weights,
    weighted_mean,
    write_round,
)
from fedscope.decomposition.subsets.averages import average_subsets, choose, shares_of, size_row, spread_sizes
from fedscope.decomposition.subsets.result import RoundSubsets, SizeRow, Subsets
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.samples import Samples
from fedscope.plotting.style import save_figure


def table_samples(y: np.ndarray, classes: int) -> Samples:
    n = len(y)
    x = torch.arange(n, dtype=torch.float32)[:, None]
    return Samples(x, torch.from_numpy(y), classes, "toy", "test", np.arange(n))


def case(count: int = 5, n: int = 30, classes: int = 3, seed: int = 0) -> tuple[Table, Samples, Weights]:
    draw = np.random.default_rng(seed)
    module = Table(n, classes)
    rows = draw.normal(scale=2.0, size=(count, n * classes)).astype(np.float32)
    return module, table_samples(draw.integers(0, classes, n), classes), Weights(Layout.of(module), rows, {})


def measure(module: torch.nn.Module, samples: Samples, clients: Weights, shares: np.ndarray, **options):
    return average_subsets(module, samples, clients, shares, **{"compute": Compute(workers=1), **options})


@pytest.mark.parametrize("shares", [np.ones(5), np.array([10, 1, 30, 4, 55])])
def test_every_subset_is_averaged_with_its_own_weights(shares: np.ndarray) -> None:
    module, samples, clients = case()
    rows = measure(module, samples, clients, shares, sizes=(1, 2, 3, 4, 5), subsets=10)
    y = samples.y.numpy()
    for m, row in zip((1, 2, 3, 4, 5), rows, strict=True):
        losses, errors = [], []
        for members in combinations(range(5), m):
            w = sum(shares[k] * clients.parameters[k].astype(np.float64) for k in members)
            f = (w / sum(shares[k] for k in members)).reshape(len(y), 3)
            errors.append(np.mean(f.argmax(1) != y))
            losses.append(np.mean(np.log(np.exp(f).sum(1)) - f[np.arange(len(y)), y]))
        assert (row.m, row.subsets, row.exhaustive) == (m, comb(5, m), True)
        assert row.error_mean == pytest.approx(np.mean(errors), rel=1e-12)
        assert row.loss_mean == pytest.approx(np.mean(losses), rel=1e-6)
        assert (row.error_min, row.error_max) == pytest.approx((min(errors), max(errors)), rel=1e-12)
        assert row.error_stderr is None
        assert row.loss_stderr is None
        if m < 5:
            assert row.error_std == pytest.approx(np.std(errors, ddof=1), rel=1e-9)
            assert row.loss_std == pytest.approx(np.std(losses, ddof=1), rel=1e-5)
        else:
            assert (row.error_std, row.loss_std) == (None, None)


def votes(count: int = 9, n: int = 60, seed: int = 1) -> tuple[Table, Samples, Weights, np.ndarray]:
    """On every sample some clients have a margin of +1 and the others of -1, so that an average of an odd number of
    them, equally weighted, answers as their majority: (module, samples, clients, how many are right [n])."""
    draw = np.random.default_rng(seed)
    right = draw.random((count, n)) < draw.uniform(0.2, 0.9, n)
    module = Table(n, 2)
    margins = np.stack([np.where(right, 0.5, -0.5), np.where(right, -0.5, 0.5)], axis=2)
    clients = Weights(Layout.of(module), margins.reshape(count, -1).astype(np.float32), {})
    return module, table_samples(np.zeros(n, np.int64), 2), clients, right.sum(0)


def test_a_sample_of_subsets_has_that_mean_within_its_standard_error() -> None:
    module, samples, clients, right = votes(count=15)
    expected = hypergeom.cdf(3, 15, right, 7).mean()
    off = []
    for seed in range(40):
        (row,) = measure(module, samples, clients, np.ones(15), sizes=(7,), subsets=30, seed=(seed,))
        assert (row.subsets, row.exhaustive) == (30, False)
        off.append((row.error_mean - expected) / row.error_stderr)
    # 40 values of about unit variance: their mean square is 1 ± 0.22, and their mean 0 ± 0.16
    assert 0.4 < np.mean(np.square(off)) < 1.9
    assert abs(np.mean(off)) < 0.7


def test_the_standard_error_is_that_of_drawing_without_replacement() -> None:
    """Over all samples of n of N values: the mean of stderr^2 is the variance of the sample's mean."""
    values = np.array([0.1, 0.7, 0.2, 0.9, 0.4, 0.4, 0.8])
    for n in (2, 3, 6):
        rows = [size_row(2, 7, values[list(chosen)], values[list(chosen)]) for chosen in combinations(range(7), n)]
        variance = np.var([row.error_mean for row in rows])
        assert np.mean([row.error_stderr**2 for row in rows]) == pytest.approx(variance, rel=1e-12)
        assert np.mean([row.error_std**2 for row in rows]) == pytest.approx(np.var(values, ddof=1), rel=1e-12)
        assert all(row.loss_stderr == row.error_stderr for row in rows)


def test_the_whole_average_is_the_weighted_mean_bit_for_bit() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    layout, draw = Layout.of(module), np.random.default_rng(2)
    buffers = {
        entry.name: (1 + draw.random((7, *entry.shape))).astype(entry.dtype) for entry in layout.buffers
    }  # statistics are averaged too
    clients = Weights(layout, draw.normal(size=(7, layout.size)).astype(np.float32), buffers)
    x, y = torch.from_numpy(draw.normal(size=(50, 4)).astype(np.float32)), torch.from_numpy(draw.integers(0, 3, 50))
    samples = Samples(x, y, 3, "toy", "test", np.arange(50))
    n = draw.integers(1, 50, 7)
    rows = measure(module, samples, clients, n, sizes=(7, 1), subsets=7)
    loss, error = Evaluator(module, samples, compute=Compute(workers=1)).models(weighted_mean(clients, n / n.sum()))
    assert (rows[0].loss_mean, rows[0].error_mean) == (loss[0], error[0])
    loss, error = Evaluator(module, samples, compute=Compute(workers=1)).models(clients)
    assert (rows[1].loss_mean, rows[1].error_mean) == (loss.mean(), error.mean())


def test_neither_workers_nor_other_sizes_change_a_number() -> None:
    module, samples, clients = case(8)
    told: list[tuple[int, int]] = []
    one = measure(
        module, samples, clients, np.ones(8), sizes=(2, 4, 8), subsets=6, progress=lambda *at: told.append(at)
    )
    assert told == [(i, 13) for i in range(1, 14)]
    assert measure(module, samples, clients, np.ones(8), sizes=(2, 4, 8), subsets=6, compute=Compute(workers=3)) == one
    assert measure(module, samples, clients, np.ones(8), sizes=(4,), subsets=6) == one[1:2]
    assert measure(module, samples, clients, np.ones(8), sizes=(4,), subsets=6, seed=(1,)) != one[1:2]


def test_values_that_are_not_finite_stay() -> None:
    module, samples, clients = case(3)
    clients.parameters[1] = np.nan
    one, two, _ = measure(module, samples, clients, np.ones(3), sizes=(1, 2, 3))
    assert np.isnan(one.loss_mean)
    assert np.isnan(two.loss_std)
    assert one.error_max == 1.0  # a model without an answer is wrong everywhere
    row = size_row(1, 9, np.array([1.0, np.inf]), np.array([0.5, 1.0]))
    assert row.loss_mean == np.inf
    assert np.isnan(row.loss_std)
    assert np.isnan(row.loss_stderr)


@given(st.integers(1, 9), st.data())
def test_subsets_are_different_ascending_and_all_of_them_where_there_are_no_more(
    count: int, data: st.DataObject
) -> None:
    m, most, seed = data.draw(st.integers(1, count)), data.draw(st.integers(1, 130)), data.draw(st.integers(0, 99))
    chosen = choose(count, m, most, np.random.default_rng(seed))
    assert len(chosen) == len(set(chosen)) == min(most, comb(count, m))
    assert all(len(set(s)) == m and list(s) == sorted(s) and set(s) <= set(range(count)) for s in chosen)
    assert choose(count, m, most, np.random.default_rng(seed)) == chosen
    if comb(count, m) > most + 1:
        assert choose(count, m, most + 1, np.random.default_rng(seed))[:most] == chosen


def test_every_subset_is_drawn_equally_often() -> None:
    draw, found = np.random.default_rng(0), dict.fromkeys(combinations(range(6), 3), 0)
    for _ in range(2000):
        for members in choose(6, 3, 5, draw):
            found[members] += 1
    # each is in a draw of 5 of 20 with probability 1/4: 500 ± 19.4 times
    assert all(abs(count - 500) < 5 * 19.4 for count in found.values())


@given(st.one_of(st.integers(1, 60), st.integers(61, 10**6)))
def test_sizes_begin_with_one_and_two_and_end_with_all(count: int) -> None:
    sizes = spread_sizes(count)
    assert list(sizes) == sorted(set(sizes))
    assert {1, min(2, count), count} <= set(sizes)
    assert (sizes[0], sizes[-1]) == (1, count)
    assert len(sizes) == count if count <= 20 else len(sizes) <= 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": (0,)}, r"no subset of 0 of 5 clients; give sizes from 1 to 5"),
        ({"sizes": (6,)}, r"no subset of 6 of 5 clients; give sizes from 1 to 5"),
        ({"subsets": 0}, r"0 subsets of a size have no mean; give 1 or more"),
        ({"shares": np.ones(4)}, r"there are 5 clients, but 4 shares; give each client one"),
        (
            {"shares": np.array([1, 2, 0, 4, 5])},
            r"client 2 of the cohort has the share 0 in its averages, so .* none; give each client a positive one$",
        ),
        ({"shares": np.array([1, 2, np.nan, 4, 5])}, r"client 2 of the cohort has the share nan"),
        ({"module": Table(30, 4)}, r"the module returns outputs of shape \[1, 4\]"),
        ({"module": torch.nn.Linear(1, 3)}, r"the clients do not fit the module: "),
    ],
)
def test_what_cannot_be_averaged_is_refused(changes: dict[str, object], message: str) -> None:
    module, samples, clients = case()
    known = {"module": module, "shares": np.ones(5), "sizes": (1, 2), **changes}
    with pytest.raises(FedscopeError, match=message):
        average_subsets(known.pop("module"), samples, clients, known.pop("shares"), **known)


# --- the result ---


def falling(run: str = "ima", round_: int = 20, count: int = 10, top: float = 0.8) -> RoundSubsets:
    rows = []
    for m in range(1, count + 1):
        error, full = top / m + 0.05, m in (1, count - 1, count)
        spread = None if m == count else 0.1 / m
        bound = None if full else spread / 4
        some = 1 if m == count else count if full else 20
        rows.append(SizeRow(m, some, full, error, spread, bound, 2 * error, spread, bound, error - 0.01, error + 0.01))
    return RoundSubsets(run, round_, count, tuple(rows))


def result(*rounds: RoundSubsets) -> Subsets:
    attrs = {"data": "digits", "split": "test", "samples": 360, "seed": 0}
    return Subsets(rounds or (falling(),), "samples", attrs)


def test_tables_have_the_columns_that_other_programs_rely_on(tmp_path) -> None:
    table, main = result().save(tmp_path / "figures" / "s.v1")
    assert (table.name, main.name) == ("s.v1.subsets.csv", "s.v1.subsets.json")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    names = "run round weights m subsets exhaustive error_mean error_std error_stderr loss_mean loss_std loss_stderr"
    assert list(rows[0]) == [*names.split(), "error_min", "error_max", "place"]
    assert [row["m"] for row in rows] == list(map(str, range(1, 11)))
    assert [row["exhaustive"] for row in rows] == ["True", *["False"] * 7, "True", "True"]
    assert (rows[9]["error_std"], rows[9]["loss_std"], rows[0]["error_stderr"], rows[8]["loss_stderr"]) == ("",) * 4
    assert rows[1]["error_mean"] == repr(0.8 / 2 + 0.05)
    assert {(row["run"], row["round"], row["weights"]) for row in rows} == {("ima", "20", "samples")}


def test_a_result_comes_back_exactly(tmp_path) -> None:
    odd = replace(falling("odd", 1, 3).sizes[0], loss_mean=float("inf"), error_mean=0.1 + 0.2)
    for one in (result(falling(), falling("fma", 5)), result(RoundSubsets("odd", 1, 3, (odd,)))):
        one.save(tmp_path / "r.1")
        assert Subsets.load(tmp_path / "r.1") == one
        for part in one.rounds:
            assert RoundSubsets.from_json(json.loads(json.dumps(part.to_json()))) == part
    broken = result(RoundSubsets("odd", 1, 3, (replace(odd, loss_mean=float("nan")),)))
    broken.save(tmp_path / "r")
    assert np.isnan(Subsets.load(tmp_path / "r").rounds[0].sizes[0].loss_mean)


def test_rounds_that_could_not_be_told_apart_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"round 20 of ima is there twice"):
        result(falling(), falling())


def test_nine_tenths_are_told_of_the_whole_way_alone() -> None:
    whole = falling()
    assert "nine tenths of the difference are there from m = 6 on" in whole.summary("test")
    for part in (whole.sizes[:2], whole.sizes[1:]):
        told = replace(whole, sizes=part).summary("test")
        assert "nine tenths" not in told
        assert f"averages of {part[0].m if part[0].m > 1 else part[-1].m} " in told


def test_enough_is_where_the_fall_stays_done() -> None:
    one = falling()
    assert one.enough(0.9) == 6  # 0.8/m + 0.05 <= 0.13 + 0.1 * 0.72 from m = 5.3 on
    assert one.enough(0.0) == 1
    assert one.enough(1.0) == 10
    # a size that is good by chance, before one that is not, does not count
    rows = [replace(row, error_mean=0.05) if row.m == 2 else row for row in one.sizes]
    assert replace(one, sizes=tuple(rows)).enough(0.9) == 6
    assert falling(top=-0.01).enough() is None
    assert falling(count=1).enough() is None


def test_where_there_is_no_difference_nothing_is_nine_tenths_of_it() -> None:
    one = falling()
    same = [replace(row, error_mean=0.3) for row in one.sizes]
    rounded = [replace(same[0], error_mean=0.3 + 1e-16), *same[1:]]  # means of equal numbers, of 10 and of 1
    assert rounded[0].error_mean > same[-1].error_mean
    assert replace(one, sizes=tuple(same)).enough() is None
    assert replace(one, sizes=tuple(rounded)).enough() is None
    least = [replace(same[0], error_mean=0.3 + 1e-9), *same[1:]]  # one sample of many
    assert replace(one, sizes=tuple(least)).enough() == 2


# --- the figure ---


def words(figure) -> str:
    return " ".join(text.get_text() for text in figure.texts)


def test_the_figure_draws_the_numbers() -> None:
    figure = result(falling(), falling(round_=60, top=0.1)).figure(3.5, "digits")
    (axes,) = figure.axes
    first, second = axes.lines
    np.testing.assert_array_equal(first.get_xdata(), range(1, 11))
    np.testing.assert_allclose(first.get_ydata(), [100 * (0.8 / m + 0.05) for m in range(1, 11)])
    assert first.get_color() != second.get_color()
    band = axes.collections[0].get_paths()[0].vertices
    at_2 = band[band[:, 0] == 2][:, 1]
    np.testing.assert_allclose([at_2.min(), at_2.max()], [40, 50])  # 45 ± 10 / 2
    at_10 = band[band[:, 0] == 10][:, 1]
    assert not at_10.size, "of the one average of all there is no deviation to draw, and 0 is none"
    assert band[:, 0].max() == 9
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylabel() == "test error (%)"
    said = words(figure)
    for part in ("digits", "round 20", "round 60", "up to 20 subsets", "weights by samples", "±1 standard deviation"):
        assert part in said, said
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_lines_are_told_apart_by_run_round_or_both() -> None:
    said = words(result(falling("a", 1), falling("b", 1)).figure())
    assert "a b" in said
    assert "round 1:" in said
    both = result(*(falling(run, t) for run in ("a", "b") for t in (1, 9))).figure()
    for name in ("a@1", "a@9", "b@1", "b@9"):
        assert name in words(both)
    lines = both.axes[0].lines
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert lines[0].get_linestyle() == lines[2].get_linestyle() != lines[1].get_linestyle()
    # runs of one history have the same line: the marker is the run's, and shows the one below
    assert lines[0].get_marker() == lines[1].get_marker() != lines[2].get_marker()
    assert {line.get_markerfacecolor() for line in lines} == {"none"}
    assert lines[0].get_markersize() > lines[2].get_markersize()
    twelve = result(*(falling(run, t) for run in ("a", "b") for t in range(1, 7))).figure()
    said = [text.get_text() for text in twelve.texts]
    assert said[:8] == ["a", "b", *(f"round {t}" for t in range(1, 7))], "colours by run, dashes by round"
    own = [line for line in twelve.axes[0].lines if line.get_color() == twelve.axes[0].lines[0].get_color()]
    assert len({(str(line._dash_pattern), line.get_linestyle()) for line in own}) == 6, "each round has its own"
    many = result(*(falling(round_=t) for t in range(1, 31))).figure()
    assert not many.axes[0].collections
    assert "standard deviation" not in words(many)
    assert len({line.get_color() for line in many.axes[0].lines}) == 30


def test_runs_whose_labels_are_cut_to_the_same_are_all_in_the_legend() -> None:
    runs = [f"cifar-ima-start-5-{middle}-lr-0.05-of-2026" for middle in ("warm", "cold")]
    for rounds in ((1,), range(1, 7)):
        figure = result(*(falling(run, t) for run in runs for t in rounds)).figure()
        shown = [text.get_text() for text in figure.texts]
        assert len({*shown[:2]}) == 1
        assert [text.startswith("cifar") for text in shown[:3]] == [True, True, False]


def test_clients_data_are_looked_through_once_however_many_they_are() -> None:
    looked = 0

    class Rounds(tuple[RoundSubsets, ...]):
        def __iter__(self) -> Any:
            nonlocal looked
            looked += 1
            return super().__iter__()

    counts = []
    for clients in (3, 40):
        places = [replace(falling("a", t), place=f"client-{k}") for t in (1, 2) for k in range(clients)]
        made = replace(result(*places), rounds=Rounds(places))
        one = places[clients + 1]
        assert made.on_clients(one) == places[clients:]
        looked = 0
        assert made.summary().count("a, round ") == 2
        counts.append(looked)
    assert counts[0] == counts[1] < 5


def test_a_share_that_no_average_can_have_is_told_with_the_client_s_id(tmp_path: Path) -> None:
    clients = case()[2]
    ids = np.array([3, 8, 11, 20, 21])
    record = RoundRecord(1, clients.row(0), clients, clients.row(0), None, *[ids] * 4, np.array([0.5, 0.5, 0, 0, 0]))
    write_round(tmp_path / "00001.h5", record)
    round_ = Round(tmp_path / "00001.h5", clients.layout, "runs/toy")
    said = (
        "client 11 of the cohort has the share 0 in its averages, so a subset of it alone has none; weigh the round's "
        "clients equally (--weights uniform)"
    )
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}$"):
        shares_of(round_, "recorded")
    assert shares_of(round_, "uniform").tolist() == [1] * 5


@pytest.mark.parametrize("own", [{}, {"weights": {0: 10, 1: 20, 2: 270}}, {"weights": {0: 1, 1: 1, 2: 1}}])
def test_weights_are_called_recorded_where_another_program_weighed_otherwise(own: Any, tmp_path: Path) -> None:
    """In the table, the result and the figure; where they are as the samples, they are called samples."""
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    net, data = torch.nn.Linear(4, 3), (x, np.arange(30) % 3)
    models = {k: {name: value + k for name, value in net.state_dict().items()} for k in range(3)}
    samples = {0: 10, 1: 20, 2: 270}
    share = np.array(list({**samples, **own.get("weights", {})}.values()), float)
    share /= share.sum()
    mean = {name: sum(float(p) * models[k][name] for k, p in enumerate(share)) for name in models[0]}
    with fedscope.Recorder(tmp_path / "run", data=(data, data), model=net) as recorder:
        recorder.round(start=net.state_dict(), clients=models, samples=samples, global_=mean, **own)
    word = "recorded" if own.get("weights", {}).get(0) == 1 else "samples"
    made = fedscope.subsets(tmp_path / "run", model=net)
    assert made.weights == word
    made.save(tmp_path / "s")
    table = csv.DictReader((tmp_path / "s.subsets.csv").read_text(encoding="utf-8").splitlines())
    assert {row["weights"] for row in table} == {word}
    assert Subsets.load(tmp_path / "s") == made
    uniform = fedscope.subsets(tmp_path / "run", model=net, weights="uniform")
    assert uniform.weights == "uniform"
    if word == "recorded":  # the numbers were those of the recorded weights
        assert made.rounds[0].sizes[-1].loss_mean == uniform.rounds[0].sizes[-1].loss_mean
    shown = words(made.figure()).replace("\n", " ")
    assert ("recorded weights" if word == "recorded" else "weights by samples") in shown


def test_a_table_says_of_each_round_how_it_was_weighed(tmp_path: Path) -> None:
    mixed = result(falling(), replace(falling("mine"), weights="recorded"))
    mixed.save(tmp_path / "m")
    table = csv.DictReader((tmp_path / "m.subsets.csv").read_text(encoding="utf-8").splitlines())
    assert {(row["run"], row["weights"]) for row in table} == {("ima", "samples"), ("mine", "recorded")}
    assert Subsets.load(tmp_path / "m") == mixed
    assert "weights by samples or recorded weights" in words(mixed.figure()).replace("\n", " ")


def test_the_smallest_results_can_be_drawn_and_none_cannot(tmp_path) -> None:
    only = SizeRow(1, 1, True, 0.5, None, None, 1.0, None, None, 0.5, 0.5)
    sampled = SizeRow(2, 1, False, 0.5, None, None, 1.0, None, None, 0.5, 0.5)
    for one in (RoundSubsets("a", 1, 1, (only,)), RoundSubsets("a", 1, 3, (only, sampled))):
        figure = result(one).figure(2.0)
        assert "deviation" not in words(figure)
        save_figure(figure, tmp_path / "one", ("png",))
    with pytest.raises(FedscopeError, match="no round to draw"):
        Subsets((), "samples").figure()


def test_the_loss_on_all_that_members_hold_of_a_recorded_run(tmp_path: Path) -> None:
    """A loop that weighs by samples is taken as one, whatever the criterion counts."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    parts = [np.arange(30), np.arange(30, 50), np.arange(50, 60)]
    nets, counts = [torch.nn.Linear(4, 3) for _ in parts], [30, 20, 10]
    with fedscope.Recorder(tmp_path / "run", data=((x, y), (x[:6], y[:6])), partition=parts) as recorder:
        recorder.round(clients=nets, samples=counts)
    criterion = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))
    with warnings.catch_warnings(action="ignore", category=FedscopeWarning):
        found = fedscope.subsets(tmp_path / "run", data_of="own", model=torch.nn.Linear(4, 3), task=criterion)
    mean = torch.nn.Linear(4, 3)
    with torch.no_grad():
        for name, value in mean.named_parameters():
            value.copy_(sum(n * net.get_parameter(name) for n, net in zip(counts, nets, strict=True)) / 60)
        expected = float(criterion(mean(torch.from_numpy(x)), torch.from_numpy(y)))
    assert found.rounds[0].sizes[-1].loss_mean == pytest.approx(expected, rel=1e-5)  # in float32


def test_the_sentence_says_what_its_errors_are() -> None:
    rows = (
        SizeRow(1, 3, False, 0.5, 0.1, 0.05, 1.0, 0.1, 0.05, 0.4, 0.6),
        SizeRow(4, 1, True, 0.2, None, None, 0.5, None, None, 0.2, 0.2),
    )
    said = RoundSubsets("ima", 1, 4, rows).summary("test")
    assert "a single client 50 ± 5 %, of the average of all 4 20 %; " in said
    assert said.endswith("; ± one standard error over subsets")
    exact = tuple(replace(row, error_stderr=None, loss_stderr=None) for row in rows)
    assert "±" not in RoundSubsets("ima", 1, 4, exact).summary("test")


def test_negative_losses_are_within_the_panel() -> None:
    """As those of a task of one's own; errors and other losses begin at 0."""
    rows = tuple(replace(row, error_mean=nan, error_std=None, loss_mean=row.loss_mean - 3) for row in falling().sizes)
    figure = result(replace(falling(), sizes=rows)).figure()
    assert_inside(figure, 3.5)
    low, high = figure.axes[0].get_ylim()
    assert low < min(row.loss_mean for row in rows) < max(row.loss_mean for row in rows) < high
    assert result().figure().axes[0].get_ylim()[0] == 0
