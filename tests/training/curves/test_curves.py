"""Curves: every column can be drawn, smoothing is the fit it says, what was not measured is said and not drawn."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash
from scipy.signal import savgol_filter

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, RoundRecord, Run, RunWriter
from fedscope.checkpoints.rounds.metrics import COLUMNS
from fedscope.training import MEASURES, Curve, Curves, measure_of
from fedscope.training.curves.measures import smooth
from fedscope.training.curves.summary import tails

pytestmark = pytest.mark.same_elsewhere

ROUNDS = 12


def curve(run: str = "ima", *, averaged: int | None = 8, columns: tuple[str, ...] = MEASURES) -> Curve:
    """A run with other numbers in every column; it averages from a round on."""
    draw = np.random.default_rng(len(run))
    rounds, values = np.arange(1, ROUNDS + 1), {}
    for name in columns:
        values[name] = draw.uniform(0.1, 0.9, ROUNDS)
        if name.startswith("averaged"):
            values[name][: ROUNDS if averaged is None else averaged - 1] = np.nan
    return Curve(run, rounds, values)


def lines(figure: object, panel: int = 0) -> list[np.ndarray]:
    return [line.get_xydata() for line in figure.axes[panel].lines]  # type: ignore[attr-defined]


def test_every_column_of_the_table_is_drawable() -> None:
    assert {*MEASURES, "round"} == set(COLUMNS)
    curves = Curves((curve(), curve("fma", averaged=8)), {})
    for name in MEASURES:
        figure = replace(curves, measures=(name,)).figure()
        share = 100 if "error" in name else 1
        shown = curves.runs[0].measured(measure_of(name))[1]
        np.testing.assert_allclose(lines(figure)[0][:, 1], share * shown)
        label = figure.axes[0].get_ylabel()
        assert label
        assert ("%" in label) == (share == 100)


def test_runs_that_were_tested_on_their_clients_own_data_alone_are_drawn_by_that() -> None:
    """As a federation of Flower without an evaluation on the server; what is asked for is never replaced."""
    own, both = (
        curve(columns=("client_test_error_mean",)),
        curve("fma", columns=("client_test_error_mean", "test_loss")),
    )
    curves = Curves((own,))
    assert [measure.name for measure in curves.drawable()] == ["client_test_error_mean"]
    assert curves.summary().startswith("own-test error, ")
    np.testing.assert_allclose(lines(curves.figure())[0][:, 1], 100 * own.values["client_test_error_mean"])
    assert [measure.name for measure in Curves((both,)).drawable()] == ["test_loss"]
    with pytest.raises(FedscopeError, match="ima has no numbers of test_error, only of client_test_error_mean"):
        Curves((own,), measures=("test_error",)).drawable()
    with pytest.raises(FedscopeError, match="ima has no numbers of test_loss or test_error"):
        Curves((both, own)).drawable()


def test_an_accuracy_ends_at_100() -> None:
    """Where a mean and its deviation are more."""
    one = curve()
    one.values["client_error_mean"][:], one.values["client_error_std"][:] = 0.1, 0.3
    low, high = Curves((one,), measures=("test_accuracy",)).figure().axes[0].get_ylim()
    assert low < high == 100


def test_an_accuracy_is_what_the_error_leaves() -> None:
    one = curve()
    (error, accuracy) = (
        lines(Curves((one,), measures=(name,)).figure())[0][:, 1] for name in ("test_error", "test_accuracy")
    )
    np.testing.assert_allclose(error + accuracy, 100)
    mean, deviation, count = one.tail("test_accuracy", 5)
    expected = 1 - one.deployed("test_error")[-5:]
    assert (mean, deviation, count) == pytest.approx((expected.mean(), expected.std(ddof=1), 5))
    # a deviation is the same of both
    np.testing.assert_array_equal(
        one.series(measure_of("client_accuracy_std")), one.series(measure_of("client_error_std"))
    )


def test_a_mean_over_clients_has_its_own_deviation_as_a_band() -> None:
    one = curve()
    axes = Curves((one,), measures=("client_test_accuracy_mean",)).figure().axes[0]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    mean, deviation = 1 - one.values["client_test_error_mean"], one.values["client_test_error_std"]
    for i in range(ROUNDS):
        here = corners[corners[:, 0] == i + 1, 1]
        assert (here.min(), here.max()) == pytest.approx((100 * (mean - deviation)[i], 100 * (mean + deviation)[i]))
    # and the clients' models on the common test set stand beside it
    np.testing.assert_allclose(axes.lines[1].get_ydata(), 100 * (1 - one.values["client_error_mean"]))


def test_what_has_a_panel_of_its_own_is_drawn_there_alone() -> None:
    """FedSA's Figure 5: training loss, accuracy, deviation over the clients; its dotted line is the local models."""
    names = ("all_client_test_accuracy_mean", "all_client_test_accuracy_std", "client_accuracy_mean")
    columns = (*MEASURES, *(measure_of(name).column for name in names[:2]))
    one = curve(averaged=None, columns=columns)
    for name in [name for name in one.values if name.startswith("averaged")]:
        one.values[name][:] = np.nan

    def drawn(*measures: str, runs: int = 1) -> list[tuple[int, int]]:
        """Lines and bands of each panel."""
        many = tuple(replace(one, run=f"run-{i}") for i in range(runs))
        figure = Curves(many, measures=measures).figure()
        return [(len(axes.lines), len(axes.collections)) for axes in figure.axes]

    assert drawn(names[0]) == [(2, 1)]  # with its band, and the local models dotted
    assert drawn(*names[:2]) == [(2, 0), (1, 0)]
    assert drawn(names[0], names[2]) == [(1, 1), (1, 1)]
    assert drawn(*names) == [(1, 0), (1, 0), (1, 1)]
    # bands of many runs would hide each other
    assert drawn(names[0], runs=4) == [(8, 4)]
    assert drawn(names[0], runs=5) == [(10, 0)]
    labels = [text.get_text() for text in Curves((one,), measures=names).figure().legends[0].get_texts()]
    assert labels == ["ima", "± 1 s.d."]
    many = Curves(tuple(replace(one, run=f"run-{i}") for i in range(5)), measures=("test_error",)).figure()
    assert [text.get_text() for text in many.legends[0].get_texts()][5:] == ["clients"]
    # nine methods are nine looks
    nine = Curves(tuple(replace(one, run=f"run-{i}") for i in range(9)), measures=names[1:2]).figure()
    assert len({(line.get_color(), str(line._dash_pattern)) for line in nine.axes[0].lines}) == 9  # type: ignore[attr-defined]


