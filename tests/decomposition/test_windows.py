"""Means over windows of recorded globals: those of runs that were trained with each window, bit for bit."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from legible import assert_apart, assert_inside

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, RoundRecord, Run, RunWriter, Weights, stack
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.decomposition.windows import sliding_mean as sliding
from fedscope.decomposition.windows.decayed_steps import decayed_steps
from fedscope.decomposition.windows.result import Decayed, RoundMeans, WindowMean, WindowMeans, said_of_steps
from fedscope.decomposition.windows.sliding_mean import SlidingMeans, refuse_missing
from fedscope.training import Config, branch, merge, preset, train
from fedscope.training.loop.state import RunMemory
from fedscope.training.methods.averages.wima import WIMA
from fedscope.training.methods.base import History
from fedscope.training.models.model_info import ModelInfo

pytestmark = pytest.mark.usefixtures("few_digits")

LAYOUT = Layout(
    (
        TensorEntry("body.weight", (3, 2), "float32", "parameter"),
        TensorEntry("norm.running_mean", (2,), "float32", "buffer"),
        TensorEntry("norm.num_batches_tracked", (), "int64", "buffer"),
        TensorEntry("head.weight", (2, 3), "float32", "parameter"),
    )
)
SMALL: dict[str, Any] = {
    "data": {"clients": 6},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 9, "participation": 0.5, "evaluate_clients": 0},
    "record": {"clients": "none"},
}
WINDOWS = (2, 4, 7)


def row(t: int) -> Weights:
    random = np.random.default_rng(t)
    buffers = {"norm.running_mean": random.normal(size=2).astype(np.float32), "norm.num_batches_tracked": np.array(t)}
    return Weights(LAYOUT, random.normal(size=LAYOUT.size).astype(np.float32), buffers)


def recorded_rows(path: Path, rounds: int, without: Sequence[int] = ()) -> Run:
    """A run whose ``global`` of round t is ``row(t)``, or was not recorded."""
    ids, p = np.arange(2), np.array([0.5, 0.5])
    with RunWriter.create(path, {"layout": LAYOUT.to_json(), "source": "mine"}, None, None) as writer:
        for t in range(1, rounds + 1):
            clients, global_ = stack([row(t), row(t)]), None if t in without else row(t)
            writer.write(RoundRecord(t, row(t), clients, global_, None, ids, ids + 1, ids, p, p))
    return Run.open(path)


def sliding_of(run: Run, rounds: Sequence[int], windows: Sequence[int] = WINDOWS, parts: Any = "all") -> SlidingMeans:
    return SlidingMeans(
        run, [WIMA(window=window, parts=parts) for window in windows], ModelInfo(LAYOUT, head="head"), rounds
    )


def assert_same(one: Weights, other: Weights) -> None:
    ours, theirs = one.arrays(), other.arrays()
    assert [name for name in ours if ours[name].tobytes() != theirs[name].tobytes()] == []


@pytest.mark.parametrize("parts", ["all", "features", "classifier"])
def test_they_are_those_of_runs_trained_with_each_window_bit_for_bit(tmp_path: Path, parts: str) -> None:
    """Models, losses and errors: WIMA leaves training alone."""
    train(Config.read(merge(preset("fma"), SMALL)), tmp_path / "fma")
    made = fedscope.wima(tmp_path / "fma", windows=WINDOWS, rounds="all", parts=parts)
    assert [one.round for one in made.rounds] == list(range(1, 10))
    for i, window in enumerate(WINDOWS):
        if parts != "all" and window != WINDOWS[1]:  # which layers, not how many rounds
            continue
        average = {"method": "wima", "window": window, "parts": parts}
        trained = train(Config.read(merge(preset("fma"), SMALL, {"average": average})), tmp_path / f"wima-{window}")
        metrics = trained.metrics()
        for t, one in enumerate(made.rounds):
            assert one.rows[1 + i].window == window
            assert one.rows[1 + i].globals == min(window, t + 1)
            assert one.rows[1 + i].error == metrics["averaged_test_error"][t]
            assert one.rows[1 + i].loss == metrics["averaged_test_loss"][t]
            assert (one.rows[0].loss, one.rows[0].error) == (metrics["test_loss"][t], metrics["test_error"][t])
        if parts == "all":
            means = sliding_of(Run.open(tmp_path / "fma"), range(1, 10), [window])
            for t in trained.rounds:
                assert_same(means.at(t)[1], trained.round(t).read("averaged"))


@pytest.mark.parametrize("held", [2**28, 1, 150])
def test_buffers_and_any_rounds_are_wimas_however_little_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    run = recorded_rows(tmp_path / "run", 15)
    monkeypatch.setattr(sliding, "HELD", held)
    asked = [1, 3, 4, 11, 15]
    means = sliding_of(run, asked)
    for t in asked:
        found = means.at(t)
        assert_same(found[0], row(t))
        for window, model in zip(WINDOWS, found[1:], strict=True):
            state: Any = {}
            for s in range(1, t + 1):
                averaged = WIMA(window=window).average(state, s, row(s), History(row, ModelInfo(LAYOUT)))
                state = averaged.state
            assert averaged.weights is not None
            assert_same(model, averaged.weights)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("without", [(), (1,)])
def test_a_window_of_finite_models_is_finite_whatever_came_before(tmp_path: Path, without: Sequence[int]) -> None:
    """Whether all globals are there, so that sums move from round 1 on, or not."""
    ids, p = np.arange(2), np.array([0.5, 0.5])
    with RunWriter.create(tmp_path / "run", {"layout": LAYOUT.to_json(), "source": "mine"}, None, None) as writer:
        for t in range(1, 13):
            end = row(t)
            if t == 4:
                end.parameters[1] = np.inf
            shown = None if t in without else end
            writer.write(RoundRecord(t, row(t), stack([row(t), row(t)]), shown, None, ids, ids + 1, ids, p, p))
    means = sliding_of(Run.open(tmp_path / "run"), range(8, 13), (2, 5))
    for t in range(8, 13):
        for window, found in zip((2, 5), means.at(t)[1:], strict=True):
            held = range(t - window + 1, t + 1)
            assert np.isfinite(found.parameters).all() == (4 not in held)
            if 4 not in held:
                mean = np.mean([row(s).parameters.astype(np.float64) for s in held], axis=0)
                np.testing.assert_allclose(found.parameters, mean, rtol=1e-6, atol=1e-7)


@pytest.mark.same_elsewhere
def test_a_window_that_holds_a_model_that_diverged_says_so() -> None:
    def one(t: int, *losses: float) -> RoundMeans:
        rows = (WindowMean(w, w, x, 0.25 if math.isfinite(x) else 1.0) for w, x in zip((1, 2, 5), losses, strict=True))
        return RoundMeans("fma", t, tuple(rows))

    whole = WindowMeans((one(8, 0.5, 0.5, 0.5), one(9, 0.5, 0.5, 0.5)))
    assert "not finite" not in whole.summary()
    some = WindowMeans((one(8, 0.5, math.nan, math.nan), one(9, 0.5, 0.5, math.inf)))
    assert some.summary().endswith(
        "; the loss is not finite in 1 of 2 rounds (W = 2), in 2 of 2 rounds (W = 5), where a model of the window or "
        "their mean has diverged"
    )


@pytest.mark.parametrize("asked", [[15], [9, 10, 15], [12, 13, 14, 15], [9, 15]])
def test_where_early_globals_are_missing_they_are_the_means_of_the_windows(
    tmp_path: Path, asked: list[int], close: Any
) -> None:
    run = recorded_rows(tmp_path / "run", 15, without=(1, 2))
    refuse_missing(run, asked, 7)
    means = sliding_of(run, asked)
    for t in asked:
        for window, model in zip(WINDOWS, means.at(t)[1:], strict=True):
            rows = [row(s) for s in range(t - window + 1, t + 1)]
            expected = np.mean([one.parameters.astype(np.float64) for one in rows], axis=0)
            close(model.parameters, expected, 1e-7)
            running = np.mean([one.buffers["norm.running_mean"].astype(np.float64) for one in rows], axis=0)
            close(model.buffers["norm.running_mean"], running, 1e-7)
            assert model.buffers["norm.num_batches_tracked"] == t


def test_every_global_is_read_once_and_those_before_the_windows_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded_rows(tmp_path / "run", 15, without=(1,))
    means, read, real = sliding_of(run, [10, 12, 15], [3]), [], means_row
    monkeypatch.setattr(RunMemory, "row", lambda self, t: read.append(t) or real(self, t))
    told: list[int] = []
    for t in (10, 12, 15):
        means.at(t, told.append)
    assert read == [8, 9, 10, 11, 12, 13, 14, 15]
    assert told == [1, 2, 3, 1, 2, 1, 2, 3]


means_row: Callable[..., Weights] = RunMemory.row


@pytest.mark.parametrize(
    ("without", "rounds", "windows", "sentence"),
    [
        ([4], [9], (7,), r"of round 4, which the mean of the last 7 in round 9 needs; give rounds=9 and windows "
         r"up to 5, or give global_= in every round of the loop$"),
        ([2], [5, 8, 9], (4,), r"of round 2, which the mean of the last 4 in round 5 needs; give rounds from 6 on"),
        ([2, 4, 6, 8], [9], (2,), r"of round 8, which the mean of the last 2 in round 9 needs; give global_= in every"),
        ([5], [5], (2,), r"of round 5, which the mean of the last 2 in round 5 needs; give rounds='2,3,4,7,8,9'"),
        # the last round of a loop may lack it
        ([9], [9], (2,), r"of round 9, which the mean of the last 2 in round 9 needs; give rounds='3,4,5,6,7,8', or"),
        ([4, 9], [9], (5,), r"of round 9, which .* in round 9 needs; give rounds=8 and windows up to 4, or give"),
    ],
)  # fmt: skip
def test_globals_that_were_not_recorded_are_refused_with_what_can_be_asked(
    tmp_path: Path, without: list[int], rounds: list[int], windows: tuple[int, ...], sentence: str
) -> None:
    recorded_rows(tmp_path / "run", 9, without)
    with pytest.raises(FedscopeError, match=rf"run does not hold the global model {sentence}"):
        fedscope.wima(tmp_path / "run", windows=windows, rounds=rounds)


def test_a_window_beyond_the_run_is_said(tmp_path: Path) -> None:
    run = train(Config.read(merge(preset("fma"), SMALL, {"run": {"rounds": 3}})), tmp_path / "run")
    long = fedscope.wima(run, windows=9, rounds=3)
    assert long.rounds[0].rows[1].globals == 3
    assert (
        long.summary().splitlines()[0].endswith("; up to round 3 there are 3 globals: a longer window is all of them")
    )
    assert "such a window" not in fedscope.wima(run, windows=3, rounds=3).summary()
    some = fedscope.wima(run, windows=3, rounds=[1, 3]).summary()
    assert "; in 1 of 2 rounds there are fewer than 3 globals: such a window is all of them" in some


def test_what_is_no_window_or_cannot_be_had_in_parts_is_refused(tmp_path: Path) -> None:
    run = recorded_rows(tmp_path / "run", 3)
    for windows, sentence in (
        ("5,x", r"windows='5,x': 'x' is not a number; write 5,10,50"),
        ([1], r"windows=1: a window of 1 averages nothing, and global, W = 1, is always there; give numbers from 2"),
    ):
        with pytest.raises(FedscopeError, match=sentence):
            fedscope.wima(run, windows=windows)
    with pytest.raises(FedscopeError, match=r"parts='head' is none of all, features, classifier"):
        fedscope.wima(run, parts="head")
    with pytest.raises(FedscopeError, match=r"has no config\.toml, which this needs: the run was recorded by mine"):
        fedscope.wima(run, parts="features")
    with pytest.raises(
        FedscopeError, match=r"rounds='last:x': 'last:x' is not a round; write whole numbers, last, a ra"
    ):
        fedscope.wima(run, rounds="last:x")
    frozen = merge(preset("fedbabu"), SMALL, {"run": {"rounds": 2}})
    train(Config.read(frozen), tmp_path / "frozen")
    with pytest.raises(FedscopeError, match=r"average\.parts = 'classifier' averages the head, which .* fedbabu keeps"):
        fedscope.wima(tmp_path / "frozen", parts="classifier", windows=[2])


def test_runs_whose_average_changes_training_are_named(tmp_path: Path) -> None:
    made = merge(preset("ima"), SMALL, {"average": {"start": 4, "window": 3}})
    run = train(Config.read(made), tmp_path / "ima")
    found = fedscope.wima(run, windows=[3])
    assert found.attrs["averages"] == {"ima": "ima"}
    assert "; it was trained with ima, which changes the globals" in found.summary().splitlines()[0]
    # but up to where it starts, they are FMA's: a branch of them with WIMA has the same means
    other = branch(run, 3, {"average": {"method": "wima", "window": 3}}, tmp_path / "other")
    before = fedscope.wima(run, windows=[3], rounds=3)
    assert before.attrs["averages"] == {"ima": "none"}, "these globals are FMA's"
    assert "changes the globals" not in before.summary()
    early = before.rounds[0].rows[1]
    late = fedscope.wima(other, windows=[3], rounds="3,last")
    assert late.rounds[0].rows[1] == early
    assert late.rounds[1].rows[1].error == other.round("last").metrics["averaged_test_error"]
    assert "changes the globals" not in late.summary()


@pytest.mark.parametrize(("low", "said"), [(0.01, True), (1.0, False)])
def test_runs_whose_clients_rates_follow_cycles_are_named(tmp_path: Path, low: float, said: bool) -> None:
    """SWA's average is for evaluation only, but its cycles lower the clients' rates from round s on."""
    made = merge(preset("fma"), SMALL, {"average": {"method": "swa", "start": 3, "cycle": 2, "low": low}})
    run = train(Config.read(made), tmp_path / "swa")
    found = fedscope.wima(run, windows=[2], rounds="3,last")
    words = (
        "; its clients' learning rates follow SWA's cycles from round 3 on, so its globals are not those of a run with "
        "WIMA"
    )
    assert found.summary().splitlines()[0].endswith(words) is said
    assert ("SWA" in found.summary()) is said
    plain = train(Config.read(merge(preset("fma"), SMALL)), tmp_path / "fma")
    same = run.round("last").read("global").parameters == plain.round("last").read("global").parameters
    assert bool(same.all()) is not said, "the globals are FMA's where nothing is said"
    assert "SWA" not in fedscope.wima(run, windows=[2], rounds=2).summary(), "these globals are FMA's"
    found.save(tmp_path / "kept")
    for result in (WindowMeans.load(tmp_path / "kept"), found.renamed({"swa": "ours"})):
        assert result.summary().replace("ours", "swa") == found.summary()
    assert ("SWA" in fedscope.wima([plain, run], windows=[2], rounds=[3, 3]).summary().splitlines()[0]) is False


def test_means_of_equal_numbers_have_no_deviation() -> None:
    """0.88 ten times has a mean that is off by an ulp."""
    rounds = tuple(
        RoundMeans("fma", t, (WindowMean(1, 1, 0.3, 0.88), WindowMean(2, 2, 0.3, t / 99))) for t in range(10)
    )
    (line,) = WindowMeans(rounds).lines()
    assert np.std([0.88] * 10, ddof=1) > 0, "the case is one of rounding"
    np.testing.assert_array_equal(line.std, [0, np.std(np.arange(10) / 99, ddof=1)])
    assert "88 ± 0 % (W = 1)" in WindowMeans(rounds).summary()


# --- as steps with a decaying rate ---


def starting_elsewhere(path: Path, rounds: int, moved: Sequence[int] = (), without: Sequence[int] = ()) -> Run:
    """A run whose ``global`` of round t is ``row(t)`` and whose rounds start from the one before; but ``moved`` ones,
    and those ``without`` whose start was not recorded."""
    ids, p = np.arange(2), np.array([0.5, 0.5])
    with RunWriter.create(path, {"layout": LAYOUT.to_json(), "source": "mine"}, None, None) as writer:
        for t in range(1, rounds + 1):
            start = None if t in without else row(100 + t if t in moved else t - 1)
            writer.write(RoundRecord(t, start, None, row(t), None, ids, ids + 1, ids, p, p))
    return Run.open(path)


def steps_of(run: Run, round: int, parts: Any = "all") -> tuple[Decayed, ...]:
    means = sliding_of(run, [round], parts=parts)
    return decayed_steps(run, round, WINDOWS, means.at(round)[1:], means.averaged)


@pytest.mark.parametrize("parts", ["all", "features", "classifier"])
def test_the_mean_of_a_window_is_the_servers_steps_at_a_decaying_rate(tmp_path: Path, parts: str) -> None:
    found = steps_of(starting_elsewhere(tmp_path / "run", 9), 9, parts)
    assert [(one.window, one.first, one.holds, one.starts, one.elsewhere) for one in found] == [
        (window, 10 - window, True, True, 0) for window in WINDOWS
    ]
    # one rounding to float32, of which half a bit is 6e-8
    assert all(one.difference is not None and 0 < one.difference < 7e-8 for one in found)


def test_a_round_that_starts_elsewhere_is_off_by_what_it_moved(tmp_path: Path) -> None:
    """Its start less the global before, times the share of the window that comes from it on, is what is missing."""
    found = steps_of(starting_elsewhere(tmp_path / "run", 9, moved=(5, 7)), 9)
    gaps = {t: row(100 + t).parameters.astype(np.float64) - row(t - 1).parameters for t in (5, 7)}
    for one, inside in zip(found, ((), (7,), (5, 7)), strict=True):
        mean = np.mean([row(t).parameters.astype(np.float64) for t in range(one.first, 10)], axis=0)
        missing = sum((10 - t) / one.window * gaps[t] for t in inside) if inside else np.zeros(1)
        assert one.difference == pytest.approx(np.linalg.norm(missing) / np.linalg.norm(mean), rel=1e-6, abs=1e-7)
        assert (one.holds, one.elsewhere) == (not inside, len(inside))


def test_a_window_longer_than_the_run_and_starts_that_were_not_recorded(tmp_path: Path) -> None:
    early = steps_of(starting_elsewhere(tmp_path / "early", 3), 3)
    assert [(one.first, one.holds) for one in early] == [(2, True), (1, True), (1, True)]
    within = steps_of(starting_elsewhere(tmp_path / "within", 9, without=(8,)), 9)
    assert [(one.holds, one.starts) for one in within] == [(True, False)] * 3
    none = steps_of(starting_elsewhere(tmp_path / "none", 4, without=(1, 2, 3, 4)), 4)
    assert [one.difference is None for one in none] == [False, True, True], "nothing is from before round 1"
    words = said_of_steps(none)
    assert words.endswith(
        " (W = 2); starts that were not recorded are taken to be the global before (W = 2); not checked, for no model "
        "from before the window was recorded (W = 4, 7)"
    )


@pytest.mark.parametrize(
    ("method", "elsewhere"),
    [("fma", False), ("fedadam", False), ("fedavgm", False), ("scaffold", False), ("fedacg", True), ("ima", True)],
)
def test_it_holds_for_every_server_whose_rounds_start_from_the_global(
    tmp_path: Path, method: str, elsewhere: bool
) -> None:
    average = {"average": {"start": 3}} if method == "ima" else {}
    run = train(Config.read(merge(preset(method), SMALL, average)), tmp_path / method)
    made = fedscope.wima(run, windows=WINDOWS, rounds="8,9")
    assert made.rounds[0].decayed == ()
    found = made.rounds[1].decayed
    assert [one.window for one in found] == list(WINDOWS)
    assert {one.holds for one in found} == {not elsewhere}
    assert all(one.starts for one in found)
    if not elsewhere:
        assert all(one.difference is not None and one.difference < 1e-7 for one in found)
    line = made.summary().splitlines()[1]
    assert line.startswith(
        f"{method}@9, the mean of a window as the server's steps with a rate that falls from 1 to 1/W"
    )
    assert line.endswith("not start from the global before" if elsewhere else "(W = 2, 4, 7)")
    made.save(tmp_path / "w")
    assert WindowMeans.load(tmp_path / "w") == made
    head = json.loads((tmp_path / "w.wima.json").read_text())
    del head["decayed"]  # as an older fedscope left it
    (tmp_path / "w.wima.json").write_text(json.dumps(head))
    assert WindowMeans.load(tmp_path / "w").summary().count("\n") == 0


def test_the_words_on_steps_are_of_what_was_seen() -> None:
    said = said_of_steps(
        [Decayed(2, 8, 3e-8, True, True), Decayed(4, 6, 0.5, False, True, 1), Decayed(7, 3, math.nan, False, True)]
    )
    assert said.endswith(
        ": the same to 3e-08 (W = 2); not the same, off by 0.5 (W = 4): 1 round does not start from the global before; "
        "not finite (W = 7)"
    )


# --- the result ---


def made(run: str = "fma", rounds: Sequence[int] = (8, 9, 10), low: float = 0.2) -> tuple[RoundMeans, ...]:
    """Errors that fall to W = 10 and rise again, with a scatter over rounds that the window takes away."""
    errors = {1: 0.1, 5: 0.02, 10: 0.0, 50: 0.04}
    return tuple(
        RoundMeans(
            run,
            t,
            tuple(WindowMean(w, min(w, t), 2 * (low + e), low + e + (t - 9) * 0.02 / w) for w, e in errors.items()),
        )
        for t in rounds
    )


ATTRS = {"data": "digits", "split": "test", "samples": 360}


def test_the_table_and_the_sentence_say_what_was_measured(tmp_path: Path) -> None:
    found = WindowMeans(made(), "features", ATTRS)
    table, main = found.save(tmp_path / "w.1")
    assert (table.name, main.name) == ("w.1.wima.csv", "w.1.wima.json")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == ["run", "round", "parts", "window", "globals", "loss", "error"]
    assert [row["window"] for row in rows] == ["1", "5", "10", "50"] * 3
    assert [row["globals"] for row in rows[:4]] == ["1", "5", "8", "8"]
    assert {(row["run"], row["parts"]) for row in rows} == {("fma", "features")}
    assert WindowMeans.load(tmp_path / "w.1") == found
    assert found.summary() == (
        "fma, mean ± deviation over 3 rounds from 8 to 10: test error of the mean of the last W globals (features "
        "averaged) 30 ± 2 % (W = 1), 22 ± 0.4 % (W = 5), 20 ± 0.2 % (W = 10), 24 ± 0.04 % (W = 50); least for W = 10; "
        "up to round 10 there are 10 globals: a longer window is all of them"
    )
    means = found.numbers()["means"]
    assert [(one["window"], one["rounds"]) for one in means] == [(1, 3), (5, 3), (10, 3), (50, 3)]
    errors = [one.rows[1].error for one in found.rounds]
    assert means[1]["error_mean"] == pytest.approx(np.mean(errors))
    assert means[1]["error_std"] == pytest.approx(np.std(errors, ddof=1))
    alone = WindowMeans(made(rounds=[9]), "all", ATTRS)
    assert alone.summary().startswith("fma, round 9: test error of the mean of the last W globals 30 % (W = 1), 22 % (")
    assert json.loads(json.dumps(alone.numbers()))["means"][0]["error_std"] is None


def test_a_task_without_an_error_is_told_by_its_loss() -> None:
    rounds = tuple(
        RoundMeans(one.run, one.round, tuple(WindowMean(r.window, r.globals, r.loss, math.nan) for r in one.rows))
        for one in made()
    )
    found = WindowMeans(rounds, "all", ATTRS)
    assert "test loss of the mean of the last W globals 0.6 ± 0 (W = 1), 0.44" in found.summary()
    assert found.figure().axes[0].get_ylabel() == "test loss"


def test_the_figure_draws_the_numbers() -> None:
    figure = WindowMeans(made(), "all", ATTRS).figure()
    above, below = figure.axes
    (line,) = [one for one in above.lines if not str(one.get_label()).startswith("_tie")]
    np.testing.assert_array_equal(line.get_xdata(), [1, 5, 10, 50])
    np.testing.assert_allclose(line.get_ydata(), [30, 22, 20, 24])
    (band,) = above.collections
    at_1 = band.get_paths()[0].vertices
    np.testing.assert_allclose(sorted(set(at_1[at_1[:, 0] == 1][:, 1].round(9))), [28, 32])
    assert above.get_xscale() == "log"
    lines = {str(one.get_label()): one for one in below.lines}
    np.testing.assert_allclose(lines["W = 5"].get_ydata(), [21.6, 22, 22.4])
    np.testing.assert_array_equal(lines["global"].get_xdata(), [8, 9, 10])
    several = WindowMeans((*made(), *made("scaffold", low=0.1)), "all", ATTRS).figure()
    (panel,) = several.axes
    lines = {str(one.get_label()): one for one in panel.lines}
    assert lines["fma"].get_marker() != lines["scaffold"].get_marker()
    assert lines["fma"].get_linestyle() != lines["scaffold"].get_linestyle()
    (alone,) = WindowMeans(made(rounds=[9]), "all", ATTRS).figure().axes
    assert not alone.collections
    with pytest.raises(FedscopeError, match="no round to draw"):
        WindowMeans(()).figure()


@pytest.mark.parametrize("width", [2.0, 3.5, 7.0])
@pytest.mark.parametrize("shown", [1, 2])
def test_words_of_a_figure_neither_touch_nor_are_cut(width: float, shown: int) -> None:
    rounds = (*made(), *made("a-method-with-a-long-name", low=0.1))[: 3 * shown]
    found = WindowMeans(rounds, "features", ATTRS)
    boxes = assert_inside(found.figure(width, "WIMA"), width)
    assert_apart([box for box in boxes if box[0]])


def test_windows_that_nearly_touch_share_their_numbers() -> None:
    one = RoundMeans("fma", 99, tuple(WindowMean(w, w, 0.5, 0.5) for w in range(1, 41)))
    figure = WindowMeans((one,), "all", ATTRS).figure(2.0)
    assert_apart(assert_inside(figure, 2.0))
    said = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert said[:2] == ["1", "2"]
    assert "" in said


@pytest.mark.parametrize(
    ("average", "attrs", "said"),
    [
        ("wima", {}, ""),
        ("ema:Ema", {}, "; it was trained with ema:Ema, which may change the"),
        ("swa", {"paces": {}}, ""),  # with a rate that no cycle lowers
        ("swa", {}, "; it was trained with swa, which may change the"),  # kept by an older fedscope, which did not look
    ],
)
def test_averages_that_are_for_evaluation_only_change_no_globals(
    average: str, attrs: dict[str, Any], said: str
) -> None:
    rows = (WindowMean(1, 1, 0.5, 0.25), WindowMean(2, 2, 0.4, 0.2))
    found = WindowMeans((RoundMeans("fma", 9, rows),), attrs={"averages": {"fma": average}, **attrs})
    assert ("it was trained" in found.summary()) is bool(said)
    assert said in found.summary()


def test_negative_losses_are_within_their_panels() -> None:
    rounds = tuple(
        RoundMeans(one.run, one.round, tuple(WindowMean(r.window, r.globals, r.loss - 9, math.nan) for r in one.rows))
        for one in made()
    )
    for axes in WindowMeans(rounds, "all", ATTRS).figure().axes:
        low, high = axes.get_ylim()
        assert low < -8.6 < -8.4 < high
        assert high < 0
