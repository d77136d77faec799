"""Single parameters over clients: densities, the most skewed, marks and the map, against closed forms and the whole
matrix."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import replace
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Round,
    RoundRecord,
    TensorEntry,
    Weights,
    weighted_mean,
    write_round,
)
from fedscope.decomposition.parameters import parameter_names as places_module
from fedscope.decomposition.parameters import selection as choosing_module
from fedscope.decomposition.parameters import summaries as summaries_module
from fedscope.decomposition.parameters.density import density_of, mode_of
from fedscope.decomposition.parameters.figure import marks_of
from fedscope.decomposition.parameters.parameter_names import (
    RunValues,
    client_values,
    parse_place,
    place_of,
    read_values,
    refuse_other_layout,
)
from fedscope.decomposition.parameters.result import ParameterMap, Parameters
from fedscope.decomposition.parameters.selection import most_skewed, resolved_skewness, sample_columns, sample_counts
from fedscope.decomposition.parameters.summaries import Reference, reference, summarise
from fedscope.decomposition.parameters.tsne import fit_map, layer_scales, map_parameters
from fedscope.training.methods.shared.micro_classes import high_entries, is_high, mean_and_cv

LAYOUT = Layout(
    (
        TensorEntry("a.weight", (30, 4, 2), "float32", "parameter"),
        TensorEntry("steps", (), "int64", "buffer"),
        TensorEntry("scale", (), "float32", "parameter"),
        TensorEntry("empty", (0, 4), "float32", "parameter"),
        TensorEntry("b.bias", (50,), "float32", "parameter"),
    )
)
CLIENTS = 10


def written(
    folder: Path,
    clients: int = CLIENTS,
    seed: int = 3,
    averaged: bool = False,
    change: Any = lambda parameters: None,
    layout: Layout = LAYOUT,
) -> Round:
    """A round of skewed clients around a start, with unequal weights."""
    rng = np.random.default_rng(seed)
    start = rng.normal(size=layout.size)
    parameters = (start + 0.1 * rng.gamma(0.7, size=(clients, layout.size))).astype(np.float32)
    change(parameters)
    rows = Weights(layout, parameters, {"steps": np.zeros(clients, np.int64)} if layout.buffers else {})
    buffers = {"steps": np.int64(0)} if layout.buffers else {}

    def model(values: np.ndarray) -> Weights:
        return Weights(layout, values.astype(np.float32), {name: np.asarray(value) for name, value in buffers.items()})

    p = np.arange(clients) ** 4 / (np.arange(clients) ** 4).sum() if clients > 1 else np.ones(1)
    numbers = np.arange(clients)
    path = folder / "00007.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = RoundRecord(
        7,
        model(start),
        rows,
        model(start + 0.05),
        model(start + 0.02) if averaged else None,
        numbers + 20,
        numbers + 1,
        numbers + 1,
        np.zeros(clients),
        p,
    )
    write_round(path, record, "none")
    return Round(path, layout, "runs/toy")


# names


def test_names_are_torchs_indices_of_every_parameter() -> None:
    for layer, where in LAYOUT.slices.items():
        shape = next(entry.shape for entry in LAYOUT.parameters if entry.name == layer)
        for column in range(where.start, where.stop):
            place = place_of(LAYOUT, layer, column - where.start)
            assert place.column == column
            assert parse_place(place.name, LAYOUT) == place
            flat = np.arange(LAYOUT.size)[where].reshape(shape)
            assert flat[place.index] == column
    assert parse_place(" a.weight[29, 3,1] ", LAYOUT).name == "a.weight[29,3,1]"
    assert parse_place("scale", LAYOUT).column == parse_place("scale[]", LAYOUT).column == 240


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.wight[0,0,0]", r"no layer 'a\.wight' for the parameter 'a\.wight\[0,0,0\]'; did you mean \"a\.weight\"\?"),
        ("zz[0]", r"no layer 'zz' .*; the layers are a\.weight, scale, empty, b\.bias"),
        ("steps", r"no layer 'steps'"),  # a buffer
        (
            "a.weight[30,0,0]",
            r"'a\.weight\[30,0,0\]' is outside of a\.weight, whose shape is \[30, 4, 2\]; .* from 0",
        ),
        ("a.weight[-1,0,0]", r"is outside of a\.weight"),
        ("empty[0,0]", r"is outside of empty, whose shape is \[0, 4\]"),
        (
            "a.weight[3]",
            r"'a\.weight\[3\]' has 1 index, but a\.weight has the shape \[30, 4, 2\]; write a\.weight\[0,0,0\]",
        ),
        ("b.bias[3,1]", r"has 2 indices, but b\.bias has the shape \[50\]; write b\.bias\[0\]"),
        ("b.bias", r"'b\.bias' has no indices"),
        (
            "b.bias[x]",
            r"'b\.bias\[x\]' is not a parameter: name a layer and whole numbers in brackets, as in b\.bias\[0\]",
        ),
        ("b.bias[3", r"'b\.bias\[3' is not a parameter"),
    ],
)
def test_wrong_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        parse_place(name, LAYOUT)


# densities


def by_hand(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    h = len(values) ** -0.2 * values.std(ddof=1)
    return stats.norm.pdf((at[:, None] - values) / h).mean(axis=1) / h


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=30),
    st.floats(1e-6, 1e6),
    st.floats(-1, 1),
)
def test_a_density_is_the_kernels_mean_integrates_to_one_and_is_highest_at_the_mode(
    drawn: list[float], scale: float, shift: float
) -> None:
    values = scale * (shift + np.array(drawn))
    if np.std(values) <= 1e-9 * scale:  # alike up to rounding, whose density is rounding's
        return
    made = density_of(values)
    assert made is not None
    assert np.trapezoid(made.density, made.at) == pytest.approx(1, abs=2e-4)  # of it 6e-5 lie beyond four bandwidths
    np.testing.assert_allclose(made.density, by_hand(values, made.at), rtol=1e-6, atol=1e-9 / scale)
    height = by_hand(values, np.array([made.mode]))[0]
    fine = np.linspace(values.min(), values.max(), 4001)
    assert height >= by_hand(values, fine).max() * (1 - 1e-6)
    assert made.mode == mode_of(values)
    assert made.at[0] < values.min() <= made.mode <= values.max() < made.at[-1]


def test_modes_with_a_closed_form() -> None:
    # two values: h = 2^-0.2 s with s = 1/√2, less than half their distance, but no two modes: 1 < 2 h
    assert density_of(np.array([0.0, 1.0])).mode == pytest.approx(0.5, abs=1e-4)  # type: ignore[union-attr]
    # of equal modes the lower
    low = density_of(np.array([-1.0] * 4 + [1.0] * 4))
    assert low is not None
    assert -1 < low.mode < -0.8
    # of all but one alike the mode is theirs, up to the tail of the one
    one = density_of(np.r_[np.zeros(99), 1.0])
    assert one is not None
    assert 0 <= one.mode < 1e-6


# of seven times 0.1 the deviation is a rounding, and not 0
@pytest.mark.parametrize("values", [[0.1] * 7, [1.0, 1.0, 1.0], [1.0], [], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0]])
def test_what_has_no_density(values: list[float]) -> None:
    assert density_of(np.array(values)) is None
    assert mode_of(np.array(values)) is None


# the most skewed


def brute_force(clients: np.ndarray, top: int) -> list[str]:
    """Every parameter's skewness by scipy; the first of every layer, then the seconds, ..."""
    found = []
    for layer, where in LAYOUT.slices.items():
        own = []
        for column in range(where.start, where.stop):
            values = clients[:, column].astype(np.float64)
            if not np.isfinite(values).all() or values.std() < 1024 * np.finfo(np.float32).eps * np.abs(values).max():
                continue
            own.append((-round(abs(float(stats.skew(values))), 9), column - where.start))
        found += [(rank, value, where.start + flat, layer, flat) for rank, (value, flat) in enumerate(sorted(own))]
    return [place_of(LAYOUT, layer, flat).name for *_, layer, flat in sorted(found)[:top]]


