"""Tables, their round trip, and the figure."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from legible import assert_apart, assert_inside

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.decomposition import ClientRow, Decomposition, FactorRow, RoundFactors, RunFactors
from fedscope.decomposition.factors.figure_panels import group_factors
from fedscope.decomposition.factors.rows import FACTORS, MEASURED
from fedscope.plotting.ticks import spread_apart
from fedscope.training.curves.run_curve import ErrorCurve

# As a prototype on the embedded digits measured them, in rounds 1, 10, 20, 40 and 60.
ROUNDS = (1, 10, 20, 40, 60)
MEASUREMENTS = {
    "heter_bias": (0.776, 0.654, 0.48, 0.33, 0.238),
    "bias_cross": (0.067, 0.005, 0.003, 0.002, 0.001),
    "train_bias": (0.003, 4e-4, 1e-4, 5e-5, 2e-5),
    "variance": (0.002, 1e-3, 6e-4, 3e-4, 1e-4),
    "covariance": (1e-6, 8e-6, -3e-6, 2e-6, -9e-6),
    "locality": (0.041, -0.27, -0.25, -0.22, -0.184),
}


def plausible(run: str = "ima", *, split: bool = True, independent: bool = True, seed: int = 0) -> RunFactors:
    rng = np.random.default_rng(seed)
    rounds = []
    for i, number in enumerate(ROUNDS):
        value = {name: series[i] for name, series in MEASUREMENTS.items()}
        value["bias"] = value["heter_bias"] + value["bias_cross"] + value["train_bias"]
        value["ensemble_loss"] = value["bias"] + value["variance"] + value["covariance"]
        value["fma_loss"] = value["global_loss"] = value["ensemble_loss"] + value["locality"]
        value |= {"server_step": 0.0, "delta_max": 3.1 / number, "delta_mean": 2.0 / number, "closure_error": 3e-16}
        rows = [
            FactorRow(name, kind, value[name], 0.02 * abs(value[name]) + 2e-6 if independent else None)
            if (split or name not in ("train_bias", "heter_bias", "bias_cross")) and (independent or kind == "plugin")
            else FactorRow(name, kind, None)
            for kind in ("plugin", "unbiased")
            for name in FACTORS
        ]
        rows += [FactorRow(name, "measured", value.get(name)) for name in MEASURED]
        clients = tuple(
            ClientRow(
                client=3 * k,
                samples=100 + k,
                weight=(100 + k) / 1045,
                train_bias=0.08 / number + 0.01 * rng.random() if split else None,
                heter_bias=value["heter_bias"] * (1.3 + 0.2 * rng.random()) if split and k else None,
                variance=0.02 / number,
                distance=2.0 + rng.random(),
            )
            for k in range(10)
        )
        source = "local:4" if independent else "rounds:4"
        rounds.append(
            RoundFactors(number, source, 4, independent, "probabilities", 1437, 10, True, split, tuple(rows), clients)
        )
    error = tuple(float(value) for value in 0.9 * np.exp(-np.arange(60) / 8) + 0.04)
    curves = (ErrorCurve("global", tuple(range(1, 61)), error), ErrorCurve("averaged", (45, 60), (0.04, 0.035)))
    return RunFactors(run, "global", tuple(rounds), curves)


def result(*runs: RunFactors, draws: str = "local:4", split: str = "train") -> Decomposition:
    return Decomposition(
        runs or (plausible(),), split=split, draws=draws, attrs={"seed": 0, "versions": {"torch": "2"}}
    )


def test_tables_have_the_columns_that_other_programs_rely_on(tmp_path):
    paths = result().save(tmp_path / "figures" / "decompose.v1")
    assert [path.name for path in paths] == [
        f"decompose.v1.{end}" for end in ("factors.csv", "clients.csv", "factors.json")
    ]
    rows = list(csv.DictReader(paths[0].read_text(encoding="utf-8").splitlines()))
    named = "run round model split loss draws factor estimate value stderr_draws stderr_samples"
    assert list(rows[0]) == named.split()
    assert {row["estimate"] for row in rows} == {"plugin", "unbiased", "measured"}
    assert {row["factor"] for row in rows} == set(FACTORS) | set(MEASURED)
    assert {(row["run"], row["model"], row["split"], row["loss"], row["draws"]) for row in rows} == {
        ("ima", "global", "train", "squared", "local:4")
    }
    assert [row["value"] for row in rows if (row["factor"], row["estimate"]) == ("locality", "unbiased")] == [
        repr(value) for value in MEASUREMENTS["locality"]
    ]
    clients = list(csv.DictReader(paths[1].read_text(encoding="utf-8").splitlines()))
    named = "run round client samples train_bias heter_bias variance distance model trained"
    assert list(clients[0]) == named.split()
    assert len(clients) == 50


def test_what_does_not_exist_is_an_empty_field_and_never_0(tmp_path):
    paths = result(plausible(split=False, independent=False), draws="rounds:4").save(tmp_path / "d")
    rows = list(csv.DictReader(paths[0].read_text(encoding="utf-8").splitlines()))
    assert all(row["stderr_draws"] == row["stderr_samples"] == "" for row in rows)
    for row in rows:
        missing = row["factor"] in ("train_bias", "heter_bias", "bias_cross", "averaged_loss")
        assert (row["value"] == "") == (missing or row["estimate"] == "unbiased")
    assert all(
        row["train_bias"] == row["heter_bias"] == ""
        for row in csv.DictReader(paths[1].read_text(encoding="utf-8").splitlines())
    )


def test_a_result_comes_back_exactly(tmp_path):
    whole = result(plausible("fma", seed=1), plausible("ima"))
    odd = plausible("odd")
    first = odd.rounds[0]
    strange = [FactorRow("global_loss", "measured", float("inf")), FactorRow("fma_loss", "measured", 0.1 + 0.2)]
    odd = replace(odd, rounds=(replace(first, rows=tuple(strange)),), curves=())
    for one in (whole, result(odd)):
        one.save(tmp_path / "r.1")
        assert Decomposition.load(tmp_path / "r.1") == one
    for number in whole.runs[0].rounds:
        assert RoundFactors.from_json(json.loads(json.dumps(number.to_json()))) == number


def test_runs_that_could_not_be_told_apart_are_refused():
    with pytest.raises(FedscopeError, match=r"two runs are called ima"):
        result(plausible(), plausible())


@pytest.mark.parametrize("kind", ["factors", "clients"])
def test_a_cut_or_edited_table_is_no_result(tmp_path, kind):
    result().save(tmp_path / "r")
    table = tmp_path / f"r.{kind}.csv"
    lines = table.read_text().splitlines(keepends=True)
    for spoilt, sentence in (
        (
            lines[:-1],
            rf"r\.{kind}\.csv has {len(lines) - 2} rows, and r\.factors\.json says that it had {len(lines) - 1},",
        ),
        (
            [*lines[:-1], lines[-1].replace(",60,", ",sixty,")],
            rf"r\.{kind}\.csv is damaged: round in line {len(lines)} is 'sixty'; compute it again with --force",
        ),
    ):
        table.write_text("".join(spoilt))
        with pytest.raises(FedscopeError, match=sentence):
            Decomposition.load(tmp_path / "r")


def test_a_head_that_does_not_fit_is_no_result(tmp_path):
    paths = result().save(tmp_path / "r")
    head = json.loads(paths[2].read_text())
    for spoilt in ({"runs": [{**head["runs"][0], "curves": [1]}]}, {"runs": 3}, {"runs": [{"run": "ima"}]}):
        paths[2].write_text(json.dumps({**head, **spoilt}))
        with pytest.raises(FedscopeError, match=r"do not fit each other, so one was changed or cut"):
            Decomposition.load(tmp_path / "r")
    rounds = [{**one, "count": "four"} for one in head["runs"][0]["rounds"]]
    paths[2].write_text(json.dumps({**head, "runs": [{**head["runs"][0], "rounds": rounds}]}))
    with pytest.raises(FedscopeError, match=r"do not fit each other, so one was changed or cut"):
        Decomposition.load(tmp_path / "r")


def test_a_client_of_an_average_over_rounds_keeps_its_round(tmp_path):
    run = plausible()
    old = run.rounds[0]
    averaged = replace(old, clients=tuple(replace(row, trained=old.round) for row in old.clients))
    result(run, replace(run, model="averaged", rounds=(averaged,))).save(tmp_path / "r")
    loaded = Decomposition.load(tmp_path / "r")
    assert {row.trained for row in loaded.runs[0].rounds[0].clients} == {None}
    assert {row.trained for row in loaded.runs[1].rounds[0].clients} == {old.round}


def words(figure) -> str:
    texts = [text.get_text() for ax in figure.axes for text in (*ax.texts, ax.title, ax._left_title)]
    return "\n".join(texts + [text.get_text().replace("\n", " ") for text in figure.texts])


def test_the_figure_says_what_it_shows_and_what_it_cannot():
    figure = result().figure(3.5, "digits, two shards")
    assert figure.get_figwidth() == 3.5
    assert len(figure.axes) == 5
    said = words(figure)
    note = " ".join(text.get_text() for text in reversed(figure.texts))
    assert "digits, two shards" in said
    loss = "loss of the\nplain average"  # whatever the method: of the clients of SCAFFOLD it is no FMA's
    for label in ("heterog.\nbias", "training bias", "cross term", "variance", "locality", loss):
        assert label in said
    labels = {line.get_label() for ax in figure.axes for line in ax.lines}
    assert "covariance" not in labels, "0 by construction is no finding"
    assert "FMA" not in " ".join([*said, note])
    for fact in ("local:4", "covariance is 0 by construction", "all 1,437 samples", "t on 3 degrees", "Unbiased"):
        assert fact in note, note

    dependent = result(plausible(split=False, independent=False), draws="rounds:4", split="test").figure()
    assert len(dependent.axes) == 4  # no split, so nothing to say of each client alone
    note = " ".join(text.get_text() for text in reversed(dependent.texts))
    assert "drift counts as variance" in note
    assert "Plug-in" in note
    assert "bars 95" not in note


def test_the_note_says_whose_data_a_cohort_is_measured_on():
    run = plausible()
    sizes = (168, 200, 346, 300, 250)
    run = replace(run, rounds=tuple(replace(one, samples=n) for one, n in zip(run.rounds, sizes, strict=True)))
    own = replace(result(run), attrs={"on": "cohort"})

    def note(of: Decomposition) -> str:
        return " ".join(text.get_text() for text in reversed(of.figure().texts))

    assert "on all 168 to 346 samples of the cohort's own data, another D each round." in note(own)
    assert "samples of D" not in note(own)
    one = replace(own, runs=(replace(run, rounds=run.rounds[:1]),))
    assert "on all 168 samples of the cohort's own data." in note(one)
    some = replace(own, runs=(replace(run, rounds=tuple(replace(each, population=False) for each in run.rounds)),))
    assert "on a sample of 168 to 346 samples of the cohort's own data" in note(some)
    assert "its own error is not in the bars" in note(some)
    assert "on all 168 to 346 samples of D." in note(replace(own, attrs={"on": "all"}))


def test_the_figure_draws_the_numbers():
    from scipy.stats import t

    figure = result().figure()
    lines = {line.get_label(): line for ax in figure.axes for line in ax.lines}
    np.testing.assert_array_equal(lines["locality"].get_xdata(), ROUNDS)
    np.testing.assert_array_equal(lines["locality"].get_ydata(), MEASUREMENTS["locality"])
    assert "covariance" not in lines
    assert result().runs[0].rounds[-1].row("covariance").value == MEASUREMENTS["covariance"][-1], "the table keeps it"
    half = t.ppf(0.975, 3) * (0.02 * MEASUREMENTS["locality"][-1] * -1 + 2e-6)
    bars = next(bar for ax in figure.axes for bar in ax.containers if bar.lines[0] is lines["locality"])
    (segments,) = bars.lines[2]
    np.testing.assert_allclose(np.diff(segments.get_segments()[-1][:, 1]), 2 * half, rtol=1e-9)
    # p-weighted means over the clients that have a value: client 0 has none on the others' data.
    known = plausible().rounds[-1].clients[1:]
    mean = sum(row.weight * row.heter_bias for row in known) / sum(row.weight for row in known)
    assert lines["other data"].get_ydata()[-1] == pytest.approx(mean)
    assert lines["uniform\noutputs"].get_ydata()[0] == pytest.approx(0.9)
    # Δ, of the paper's Figure 3, and the mean distance, on an axis from 0
    for label, factor in (("Δ (greatest)", "delta_max"), ("mean", "delta_mean")):
        drawn = [one.row(factor).value for one in plausible().rounds]
        np.testing.assert_array_equal(lines[label].get_ydata(), drawn)
    distances = next(ax for ax in figure.axes if ax.get_label() == "distance 0")
    assert distances.get_ylim()[0] == 0.0
    assert distances.get_title(loc="left") == "distance of clients to their average"
    assert [ax.get_ylabel() for ax in figure.axes] == [*["squared error"] * 3, "$L_2$", "%"]


def test_panels_are_drawn_alone_with_what_concerns_them():
    """Figure 3 is the distance and the test error, Figure 2 the factors and the test error."""
    shown = result(plausible(), plausible("fedavg", seed=1))

    def drawn(*panels: str) -> tuple[list[str], str]:
        figure = shown.figure(3.5, panels=panels)
        assert_apart(assert_inside(figure, 3.5))
        return [ax.get_label() for ax in figure.axes[::2]], " ".join(t.get_text() for t in reversed(figure.texts))

    labels, note = drawn("error", "distance")
    assert labels == ["distance 0", "error 0"]
    assert "Distances are means over draws; bars 95" in note
    assert "covariance" not in note
    assert "samples" not in note
    lines = {line.get_label(): line for ax in shown.figure(panels=["distance"]).axes[1::2] for line in ax.lines}
    expected = [one.row("delta_max").value for one in plausible("fedavg", seed=1).rounds]
    np.testing.assert_array_equal(lines["Δ (greatest)"].get_ydata(), expected)
    assert drawn("factors", "error")[0] == ["large 0", "small 0", "error 0"]
    assert "covariance is 0 by construction" in drawn("factors", "error")[1]
    assert drawn("error")[1] == ""
    assert drawn() == drawn("factors", "clients", "distance", "error")


def test_a_panel_that_has_nothing_to_show_is_refused():
    nothing = result(replace(plausible(split=False), curves=()))
    with pytest.raises(FedscopeError, match=r"no panel 'error': the result has no test errors, because none was meas"):
        nothing.figure(panels=["distance", "error"])
    with pytest.raises(FedscopeError, match=r"no panel 'clients': the result has no .*own numbers, .*; leave it out"):
        nothing.figure(panels=["clients"])
    with pytest.raises(
        FedscopeError, match=r"'delta' is not a panel of a decomposition; there are factors, clients, dis"
    ):
        nothing.figure(panels=["delta"])


def test_several_runs_are_columns_on_common_axes():
    high = plausible("fma", seed=1)
    high = replace(high, curves=(ErrorCurve("global", (1, 60), (0.99, 0.5)),))
    figure = result(plausible(), high).figure(7.0)
    assert len(figure.axes) == 10
    # the last run alone has no averaged model, and the first one's line has a name
    assert {"global", "averaged"} <= {text.get_text() for text in figure.axes[-1].texts}
    for left, right in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert left.get_ylim() == right.get_ylim()
        for ax in (left, right):
            low, top = ax.get_ylim()
            for line in ax.lines:
                if line.get_transform().contains_branch(ax.transData) and line.get_label() != "_tie":
                    y = np.asarray(line.get_ydata(), dtype=float)
                    assert np.nanmax(y, initial=low) <= top
                    assert np.nanmin(y, initial=top) >= low


def few(run: RunFactors) -> RunFactors:
    return replace(run, rounds=tuple(replace(one, round=i + 1) for i, one in enumerate(run.rounds[:3])), curves=())


def nowhere(run: RunFactors) -> RunFactors:
    """A run that diverged."""
    nan = float("nan")
    rounds = (
        replace(
            one,
            rows=tuple(replace(row, value=nan, stderr_draws=None) for row in one.rows),
            clients=tuple(replace(row, train_bias=nan, heter_bias=nan) for row in one.clients),
        )
        for one in run.rounds
    )
    return replace(run, rounds=tuple(rounds))


RUNS = (
    plausible(),
    plausible("fedavg-momentum", seed=1),
    replace(plausible(), model="averaged"),
    nowhere(plausible("swa", seed=2)),
)


@pytest.mark.parametrize(
    ("shown", "width"),
    [
        *(((0,), 2.0), ((0, 1, 2), 2.0), ((0, 3), 3.5), ((0, 1, 2), 7.0)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (((0, 1), 2.0), ((0,), 3.5), ((0, 1, 2), 3.5))),
    ],
)
def test_words_of_a_figure_neither_touch_nor_are_cut(width, shown):
    title = "A title that is longer than the figure is wide, so that it needs more lines than one"
    figure = result(*(RUNS[i] for i in shown)).figure(width, title)
    assert_apart(assert_inside(figure, width))
    for ax in figure.axes:  # right of the columns stand labels, wherever the lines end
        assert ax._left_title.get_window_extent().x1 <= figure.axes[-1].bbox.x1 + 1


def test_rounds_are_whole_and_narrow_columns_have_two():
    for width, runs in ((3.5, (few(RUNS[0]),)), (7.0, (few(RUNS[0]), few(RUNS[1])))):
        figure = result(*runs).figure(width)
        low, high = figure.axes[-1].get_xlim()
        assert [tick for tick in figure.axes[-1].get_xticks() if low <= tick <= high] == [1, 2, 3]
    narrow = result(*RUNS[:3]).figure(2.0)
    assert narrow.axes[-1].get_xticks().tolist() == [1, 60]
    said = [ax.get_xlabel() for ax in narrow.axes] + [text.get_text() for ax in narrow.axes for text in ax.texts]
    assert said.count("round") == 1
    assert [ax.get_xlabel() for ax in result(*RUNS[:3]).figure(7.0).axes].count("round") == 3


def test_names_wider_than_their_columns_become_letters_with_a_key():
    figure = result(*RUNS[:3]).figure(3.5, "digits")
    said = [text.get_text() for text in figure.texts]
    assert said[:2] == ["digits", "a: ima; b: fedavg-momentum; c: ima, averaged"]
    assert {"a", "b", "c"} <= {text.get_text() for ax in figure.axes for text in ax.texts}
    wide = result(*RUNS[:3]).figure(7.0)
    assert {"ima", "fedavg-momentum", "ima, averaged"} <= {text.get_text() for ax in wide.axes for text in ax.texts}


@pytest.mark.parametrize("width", [2.0, 7.0])
def test_a_run_that_diverged_says_so_in_its_panels(width):
    figure = result(RUNS[0], RUNS[3]).figure(width)
    columns = [[text.get_text().replace("\n", " ") for text in ax.texts] for ax in figure.axes]
    finite = ["not finite" not in said for said in columns]
    assert finite == [True, False] * 4 + [True, True]  # its test error was measured
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()  # of the rounds, though none can be drawn
    none = replace(RUNS[0], run="other", curves=())
    assert "none" in [text.get_text() for text in result(RUNS[0], none).figure(width).axes[-1].texts]
    alone = result(nowhere(plausible())).figure(width)
    assert not alone.axes[0].get_yticks().size


def test_small_factors_get_a_panel_of_their_own():
    large, small = group_factors(plausible().rounds)
    assert large == ["heter_bias", "bias_cross", "locality"]
    assert small == ["train_bias", "variance"]
    assert group_factors(plausible(split=False).rounds) == (["bias", "locality"], ["variance"])


def drawn_from(run: RunFactors, draws: str, **more: object) -> RunFactors:
    """The same numbers as of other draws."""
    return replace(run, rounds=tuple(replace(one, draws=draws, **more) for one in run.rounds))


def with_value(run: RunFactors, factor: str, values: Sequence[float]) -> RunFactors:
    rounds = (
        replace(one, rows=tuple(replace(row, value=value) if row.factor == factor else row for row in one.rows))
        for one, value in zip(run.rounds, values, strict=True)
    )
    return replace(run, rounds=tuple(rounds))


def lines_of(run: RunFactors, draws: str) -> tuple[dict[str, np.ndarray], str]:
    figure = result(run, draws=draws).figure()
    note = " ".join(text.get_text() for text in reversed(figure.texts))
    return {line.get_label(): line.get_ydata() for ax in figure.axes for line in ax.lines}, note


@pytest.mark.parametrize(("draws", "is_drawn"), [("local:4", False), ("local:16", False), ("runs", True)])
def test_a_covariance_is_drawn_where_it_is_measured(draws, is_drawn):
    lines, note = lines_of(drawn_from(plausible(), draws), draws)
    assert ("covariance" in lines) is is_drawn
    assert ("the covariance is 0 by construction (not drawn)" in note) is not is_drawn
    if is_drawn:
        np.testing.assert_array_equal(lines["covariance"], MEASUREMENTS["covariance"])
    said = drawn_from(plausible(), draws).summary()
    assert ("(0 by construction)" in said) is not is_drawn


def test_a_variance_of_full_batches_is_not_drawn_as_measured():
    alike = with_value(plausible(), "variance", [3e-16] * len(ROUNDS))
    lines, note = lines_of(alike, "local:4")
    assert "variance" not in lines
    assert "replays are alike, as where clients take full batches: the variance is 0 (not drawn), without bars" in note
    assert "no bars over draws that are alike" in note
    some = with_value(plausible(), "variance", [3e-16, *MEASUREMENTS["variance"][1:]])
    lines, note = lines_of(some, "local:4")
    np.testing.assert_array_equal(lines["variance"].astype(float), [np.nan, *MEASUREMENTS["variance"][1:]])
    assert f"replays are alike in round {ROUNDS[0]}, as where clients" in note
    # other seeds whose models are alike are a finding
    assert "variance" in lines_of(drawn_from(alike, "runs"), "runs")[0]


def test_what_one_client_has_by_construction_is_not_drawn():
    single = replace(plausible(), rounds=tuple(replace(one, clients=one.clients[:1]) for one in plausible().rounds))
    lines, note = lines_of(drawn_from(single, "runs"), "runs")
    assert not {"covariance", "locality"} & set(lines)
    assert "One client is its own average: covariance and locality 0 by construction, not drawn." in note
    both, note = lines_of(plausible(), "local:4")
    assert "locality" in both
    assert "One client" not in note


def test_a_result_without_rounds_draws_nothing():
    with pytest.raises(FedscopeError, match="no round to draw"):
        result(RunFactors("ima", "global", ())).figure()


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 1)), max_size=8))
def test_labels_neither_overlap_nor_move_without_need(places):
    places.sort(key=lambda place: place[0])
    at, sizes = [place for place, _ in places], [size for _, size in places]
    centres = spread_apart(at, sizes)
    gaps = [b - a - (s + t) / 2 for a, b, s, t in zip(centres, centres[1:], sizes, sizes[1:], strict=False)]
    assert all(gap >= -1e-9 for gap in gaps)
    if all(b - a >= (s + t) / 2 for a, b, s, t in zip(at, at[1:], sizes, sizes[1:], strict=False)):
        assert centres == pytest.approx(at)


def test_an_error_of_one_round_has_a_mark():
    """No line goes through it: of a run of one round, and of an average that exists in one."""
    curves = (ErrorCurve("global", (1, 2, 3), (0.9, 0.5, 0.4)), ErrorCurve("averaged", (3,), (0.3,)))
    panel = result(replace(few(plausible()), curves=curves)).figure(panels=["error"]).axes[0]
    line, alone = (next(one for one in panel.lines if one.get_label() == name) for name in ("global", "averaged"))
    assert line.get_marker() in ("None", "")
    assert (alone.get_marker(), list(alone.get_markevery())) == ("o", [0])


def test_more_runs_than_have_room_are_drawn_wider_unless_a_width_was_given():
    runs = [plausible(f"run-{i}") for i in range(20)]
    why = "20 columns have no room side by side in a figure 3.5 inches wide"
    with pytest.raises(FedscopeError) as error:
        result(*runs).figure(3.5)
    assert str(error.value) == f"{why}; give width=7.6, or draw fewer"
    assert len(result(*runs).figure(7.6).axes) == 5 * 20
    with pytest.warns(FedscopeWarning) as told:
        figure = result(*runs).figure()
    assert [str(one.message) for one in told] == [f"{why}, so it is drawn 7.6 wide; give width= for another one"]
    assert figure.get_size_inches()[0] == pytest.approx(7.6)