def test_the_legend_names_what_an_average_over_rounds_adds() -> None:
    def labels(*runs: Curve) -> list[str]:
        return [text.get_text() for text in Curves(runs, {}).figure().legends[0].get_texts()]

    assert labels(curve(), curve("fma", averaged=None)) == [
        *("ima", "fma", "average begins", "its global", "clients, ± 1 s.d."),
    ]
    assert labels(curve("fma", averaged=None)) == ["fma", "clients, ± 1 s.d."]
    # its global is drawn from the round before, where the two part
    one = curve()
    deployed, dot, behind = lines(Curves((one,), {}).figure())[:3]
    assert dot.tolist() == [[8, one.values["averaged_test_loss"][7]]]
    assert behind[:, 0].tolist() == [7, 8, 9, 10, 11, 12]
    np.testing.assert_array_equal(behind[:, 1], one.values["test_loss"][6:])
    # smoothed, they part as far before as the window reaches
    smoothed, _, behind = lines(Curves((one,), smooth=5).figure())[:3]
    np.testing.assert_allclose(smoothed[smoothed[:, 0] == behind[0, 0]], behind[:1])
    np.testing.assert_array_equal(deployed[6:8, 1], [one.values["test_loss"][6], one.values["averaged_test_loss"][7]])


def test_an_odd_window_is_the_filter_of_savitzky_and_golay() -> None:
    values = np.random.default_rng(0).normal(size=20)
    for window in (5, 7, 19):
        np.testing.assert_allclose(smooth(values, window), savgol_filter(values, window, 2), atol=1e-12)