@pytest.mark.parametrize("top", [1, 2, 3, 4, 9, 400])
@pytest.mark.parametrize("numbers", [40, 10_000])
def test_the_most_skewed_are_those_of_the_whole_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: int, numbers: int
) -> None:
    def change(parameters: np.ndarray) -> None:
        parameters[:, 5] = 1.0  # constant
        parameters[2, 6] = np.nan
        parameters[:, 7] = 1.0
        parameters[3, 7] += 1e-6  # alike but for rounding
        parameters[:, 250:290] = parameters[:, 250:251]  # ties

    round_ = written(tmp_path, change=change)
    real, largest = choosing_module.read_columns, []

    def small_blocks(*args: Any) -> Any:
        for block in real(*args, numbers=numbers):
            largest.append(block.values.size)
            yield block

    monkeypatch.setattr(choosing_module, "read_columns", small_blocks)
    chosen = [place.name for place in most_skewed(round_, top)]
    assert chosen == brute_force(round_.clients().parameters, top)
    assert len(chosen) == min(top, 240 - 3 + 1 + 50)
    assert len({name.partition("[")[0] for name in chosen[:3]}) == min(top, 3)  # at most one a layer
    assert len(largest) == (60 + 1 + 13 if numbers == 40 else 3)


def test_equal_skewness_is_not_a_matter_of_rounding(tmp_path: Path) -> None:
    def change(parameters: np.ndarray) -> None:
        for column in range(241, 291):  # all but one alike, each on another scale: skewness (C − 2)/√(C − 1) of all
            parameters[:, column] = 0.3 * 1.37 ** (column - 260)
            parameters[column % CLIENTS, column] *= 1.1

    round_ = written(tmp_path, change=change)
    exact = np.abs(stats.skew(round_.clients().parameters[:, 241:].astype(np.float64)))
    assert exact.min() == pytest.approx(8 / 3) == exact.max()
    assert len(np.unique(exact)) > 1
    assert {"b.bias[0]"} <= {place.name for place in most_skewed(round_, 3)}


