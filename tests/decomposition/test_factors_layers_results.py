"""Locality by layer as a result: its files, its sentence, its figure, and the command."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from legible import assert_apart, assert_inside

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import fedscope as group
from fedscope.decomposition import FactorRow, LayerDecomposition, LayerFactors, RoundLayerFactors, RunLayerFactors
from fedscope.decomposition.factors.layer_figure import draw_layers


def row(factor: str, value: float | None, error: float | None = None) -> FactorRow:
    return FactorRow(factor, "plugin" if factor == "locality" else "measured", value, error)


def example(
    layers: int = 3, rounds: int = 1, runs: int = 1, error: float | None = 0.001, scale: float = 1.0
) -> LayerDecomposition:
    """Localities -0.1, -0.2, ... of layers, and of all -0.5, times a scale."""

    def cell(name: str, locality: float, t: int) -> LayerFactors:
        kept = (
            row("locality", scale * locality / t, error),
            row("ensemble_loss", 0.8),
            row("fma_loss", 0.8 + locality),
        )
        return LayerFactors(name, 10, (*kept, row("delta_mean", 1.5 * t), row("closure_error", 2e-15)))

    def one(t: int) -> RoundLayerFactors:
        cells = [cell(f"blocks.{i}.conv", -0.1 * i, t) for i in range(1, layers + 1)]
        return RoundLayerFactors(t, 4, True, "probabilities", 40, True, True, (*cells, cell("all layers", -0.5, t)))

    made = tuple(RunLayerFactors(f"run{i}", "global", tuple(map(one, range(1, rounds + 1)))) for i in range(runs))
    return LayerDecomposition(made, "train", "local:4", {"layers": "each"})


def test_a_sentence_names_the_layer_that_carries_the_locality() -> None:
    together = (
        "all layers together -0.5 ± 0.001: from loss 0.8 of averaged outputs to 0.3 of averaged weights (closes to "
        "2e-15); ± one standard error over draws"
    )
    assert example().summary() == (
        "run0, round 1: locality is carried most by blocks.3.conv, -0.3 ± 0.001 when it is averaged alone; " + together
    )
    assert example(1).summary() == (
        "run0, round 1: locality -0.1 ± 0.001 with blocks.1.conv averaged alone; " + together
    )
    assert example(0).summary() == f"run0, round 1: locality of {together}"
    averaged = replace(example(error=None), runs=(replace(example(error=None).runs[0], model="averaged"),))
    assert averaged.summary().startswith("run0, averaged, round 1: locality is carried most by blocks.3.conv, -0.3 wh")


def test_a_closure_that_is_no_number_hides_none() -> None:
    """Of a layer without which the model diverges there is none."""
    (run,) = example(2).runs
    first, *others = run.rounds[0].cells
    lost = replace(first, rows=tuple(row(one.factor, np.nan) for one in first.rows))
    for cells in ((lost, *others), (others[0], lost, *others[1:])):
        made = replace(example(2), runs=(replace(run, rounds=(replace(run.rounds[0], cells=cells),)),))
        assert "(closes to 2e-15)" in made.summary()


def test_localities_that_are_not_finite_are_not_0() -> None:
    def of(*values: float) -> str:
        (run,) = example(len(values)).runs
        (round_,) = run.rounds
        given = zip(round_.cells, [*values, math.nan], strict=True)
        cells = tuple(replace(cell, rows=(row("locality", value), *cell.rows[1:])) for cell, value in given)
        made = replace(example(), runs=(replace(run, rounds=(replace(round_, cells=cells),)),))
        return made.summary().partition("; ")[0].removeprefix("run0, round 1: ")

    assert of(math.nan, math.inf) == "no layer has a locality that is finite"
    assert of(math.nan, 0.0) == "no layer has a locality that is finite and not 0"
    assert of(0.0, 0.0) == "no layer has a locality that is not 0"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    made = example(2, 3, 2)
    paths = made.save(tmp_path / "v1.5")
    assert [path.name for path in paths] == ["v1.5.factors-layers.csv", "v1.5.factors-layers.json"]
    back = fedscope.load(tmp_path / "v1.5")
    assert isinstance(back, LayerDecomposition)
    assert back == made
    lines = paths[0].read_text().splitlines()
    assert lines[0] == (
        "run,round,model,split,draws,layer,parameters,factor,estimate,value,stderr_draws,stderr_samples"
    )
    assert lines[1] == "run0,1,global,train,local:4,blocks.1.conv,10,locality,plugin,-0.1,0.001,"
    assert len(made.findings()["rounds"]) == 18


def test_rounds_of_different_layers_are_refused() -> None:
    two = example(2, 2).runs[0].rounds
    mixed = RunLayerFactors("a", "global", (two[0], example(1).runs[0].rounds[0]))
    for runs in ((), (mixed,), (RunLayerFactors("a", "global", ()),)):
        with pytest.raises(FedscopeError, match=r"^a decomposition by layer needs rounds of the same layers; give at"):
            LayerDecomposition(runs, "train", "none")
    with pytest.raises(FedscopeError, match=r"^two runs are called run0: their rows could not be told apart; rename"):
        LayerDecomposition(example().runs * 2, "train", "none")


@pytest.mark.parametrize("width", [3.5, 7])
@pytest.mark.parametrize(
    "made", [example(), example(40, 20), example(1, 3), example(2, 2, 2)], ids=["one", "many", "few", "runs"]
)
def test_a_figure_shows_the_numbers_with_nothing_cut_off(made: LayerDecomposition, width: float) -> None:
    figure = draw_layers(made, width, title="locality")
    upper, lower = (axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>")
    for axes, name in ((upper, "locality"), (lower, "delta_mean")):
        shown = axes.images[0].get_array()
        assert shown is not None
        np.testing.assert_array_equal(np.asarray(shown), made.values(name))
        assert axes.get_yticklabels()[-1].get_text() == "all layers"
    low, high = upper.images[0].get_clim()
    assert low == -high  # so that white is 0
    assert_apart(assert_inside(figure, width))


@pytest.mark.drawn
def test_the_label_of_a_bar_reaches_into_no_other_map() -> None:
    figure = example(layers=2, scale=0.01).figure()
    figure.draw_without_rendering()
    maps = [axes for axes in figure.axes if axes.images]
    label = next(axes for axes in figure.axes if "squared error" in axes.get_ylabel()).yaxis.label.get_window_extent()
    assert maps[1].bbox.y1 < label.y0 < label.y1 <= figure.bbox.y1


def test_a_figure_says_what_it_shows() -> None:
    words = " ".join(text.get_text() for text in draw_layers(example(), 7).texts)
    assert "draws: local:4; train, 40 samples; ±: standard error over draws" in words
    assert "±" not in " ".join(text.get_text() for text in draw_layers(example(error=None), 7).texts)


# --- the command ---


@pytest.fixture
def here(two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").symlink_to(two_rounds / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    group.main(["decompose", "runs/fma", *words], standalone_mode=False)
    return capsys.readouterr().out


@pytest.mark.usefixtures("few_digits")
def test_layers_are_rows_whose_last_is_the_plain_answer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--rounds", "1,2", "--draws", "local:3"]
    said(capsys, *common, "--out", "plain")
    with Path("plain.factors.csv").open() as file:
        plain = [[row[name] for name in KEPT] for row in csv.DictReader(file)]
    for i, layers in enumerate(("each", "*", "/./", "head")):
        out = json.loads(said(capsys, *common, "--layers", layers, "--out", f"cut{i}", "--json"))
        with Path(f"cut{i}.factors-layers.csv").open() as file:
            rows = [[row[name] for name in KEPT] for row in csv.DictReader(file) if row["layer"] == "all layers"]
        assert rows == plain
        for one in out["rounds"]:
            assert one["closure_error"] < 1e-6
            assert one["ensemble_loss"] + one["locality"] == pytest.approx(one["fma_loss"], rel=1e-9)
    words = said(capsys, "--rounds", "last", "--draws", "none", "--layers", "each").splitlines()
    assert words[0].startswith("fma, round 2: locality is carried most by ")
    assert words[-1].endswith("-layers-each.png")


KEPT = ("run", "round", "model", "split", "draws", "factor", "estimate", "value", "stderr_draws", "stderr_samples")


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layers", "hed"], r"^layers 'hed' match none; did you mean \"head\"\?$"),
        (["--layers", "cumulative"], r"^--layers cumulative is a cut of lines; for decompose give each \(each layer"),
        (["--layers", "each", "--loss", "zero-one"], r"^--layers is for the locality, which --loss zero-one has not; "),
        (["--layers", "each", "--panel", "error"], r"^--panel chooses parts of the figure of the factors, which --la"),
    ],
)
def test_mistakes_end_in_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(capsys, *words)


@pytest.mark.usefixtures("few_digits")
def test_python_asks_the_same(here: Path) -> None:
    found: Any = fedscope.decompose("runs/fma", rounds=2, draws="none", layers="each", split="test")
    assert isinstance(found, LayerDecomposition)
    assert found.layers[-1] == "all layers"
    assert np.isfinite(found.values("locality")).all()
    with pytest.raises(FedscopeError, match=r"^layers is for the locality, which loss='zero-one' has not"):
        fedscope.decompose("runs/fma", layers="each", loss="zero-one")