@pytest.mark.parametrize("window", [6, 10, 20])
def test_an_even_window_is_the_fit_at_the_round(window: int) -> None:
    values = np.random.default_rng(1).normal(size=20)
    for i, value in enumerate(smooth(values, window)):
        first = min(max(i - window // 2, 0), len(values) - window)
        x = np.arange(first, first + window)
        assert value == pytest.approx(np.polyval(np.polyfit(x, values[x], 2), i), abs=1e-10)
    # scipy's own is half a round ahead, where the docstring says that ours is not
    straight = np.arange(20.0)
    np.testing.assert_allclose(smooth(straight, window), straight, atol=1e-10)
    if window < 20:
        assert savgol_filter(straight, window, 2)[10] == pytest.approx(10.5)


def test_smoothing_needs_as_many_measured_rounds() -> None:
    sparse = curve()
    for name in ("test_loss", "averaged_test_loss"):
        sparse.values[name][:] = np.nan
    sparse.values["test_loss"][::2] = 1.0  # 6 of 12 rounds
    curves = Curves((sparse,), measures=("test_loss",), smooth=6)
    assert curves.figure()
    with pytest.raises(FedscopeError, match=r"--smooth 7 does not fit ima, measured in 6 rounds; give a number from 5"):
        replace(curves, smooth=7).figure()
    short = replace(
        sparse,
        values={
            "test_loss": np.where(np.arange(ROUNDS) < 5, 1.0, np.nan),
            **{name: values for name, values in sparse.values.items() if name != "test_loss"},
        },
    )
    with pytest.raises(FedscopeError, match=r"--smooth 7 does not fit ima, measured in 5 rounds; give --smooth 5$"):
        replace(curves, runs=(short,), smooth=7).figure()


def test_the_tail_is_of_measured_rounds() -> None:
    one = curve(averaged=None)
    one.values["test_error"][:] = np.nan
    one.values["test_error"][[1, 4, 9]] = [0.5, 0.2, 0.4]
    assert one.tail(last=2) == pytest.approx((0.3, np.sqrt(0.02), 2))
    assert one.tail(last=100) == pytest.approx((1.1 / 3, np.std([0.5, 0.2, 0.4], ddof=1), 3))
    assert np.isnan(one.tail(last=1)[1])


@pytest.mark.parametrize(("rounds", "window"), [(1, 1), (12, 1), (19, 1), (20, 2), (60, 6), (100, 10), (400, 10)])
def test_by_default_the_tail_is_a_tenth_of_the_measured_rounds(rounds: int, window: int) -> None:
    # as a short run's: falling all the way, so that a mean over more rounds is another number
    values = np.linspace(0.9, 0.1, rounds) if rounds > 1 else np.array([0.1])
    measured = {"test_error": np.repeat(values, 2)}
    measured["test_error"][::2] = np.nan  # every second round is measured
    one = Curve("mine", np.arange(1, 2 * rounds + 1), measured)
    mean, deviation, count = one.tail()
    assert count == window
    assert mean == pytest.approx(values[-window:].mean())
    assert np.isnan(deviation) if window == 1 else deviation == pytest.approx(values[-window:].std(ddof=1))
    told = tails(measure_of("test_error"), [one], None)
    if window == 1:
        assert told == "test error of the deployed model, last measured round: mine 10.0 % (1 round)"
    else:
        assert told.startswith(
            "test error of the deployed model, mean ± deviation over the last measured rounds, a tenth of them, 10 at "
            "most: mine 1"
        )
        assert told.endswith(f" % ({window} rounds)")


def test_what_was_not_measured_is_said() -> None:
    empty = curve("other", columns=("test_loss", "test_error", "averaged_test_loss", "averaged_test_error"))
    for values in empty.values.values():
        values[:] = np.nan
    fma = curve("fma", averaged=None)
    with pytest.raises(FedscopeError, match=r"^other has no numbers of test_loss or test_error: nothing was measured"):
        Curves((fma, empty), {}).figure()
    with pytest.raises(
        FedscopeError, match=r"^fma has no numbers of averaged_test_loss, only of train_loss, test_loss,"
    ):
        Curves((curve(), fma), measures=("averaged_test_loss",)).figure()
    with pytest.raises(FedscopeError, match=r"^fma and FMA have no numbers of averaged_test_loss, only of train_loss,"):
        Curves((fma, curve("FMA", averaged=None)), measures=("averaged_test_loss", "lr")).figure()
    # what a loop calls as the accuracy of an error is no number of it, and is not offered again
    own = replace(fma, values={"top5": np.ones(ROUNDS), "test_accuracy": np.ones(ROUNDS)})
    with pytest.raises(FedscopeError, match=r"test_error \(its own test_accuracy is another column, which no question"):
        Curves((own,), measures=("test_accuracy",)).figure()
    with pytest.raises(FedscopeError, match=r"record test_error, 1 less the accuracy\), only of top5; ask for one"):
        Curves((own,), measures=("test_accuracy",)).figure()
    # where nothing was asked, half is drawn
    losses = replace(fma, values={**fma.values, "test_error": np.full(ROUNDS, np.nan)})
    assert [axes.get_ylabel() for axes in Curves((losses,), {}).figure().axes] == ["test loss (nats), log"]


@pytest.mark.parametrize(("task", "unit"), [("regression", ""), ("sequences", " (nats)"), (None, " (nats)")])
def test_the_unit_of_a_loss_is_that_of_the_runs_task(tmp_path: Path, task: str | None, unit: str) -> None:
    with RunWriter.create(tmp_path / "ima", {"layout": []}, {"model": {"task": task}}, None) as writer:
        empty = np.zeros(0)
        writer.write(RoundRecord(1, None, None, None, None, *[empty] * 5, metrics={"test_loss": 0.5}))
    curves = Curves.of([Run.open(tmp_path / "ima")], measures=("test_loss",))
    assert curves.figure().axes[0].get_ylabel() == f"test loss{unit}, log"


def test_curves_come_back_and_a_foreign_file_is_none(tmp_path: Path) -> None:
    saved = Curves((curve(), curve("fma", averaged=None)), {"versions": {"numpy": "2"}})
    saved.runs[0].values["test_loss"][3] = np.inf
    table, head = saved.save(tmp_path / "c")
    bits = xxhash.xxh3_64_hexdigest(table.read_bytes())
    told = {"table_rows": {".curves.csv": 24}, "table_xxh3": {".curves.csv": bits}}
    assert json.loads(head.read_text()) == {**saved.attrs, **told}
    back = Curves.load(tmp_path / "c")
    assert back.attrs == saved.attrs
    for one, other in zip(back.runs, saved.runs, strict=True):
        assert one.run == other.run
        np.testing.assert_array_equal(one.round, other.round)
        for name in MEASURES:
            np.testing.assert_array_equal(one.values[name], other.values[name])
    head.write_text('["versions"]')
    with pytest.raises(FedscopeError, match=r"c\.curves\.json is not a result of `fedscope curves`"):
        Curves.load(tmp_path / "c")
    head.unlink()
    with pytest.raises(FedscopeError, match=r"c\.curves\.json does not exist"):
        Curves.load(tmp_path / "c")


def test_a_table_of_which_a_digit_was_edited_is_refused(tmp_path: Path) -> None:
    """Tables of earlier versions, whose JSON file has no checksum, are read."""
    table, head = Curves((curve(),), {"versions": {"numpy": "2"}}).save(tmp_path / "c")
    lines = table.read_text().splitlines(keepends=True)
    cell = lines[3].split(",")[2]
    lines[3] = lines[3].replace(cell, "0.0125", 1)
    table.write_text("".join(lines))
    with pytest.raises(FedscopeError) as refused:
        Curves.load(tmp_path / "c")
    assert str(refused.value) == (
        f"{table} is not the table that c.curves.json was written with (its checksum is another), so one was changed; "
        "compute it again with --force"
    )
    said = json.loads(head.read_text())
    del said["table_xxh3"]
    head.write_text(json.dumps(said))
    assert Curves.load(tmp_path / "c").attrs == {"versions": {"numpy": "2"}}


@pytest.mark.parametrize("order", [("fma", "ima"), ("ima", "fma")])
def test_runs_of_one_history_show_both_in_whatever_order(order: tuple[str, str]) -> None:
    """The dashes of one lie above the whole line of the other."""
    same = tuple(replace(curve("fma", averaged=None), run=name) for name in order)
    drawn = Curves(same, measures=("test_loss",)).figure().axes[0].lines
    above = {line.get_linestyle(): line.get_zorder() for line in drawn[:1] + drawn[1:] if line.get_zorder() >= 3}
    assert above["--"] > above["-"]


def test_runs_on_other_data_are_drawn_together_after_a_word(tmp_path: Path) -> None:
    w = {"w": np.ones(2, np.float32)}
    for name, x in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
        data = np.full((4, 2), x, np.float32), np.array([0, 1, 0, 1])
        with fedscope.Recorder(tmp_path / name, data=data) as recorder:
            recorder.round(clients=[w], global_=w, metrics={"test_error": 0.5})
    a, b, c = (tmp_path / name for name in "abc")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        fedscope.curves([a, b])
        fedscope.curves(c)
    with pytest.warns(FedscopeWarning, match=r"a and c are on different data \(arrays and arrays\), so"):
        fedscope.curves([a, b, c])


def test_numbers_that_end_before_the_run_are_said() -> None:
    """A loss that is NaN from a round on is empty in a table, as one that nobody measured is."""
    rounds = np.arange(1, 11)

    def ends(last: int, every: int = 1, run: str = "a") -> Curve:
        there = (rounds % every == 0) & (rounds <= last)
        return Curve(run, rounds, {"test_loss": np.where(there, 1.0 / rounds, np.nan), "test_error": 0.1 / rounds})

    for curve, at in (
        (ends(10), None),
        (ends(6), 6),
        (ends(9), 9),
        (ends(9, 3), None),
        (ends(8, 3), 6),
        (ends(3, 3), 3),
    ):
        assert curve.stale_at(measure_of("test_loss")) == at
        said = Curves((curve,), {}, measures=("test_loss",)).summary().splitlines()
        words = f"test_loss of a was last a number in round {at} of 10; later ones are missing or not finite"
        assert (words in said) is (at is not None)
    # measured every fourth round, and not yet a second time
    growing = Curve("a", rounds[:7], {"test_loss": np.where(rounds[:7] == 4, 1.0, np.nan)})
    assert growing.stale_at(measure_of("test_loss")) is None
    assert "last a number" not in Curves((ends(6),), {}, measures=("test_error",)).summary()
    two = Curves((ends(6), ends(4, run="b"), ends(10, run="c")), {}, measures=("test_loss",)).summary()
    assert "test_loss of a, b was last a number in rounds 4 to 6; later ones" in two


def numbers(run: str = "fma", **columns: list[float]) -> Curve:
    values = {name: np.array(own, float) for name, own in columns.items()}
    return Curve(run, np.arange(1, 1 + len(next(iter(values.values())))), values)


@pytest.mark.parametrize("values", [[0.1, -0.05, -0.2], [-5.0, -4.0, -2.5]])
def test_negative_values_of_a_measure_are_seen(values: list[float]) -> None:
    """As of a cosine, or a reward of one's own loop; an error and what is never negative begin at 0."""
    for name in ("drift_cosine", "reward", "test_loss"):
        axes = Curves((numbers(**{name: values}),), measures=(name,)).figure().axes[0]
        assert axes.get_yscale() == "linear"
        assert axes.get_ylim()[0] < min(values) < max(values) < axes.get_ylim()[1]
    for name in ("test_error", "seconds"):
        axes = Curves((numbers(**{name: [0.3, 0.2, 0.1]}),), measures=(name,)).figure().axes[0]
        assert axes.get_ylim()[0] == 0


def test_a_loss_that_falls_through_0_is_on_no_logarithmic_axis() -> None:
    falls, stays = numbers(test_loss=[1.0, 0.5, -0.2]), numbers("ima", test_loss=[1.0, 0.4, 0.2])
    axes = Curves((falls, stays)).figure().axes[0]
    assert axes.get_yscale() == "linear"
    assert axes.get_ylabel() == "test loss (nats)"
    assert axes.get_ylim()[0] < -0.2
    assert Curves((stays,)).figure().axes[0].get_yscale() == "log"
    exact = numbers(train_loss=[1.0, 1e-3, 0.0, 1e-5])  # a float32 that knows nothing better: the others need the axis
    assert Curves((exact,), measures=("train_loss",)).figure().axes[0].get_yscale() == "log"
    # the global beside an average is drawn, too
    own = numbers(test_loss=[1.0, -0.5, -0.2], averaged_test_loss=[1.0, 0.5, 0.2])
    assert Curves((own,)).figure().axes[0].get_yscale() == "linear"


@pytest.mark.drawn
def test_panels_of_many_runs_keep_their_height_and_long_titles_their_letters() -> None:
    title = "a title of these runs that is by far too long for a figure of three and a half inches"
    runs = [numbers(f"run_with_a_rather_long_name_{i:02d}", test_loss=[2, 1], test_error=[0.9, 0.5]) for i in range(20)]
    figure = Curves(tuple(runs)).figure(3.5, title)
    figure.draw_without_rendering()
    assert all(axes.bbox.height > 0.5 * figure.dpi for axes in figure.axes)
    box = figure.legends[0].get_title().get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.legends[0].get_title().get_text().replace("\n", " ") == title
    assert Curves(tuple(runs[:3])).figure().get_figheight() == pytest.approx(2 * 0.475 * 3.5 + 0.35)