def test_what_has_no_most_skewed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"the 0 most skewed parameters are none; ask for 1 or more \(--top 4\)"):
        most_skewed(written(tmp_path / "a"), 0)
    with pytest.raises(FedscopeError, match=r"runs/toy@7 has 2 clients, but skewness exists from three .*--parameter"):
        most_skewed(written(tmp_path / "b", clients=2))
    with pytest.raises(
        FedscopeError, match=r"has 1 client, but skewness exists from three on; take a round .* clients$"
    ):
        most_skewed(written(tmp_path / "c", clients=1))
    alike = written(tmp_path / "d", change=lambda parameters: parameters.__setitem__(slice(1, None), parameters[0]))
    with pytest.raises(FedscopeError, match=r"no parameter has a skewness, because each is the same in all clients"):
        most_skewed(alike)


def test_progress_ends_with_every_parameter(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    most_skewed(written(tmp_path), 4, lambda done, of: seen.append((done, of)))
    assert seen[-1] == (LAYOUT.size, LAYOUT.size)


# values and marks


@pytest.mark.parametrize("numbers", [40, 10_000])
def test_values_are_those_of_the_matrix_and_of_the_whole_models_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    real = places_module.read_columns
    monkeypatch.setattr(places_module, "read_columns", lambda *args: real(*args, numbers=numbers))
    round_ = written(tmp_path, averaged=True)
    columns = [290, 3, 240, 100, 3]
    whole = round_.clients()
    np.testing.assert_array_equal(client_values(round_, columns), whole.parameters[:, columns])
    places = [parse_place(name, LAYOUT) for name in ("b.bias[49]", "a.weight[0,1,1]", "scale[]", "a.weight[12,2,0]")]
    made = read_values(round_, places, "toy")
    np.testing.assert_array_equal(made.clients, whole.parameters[:, columns[:4]])
    np.testing.assert_array_equal(made.client_ids, np.arange(20, 30))
    assert list(made.models) == ["start", "fma", "global", "averaged"]
    np.testing.assert_array_equal(
        made.models["fma"], weighted_mean(whole, round_.weights).parameters[columns[:4]].astype(np.float64)
    )
    for which in ("start", "global", "averaged"):
        np.testing.assert_array_equal(made.models[which], round_.read(which).parameters[columns[:4]])


def values(*columns: list[float], run: str = "toy", **models: list[float]) -> RunValues:
    clients = np.array(columns).T
    return RunValues(run, 7, np.arange(len(clients)), clients, {name: np.array(one) for name, one in models.items()})


def test_summaries_against_scipy_and_by_hand() -> None:
    rng = np.random.default_rng(0)
    column = rng.gamma(0.5, size=9)
    run = values(column.tolist(), [2.0] * 9, [*column[:8], np.nan], fma=[0.9, 2.0, 1.0], start=[0.1, 2.0, 0.0])
    other = values([], [], [], run="b", **{"global": [0.7, 2.0, 1.0]})
    one, constant, broken = summarise(["x", "y", "z"], [run, other])
    assert one.skewness == pytest.approx(stats.skew(column))
    assert one.p_value == stats.skewtest(column).pvalue
    assert one.cv == pytest.approx(column.std() / column.mean())
    mode = density_of(column).mode  # type: ignore[union-attr]
    assert one.mode == mode
    assert one.fma_to_mode == pytest.approx((0.9 - mode) / column.std())
    assert one.to_mode["start"] == pytest.approx((0.1 - mode) / column.std())
    assert one.to_mode["b/global"] == pytest.approx((0.7 - mode) / column.std())
    assert (constant.constant, constant.mode, constant.skewness, constant.p_value) == (True, None, None, None)
    assert (broken.constant, broken.mode, broken.fma_to_mode, broken.p_value) == (False, None, None, None)


def test_the_test_of_skewness_exists_from_eight_clients_on() -> None:
    for clients in (3, 7, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # scipy's, that the test is asked of too few
            (one,) = summarise(["x"], [values([float(k**2) for k in range(clients)])])
        assert one.skewness is not None
        assert (one.p_value is None) == (clients < 8)
    (two,) = summarise(["x"], [values([0.0, 1.0])])
    assert two.skewness is None
    assert two.mode is not None


def test_all_but_one_alike_miss_the_mode_by_the_outliers_share() -> None:
    # w = (0, ..., 0, 1): mean − 0 = 1/C, σ = √(C − 1)/C, so FMA lies 1/√(C − 1) from the mode, which lies at 0 but for
    # the tail of the outlier's kernel (at 13 bandwidths and more of 40 clients)
    column = np.r_[np.zeros(39), 1.0]
    (one,) = summarise(["x"], [values(column.tolist(), fma=[column.mean()])])
    assert one.fma_to_mode == pytest.approx(1 / sqrt(39), abs=1e-6)
    assert one.skewness == pytest.approx(38 / sqrt(39))


def test_the_reference_is_a_median_over_a_sample_and_over_gaussian_values(tmp_path: Path) -> None:
    round_ = written(tmp_path, change=lambda parameters: parameters.__setitem__((slice(None), slice(0, 40)), 1.0))
    made = reference(round_)
    assert made == reference(round_)
    assert made.sampled == LAYOUT.size - 40  # of fewer than 500 parameters all those with a density
    whole = round_.clients()
    fma = weighted_mean(whole, round_.weights).parameters.astype(np.float64)
    by_column = []
    for i in range(40, LAYOUT.size):
        column = whole.parameters[:, i].astype(np.float64)
        density = density_of(column)
        assert density is not None
        by_column.append(abs(fma[i] - density.mode) / column.std())
    assert made.sample == pytest.approx(np.quantile(by_column, [0.25, 0.5, 0.75]))
    # Gaussian cohorts with the weights p, drawn by another generator: quartiles of 500 and of 1000 agree within 0.1
    # (they are 0.26 apart, so one has a standard error of about 1.36 · 0.39/√500 = 0.024); with equal weights the upper
    # one would be 0.19 less
    rng = np.random.default_rng(99)
    found = []
    for _ in range(1000):
        column = rng.normal(5.0, 3.0, CLIENTS)
        found.append(abs(column @ round_.weights - mode_of(column)) / column.std())  # type: ignore[operator]
    assert made.gaussian is not None
    assert made.gaussian == pytest.approx(np.quantile(found, [0.25, 0.5, 0.75]), abs=0.1)
    assert reference(round_, seed=1).gaussian != made.gaussian


def test_the_references_sample_is_in_proportion_to_the_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    monkeypatch.setattr(summaries_module, "SAMPLED", 100)
    real = summaries_module.client_values
    monkeypatch.setattr(
        summaries_module, "client_values", lambda one, columns: seen.append(columns) or real(one, columns)
    )
    reference(written(tmp_path), seed=3)
    assert len(seen[0]) == 100
    assert np.count_nonzero(seen[0] < 240) == 83  # 240 · 100/291 = 82.5, of 50 it is 17.2
    np.testing.assert_array_equal(seen[0], sample_columns(LAYOUT, 100, 3, least=0))


def test_runs_of_other_layouts_are_refused(tmp_path: Path) -> None:
    first = written(tmp_path / "a")
    entries = (replace(LAYOUT.entries[0], shape=(30, 4, 3)), *LAYOUT.entries[1:])
    other = written(tmp_path / "b", layout=Layout(entries))
    with pytest.raises(FedscopeError, match=r"holds other models than runs/toy@7, .* a\.weight has shape .*one archit"):
        refuse_other_layout(first, other)
    refuse_other_layout(first, first)


# the result


def result(tmp_path: Path, **changes: Any) -> Parameters:
    places = [parse_place(name, LAYOUT) for name in ("b.bias[49]", "a.weight[0,1,1]", "scale[]")]
    runs = (
        read_values(written(tmp_path / "a", averaged=True), places, "toy"),
        read_values(written(tmp_path / "b", seed=4), places, "other"),
    )
    attrs = {"round": 7, "seed": 0}
    made = Parameters(tuple(place.name for place in places), runs, Reference(5, (0.1, 0.2, 0.3), None, 0), attrs)
    return replace(made, **changes)


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = result(tmp_path)
    table, main = made.save(tmp_path / "run.v2")
    assert (table.name, main.name) == ("run.v2.parameters.csv", "run.v2.parameters.json")
    read = Parameters.load(tmp_path / "run.v2")
    assert list(read.values()) == list(made.values())
    assert (read.names, read.reference, read.attrs) == (made.names, made.reference, dict(made.attrs))
    assert read.summaries == made.summaries
    assert [run.models.keys() for run in read.runs] == [run.models.keys() for run in made.runs]
    lines = table.read_text().splitlines()
    assert lines[0] == "run,round,parameter,which,value"
    assert len(lines) == 1 + 3 * (10 + 4) + 3 * (10 + 3)
    assert lines[1] == f"toy,7,b.bias[49],client-20,{float(made.runs[0].clients[0, 0])!r}"
    again = tmp_path / "again"
    read.save(again)
    assert (tmp_path / "again.parameters.csv").read_bytes() == table.read_bytes()
    assert (tmp_path / "again.parameters.json").read_bytes() == main.read_bytes()


def test_not_a_number_survives(tmp_path: Path) -> None:
    made = Parameters(("x",), (values([1.0, np.nan, 2.0, np.inf], fma=[np.nan]),))
    made.save(tmp_path / "x")
    np.testing.assert_array_equal(Parameters.load(tmp_path / "x").runs[0].clients, made.runs[0].clients)


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    table, _ = result(tmp_path).save(tmp_path / "x")
    table.write_text("\n".join(line for line in table.read_text().splitlines() if "client-23" not in line) + "\n")
    with pytest.raises(FedscopeError, match=r"x\.parameters\.csv has 75 rows, and .*json says that it had 81"):
        Parameters.load(tmp_path / "x")


def test_results_that_cannot_be_are_refused(tmp_path: Path) -> None:
    made = result(tmp_path)
    with pytest.raises(FedscopeError, match=r"there are 0 parameters .* take 1 to 100"):
        replace(made, names=())
    with pytest.raises(FedscopeError, match=r"there are 101 parameters"):
        replace(made, names=("x",) * 101)
    with pytest.raises(FedscopeError, match=r"2 of the runs are called 'toy'; rename a folder"):
        replace(made, runs=(made.runs[0], made.runs[0]))
    with pytest.raises(
        FedscopeError, match=r"round 7 of toy has 1 client, and a density over clients needs two or more"
    ):
        Parameters(("x",), (values([1.0]),))
    with pytest.raises(FedscopeError, match=r"round 7 of toy has no clients, and"):
        Parameters(("x",), (values([]),))


# figures and words


def test_models_of_equal_values_are_one_mark(tmp_path: Path) -> None:
    one = values(
        [0.0, 1.0], [1.0, 2.0], start=[0.1, 0.2], fma=[0.5, 1.5], **{"global": [0.5, 1.5]}, averaged=[0.5, 1.0]
    )
    assert [mark.label for mark in marks_of([one])] == ["start", "plain average = global", "averaged"]
    same = values([], [], run="b", **{"global": [0.5, 1.5]})
    other = values([], [], run="c", start=[0.0, 0.0], fma=[0.0, 0.0], **{"global": [0.5, 1.6]})
    marks = marks_of([one, same, other])
    labels = ["start", "plain average = global of toy = global of b", "averaged", "global of c"]
    assert [mark.label for mark in marks] == labels
    looks = [(mark.look["color"], str(mark.look["linestyle"]), mark.look["marker"]) for mark in marks]
    assert len({look[1:] for look in looks}) == len({look[0] for look in looks}) == 4  # told apart in grey too


@pytest.mark.parametrize("width", [2.0, 3.5, 7.0])
def test_a_panel_a_parameter_with_every_model_where_it_is(tmp_path: Path, width: float) -> None:
    made = result(tmp_path)
    figure = made.figure(width, "A title")
    assert figure.get_figwidth() == width
    assert len(figure.axes) == 3
    marks = marks_of(made.runs)
    for i, axes in enumerate(figure.axes):
        rugs = [line for line in axes.lines if line.get_marker() == "|" and len(line.get_xdata()) == CLIENTS]
        np.testing.assert_array_equal(rugs[0].get_xdata(), made.runs[0].clients[:, i])
        low, high = axes.get_xlim()
        upright = {
            line.get_xdata()[0]
            for line in axes.lines
            if list(line.get_ydata())[:1] == [0] and len(line.get_xdata()) == 2
        }
        within = {mark.values[i] for mark in marks if low <= mark.values[i] <= high}
        assert upright == within
        arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
        assert len(within) + len(arrows) == len(marks)
        assert made.names[i] in {text.get_text() for text in axes.texts}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-7, 1e6])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_numbers_at_the_axis_say_where_they_are(scale: float, offset: float) -> None:
    column = scale * (offset + np.random.default_rng(0).normal(size=9))
    figure = Parameters(("x",), (values(column.tolist(), fma=[float(column.mean())]),)).figure()
    (axes,) = figure.axes
    at = axes.get_xticks()
    said = [float(label.get_text().replace("−", "-")) for label in axes.get_xticklabels()]
    assert len(at) >= 2
    np.testing.assert_allclose(said, at, rtol=1e-3, atol=1e-3 * scale)


def test_constant_and_broken_parameters_are_drawn_and_said() -> None:
    constant, broken = [0.25] * 9, [0.1] * 8 + [float("nan")]
    made = Parameters(("x", "y"), (values(constant, broken, fma=[0.25, np.nan]),))
    figure = made.figure()
    said = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"the same in all clients", "no density: not finite in some client"} <= said
    black = [line for line in figure.axes[0].lines if line.get_color() == "#404040"]
    assert [line.get_xdata()[0] for line in black] == [0.25]
    assert not [line for line in figure.axes[1].lines if line.get_color() == "#404040"]
    words = made.summary().splitlines()
    assert words[0] == "toy, round 7: 2 parameters without a density, so there is no mode to miss"
    assert words[1:] == ["  x: the same in all clients", "  y: no density: not finite in some client"]


def test_sentences_have_the_numbers(tmp_path: Path) -> None:
    reference = Reference(5, (0.1, 0.2, 0.3), (0.15, 0.25, 0.35), 0)
    made = result(tmp_path, reference=reference, attrs={"top": 3, "size": 291})
    words = made.summary()
    found = sorted(abs(one.to_mode["fma"]) for one in made.summaries)
    theirs = sorted(abs(one.to_mode["other/global"]) for one in made.summaries)
    first, *rest = words.splitlines()
    span = f"{found[0]:.2f} to {found[-1]:.2f}"
    assert first == (
        f"toy, round 7: the plain average misses the mode of the 3 most skewed of 291 parameters by {span} "
        f"standard deviations of the 10 clients, other's global by {theirs[0]:.2f} to {theirs[-1]:.2f}; "
        "of 5 sampled parameters by 0.20 (median, quartiles 0.10 and 0.30), of Gaussian values, which have no skew, by "
        "0.25 (median, quartiles 0.15 and 0.35)"
    )
    one = made.summaries[0]
    numbers = f"skewness {one.skewness:.2f}, cv {one.cv:.2g}, plain average {one.fma_to_mode:.2f} σ from the mode"
    assert rest[0] == f"  b.bias[49]: {numbers}"
    assert "rounds began from different models" in rest[-1]
    branched = replace(made, attrs={**made.attrs, "same_start": True}).summary()
    assert "different models" not in branched


# the sample


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.integers(1, 3000), st.integers(0, 25))
def test_samples_are_in_proportion_with_at_least_some_a_layer(sizes: list[int], count: int, least: int) -> None:
    available = np.array(sizes)
    counts = sample_counts(available, count, least)
    assert counts.sum() == min(count, available.sum())
    assert (counts <= available).all()
    if count < available.sum():
        floor = max(k for k in range(least + 1) if np.minimum(available, k).sum() <= count)
        small = np.minimum(available, floor)
        assert (counts >= small).all()
        # those above their least share in proportion: no two could trade one and be nearer to it
        more = np.flatnonzero(counts > small)
        rates = counts[more] / available[more]
        for i in range(len(more)):
            for j in range(len(more)):
                assert rates[i] - 1 / available[more[i]] <= rates[j] + 1 / available[more[j]] + 1e-12


def test_a_sample_is_of_every_layer_without_repeats_and_the_same_again() -> None:
    layout = Layout(
        tuple(TensorEntry(f"l{i}", (size,), "float32", "parameter") for i, size in enumerate((8192, 128, 640, 10)))
    )
    columns = sample_columns(layout, 500, seed=4)
    counts = [436, 20, 34, 10]  # 470 among 8832, beside the two that have 20 or all: 435.9 and 34.1
    assert (np.diff(columns) > 0).all()
    assert [int(((one.start <= columns) & (columns < one.stop)).sum()) for one in layout.slices.values()] == counts
    np.testing.assert_array_equal(columns, sample_columns(layout, 500, seed=4))
    assert not np.array_equal(columns, sample_columns(layout, 500, seed=5))
    # uniform in a layer: the mean place of 436 of 8192 is within four of its standard errors of the middle
    assert abs(columns[:436].mean() - 4096) < 4 * 8192 / sqrt(12 * 436)


# the map


def test_layers_are_measured_as_whole_layers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedscope.decomposition.parameters.tsne as module

    def change(parameters: np.ndarray) -> None:
        parameters[:, 250] = [-1, 1] * 5  # a mean of 0

    round_ = written(tmp_path, change=change)
    real = module.read_columns
    monkeypatch.setattr(module, "read_columns", lambda one: real(one, numbers=40))
    start, whole = round_.read("start").parameters, round_.clients().parameters
    scales = layer_scales(round_, start)
    assert list(scales) == ["a.weight", "scale", "b.bias"]
    for name, scale in scales.items():
        where = LAYOUT.slices[name]
        _, cv = mean_and_cv(whole[:, where])
        np.testing.assert_array_equal(is_high(cv, scale.low, scale.top, 0.2), high_entries(cv, 0.2))
        step = whole[:, where].astype(np.float64) - start[where].astype(np.float64)
        assert scale.update == pytest.approx(sqrt((step**2).mean()), rel=1e-12)
    assert is_high(mean_and_cv(whole[:, 241:])[1], scales["b.bias"].low, scales["b.bias"].top, 0.2).any()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_layers_that_diverged_have_nothing_high(tmp_path: Path, broken: float) -> None:
    round_ = written(tmp_path, change=lambda parameters: parameters.__setitem__((3, 100), broken))
    scales = layer_scales(round_, round_.read("start").parameters)
    with np.errstate(all="ignore"):
        _, cv = mean_and_cv(round_.clients().parameters[:, :240])
        np.testing.assert_array_equal(
            is_high(cv, scales["a.weight"].low, scales["a.weight"].top, 0.2), high_entries(cv, 0.2)
        )
    assert not is_high(cv, scales["a.weight"].low, scales["a.weight"].top, 0.2).any()


def test_points_are_the_clients_updates_in_units_of_the_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedscope.decomposition.parameters.tsne as module

    seen: dict[str, Any] = {}

    def spying(points: np.ndarray, **kwargs: Any) -> np.ndarray:
        seen.update(points=points, **kwargs)
        return np.arange(2.0 * len(points)).reshape(-1, 2)

    monkeypatch.setattr(module, "fit_map", spying)
    round_ = written(tmp_path)
    made = map_parameters(round_, "toy", sample=280, perplexity=7, seed=2)
    columns = sample_columns(LAYOUT, 280, 2)
    step = round_.clients().parameters.astype(np.float64) - round_.read("start").parameters.astype(np.float64)
    for i, column in enumerate(columns):
        name, where = next((name, one) for name, one in LAYOUT.slices.items() if one.start <= column < one.stop)
        expected = step[:, column] / sqrt((step[:, where] ** 2).mean())
        np.testing.assert_allclose(seen["points"][i], expected, rtol=1e-12)
        assert made.layers[i] == name
        assert made.index[i] == place_of(LAYOUT, name, int(column) - where.start).index
    assert (seen["perplexity"], seen["seed"], seen["backend"]) == (7, 2, "sklearn")
    values = round_.clients().parameters[:, columns].astype(np.float64)
    np.testing.assert_allclose(made.skewness, stats.skew(values), rtol=1e-9)
    np.testing.assert_allclose(made.cv, values.std(0) / np.abs(values.mean(0)), rtol=1e-9)
    for name, where in LAYOUT.slices.items():
        if where.stop > where.start:
            whole = high_entries(mean_and_cv(round_.clients().parameters[:, where])[1], 0.2)
            here = np.array([layer == name for layer in made.layers])
            np.testing.assert_array_equal(made.high[here], whole[columns[here] - where.start])
    assert made.high.any()
    assert (made.attrs["parameters"], made.attrs["sample"], made.attrs["seed"]) == (LAYOUT.size, 280, 2)


def test_a_layer_that_no_client_moved_is_at_the_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fedscope.decomposition.parameters.tsne as module

    rng = np.random.default_rng(3)
    start = rng.normal(size=LAYOUT.size).astype(np.float32)
    round_ = written(tmp_path, change=lambda parameters: parameters.__setitem__(slice(None), start))
    monkeypatch.setattr(module, "fit_map", lambda points, **_: points[:, :2])
    np.testing.assert_array_equal(map_parameters(round_, "toy", sample=40, perplexity=5).at, 0)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> ParameterMap:
    def change(parameters: np.ndarray) -> None:
        parameters[:, 3] = 1.0

    return map_parameters(written(tmp_path_factory.mktemp("map"), change=change), "toy", sample=291, perplexity=20)


def test_a_map_is_the_same_again_and_is_read_back(mapped: ParameterMap, tmp_path: Path) -> None:
    again = map_parameters(
        written(tmp_path, change=lambda parameters: parameters.__setitem__((slice(None), 3), 1.0)),
        "toy",
        sample=291,
        perplexity=20,
    )
    np.testing.assert_array_equal(again.at, mapped.at)
    assert np.isfinite(mapped.at).all()
    table, main = mapped.save(tmp_path / "run.v2")
    assert (table.name, main.name) == ("run.v2.parameters-tsne.csv", "run.v2.parameters-tsne.json")
    lines = table.read_text().splitlines()
    assert lines[0] == "layer,index,x,y,cv,skewness,high"
    assert re.fullmatch(r'a\.weight,"0,1,1",[-0-9.]+,[-0-9.]+,,,False', lines[4])  # constant
    assert [line for line in lines if line.startswith("scale,,")]
    read = ParameterMap.load(tmp_path / "run.v2")
    for name in ("run", "round", "clients", "layers", "index"):
        assert getattr(read, name) == getattr(mapped, name)
    for name in ("at", "cv", "skewness", "high"):
        np.testing.assert_array_equal(getattr(read, name), getattr(mapped, name))
    assert read.attrs == mapped.attrs
    table.unlink()
    with pytest.raises(
        FedscopeError, match=r"run\.v2\.parameters-tsne\.csv does not exist: a result of parameters --t"
    ):
        ParameterMap.load(tmp_path / "run.v2")


@pytest.mark.parametrize("width", [2.0, 3.5, 7.0])
@pytest.mark.parametrize("colour", ["layer", "skewness", "dispersion"])
def test_every_point_is_drawn_once(mapped: ParameterMap, width: float, colour: Any) -> None:
    figure = mapped.figure(width, "A title", colour=colour)
    clouds = figure.axes[0].collections
    drawn = np.concatenate([np.asarray(cloud.get_offsets()) for cloud in clouds[:2]])
    assert sorted(map(tuple, drawn)) == sorted(map(tuple, mapped.at))
    grey = len(clouds[0].get_offsets())
    missing = {"layer": 0, "skewness": np.isnan(mapped.skewness).sum(), "dispersion": np.isnan(mapped.cv).sum()}
    assert grey == missing[colour] == (0 if colour == "layer" else 1)
    remark = " ".join(text.get_text() for text in figure.texts)
    assert ("crosses:" in remark) == bool(grey), "no colour of the bar's"
    dots = clouds[1]
    order = [int(np.flatnonzero((mapped.at == point).all(1))[0]) for point in np.asarray(dots.get_offsets())]
    layers = np.array([list(dict.fromkeys(mapped.layers)).index(layer) for layer in mapped.layers])
    shown = {"layer": layers, "skewness": mapped.skewness, "dispersion": mapped.cv}[colour]
    np.testing.assert_array_equal(dots.get_array(), shown[order])
    if colour == "dispersion":
        assert len(clouds[2].get_offsets()) == mapped.high.sum() > 0


def test_many_layers_are_shades(mapped: ParameterMap) -> None:
    layers = tuple(f"layer{i % 20}" for i in range(len(mapped.layers)))
    figure = replace(mapped, layers=layers).figure()
    assert figure.axes[1].get_ylabel() == "layer, in order (20)"
    with pytest.raises(FedscopeError, match=r"no colour by 'layr'; did you mean \"layer\"\?"):
        mapped.figure(colour="layr")  # type: ignore[arg-type]


def test_maps_that_cannot_be_are_refused(tmp_path: Path) -> None:
    round_ = written(tmp_path / "a")
    for sample in (0, 3, 20_001):
        with pytest.raises(
            FedscopeError, match=rf"a sample of {sample:,} parameters is out of range for sklearn: take 4 to 20,000"
        ):
            map_parameters(round_, "toy", sample=sample)
    with pytest.raises(FedscopeError, match=r"perplexity 30 does not fit 30 points: it must be below their number"):
        map_parameters(round_, "toy", sample=30)
    with pytest.raises(FedscopeError, match=r"runs/toy@7 has 1 client, so a parameter is one number and no vector"):
        map_parameters(written(tmp_path / "b", clients=1), "toy")
    import h5py

    with h5py.File(tmp_path / "a" / "00007.h5", "r+") as file:
        del file["checksums"], file.attrs["checksums"]
        del file["start"]
    with pytest.raises(
        FedscopeError, match=r"runs/toy@7 did not record the model that its clients were sent \(start\)"
    ):
        map_parameters(Round(tmp_path / "a" / "00007.h5", LAYOUT, "runs/toy"), "toy", sample=60, perplexity=5)
    broken = written(tmp_path / "c", change=lambda parameters: parameters.__setitem__((3, 100), np.nan))
    with pytest.raises(FedscopeError, match=r"points are not finite, .* before the training diverged"):
        map_parameters(broken, "toy", sample=291, perplexity=5)


# embeddings


def groups() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(40, 60)) + 4 * c for c in range(3)])


def test_groups_stay_groups_and_numbers_stay_the_same() -> None:
    points = groups()
    made = fit_map(points, perplexity=10, seed=1)
    np.testing.assert_array_equal(made, fit_map(points, perplexity=10, seed=1))
    between = np.linalg.norm(made[:, None] - made, axis=2)
    nearest = between.argsort(1)[:, 1:6] // 40
    assert (nearest == np.arange(120)[:, None] // 40).all()


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (np.eye(3), {}, r"3 points are too few for a t-SNE; take 4 or more"),
        (np.ones((9, 1)), {"perplexity": 3}, r"the points have 1 dimension"),
        (
            np.eye(6),
            {"perplexity": 6},
            r"perplexity 6 does not fit 6 points: it must be above 0 and below their number",
        ),
        (np.eye(6), {"perplexity": 0.0}, r"perplexity 0 does not fit"),
        (np.eye(6), {"perplexity": float("nan")}, r"perplexity nan does not fit"),
        (np.diag([1, 1, 1, 1, np.inf]), {"perplexity": 2}, r"1 of 5 points are not finite"),
        (np.eye(6), {"backend": "torchd"}, r"no t-SNE backend 'torchd'; did you mean \"torchdr\"\?"),
    ],
)
def test_what_cannot_be_embedded_is_refused(points: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        fit_map(points, **options)


def test_the_gpu_backend_is_asked_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    class TSNE:
        def __init__(self, **kwargs: Any) -> None:
            seen.update(kwargs)

        def fit_transform(self, points: np.ndarray) -> np.ndarray:
            seen["points"] = points
            return points[:, :2]

    fake = ModuleType("torchdr")
    fake.TSNE = TSNE  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchdr", fake)
    made = fit_map(groups(), perplexity=12, seed=5, backend="torchdr", device="cuda")
    assert made.dtype == np.float64
    np.testing.assert_array_equal(seen.pop("points"), groups().astype(np.float32))
    assert seen == {"perplexity": 12, "init": "pca", "random_state": 5, "max_iter": 1000, "device": "cuda"}


def test_a_gpu_backend_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdr", None)
    with pytest.raises(
        FedscopeError, match=r"torchdr is not installed; pip install 'fedscope\[gpu\]' .*or use backend"
    ):
        fit_map(groups(), backend="torchdr")


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_differences_that_float64_cannot_square_are_no_density_and_not_broken(scale: float) -> None:
    column = [scale * k for k in range(1, 10)]
    made = Parameters(("x",), (values(column, fma=[5 * scale]),))
    assert made.summaries[0].mode is None
    assert made.summary().splitlines()[1].endswith("no density: differences beyond what float64 squares")
    made.figure().canvas.draw()


def heights(figure: Any) -> list[float]:
    """Of the marks' markers in the first panel."""
    single = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    return [float(line.get_ydata()[0]) for line in single]


def test_markers_that_would_cover_each_other_stand_in_rows() -> None:
    """At 3.5 inches a marker is 0.06 inches wide: values nearer than that are lowered, others stay."""
    numbers = np.random.default_rng(0).normal(size=12).tolist()
    first = replace(values(numbers, fma=[0.5]), models={"fma": np.array([0.5]), "global": np.array([0.501])})
    figure = Parameters(("x",), (first,)).figure()
    rows = [
        line.get_ydata()[0]
        for line in figure.axes[0].lines
        if len(line.get_xdata()) == 1 and line.get_markersize() == 3.2
    ]
    assert rows[0] == pytest.approx(0.965)
    assert rows[1] == pytest.approx(0.965 - 0.09)
    apart = replace(first, models={"fma": np.array([0.5]), "global": np.array([1.5])})
    figure = Parameters(("x",), (apart,)).figure()
    assert {
        line.get_ydata()[0]
        for line in figure.axes[0].lines
        if len(line.get_xdata()) == 1 and line.get_markersize() == 3.2
    } == {0.965}


def test_a_deviation_of_fewer_than_1024_rounding_steps_is_rounding() -> None:
    """ε max|w| is 2^-23: a lopsided difference of 8192 steps is seen, one of 1600 (σ = 480 of ten clients) is not."""
    eps = float(np.finfo(np.float32).eps)
    for steps, seen in ((8192, True), (1600, False)):
        column = np.ones((10, 1), np.float32)
        column[0] += np.float32(steps * eps)
        assert np.isnan(resolved_skewness(column)[0]) == (not seen)
