"""The geometry of updates by layer: its sums are those of the whole, and a round is read once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from legible import assert_apart, assert_inside

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Round, RoundRecord, TensorEntry, Weights, write_round
from fedscope.checkpoints.models.layer_selections import selections_of
from fedscope.checkpoints.rounds.columns import ColumnChunk
from fedscope.decomposition.updates.angles import geometry, layer_products, update_products
from fedscope.decomposition.updates.layer_figure import draw_layers
from fedscope.decomposition.updates.layer_result import LayerUpdates
from fedscope.decomposition.updates.layers import LayerRow, RoundLayers, round_layers
from fedscope.decomposition.updates.result import MEASURED, measured

ENTRIES = (
    TensorEntry("conv.weight", (4, 2, 3), "float32", "parameter"),
    TensorEntry("norm.weight", (4,), "float32", "parameter"),
    TensorEntry("conv.bias", (4,), "float32", "parameter"),
    TensorEntry("still.running_mean", (4,), "float32", "buffer"),
    TensorEntry("head.weight", (3, 20), "float32", "parameter"),
    TensorEntry("scale", (2,), "float32", "parameter"),
)
LAYOUT = Layout(ENTRIES)
#: where each layer's numbers lie in the flat vector; those of conv are apart
PLACES = {
    "conv": [*range(24), *range(28, 32)],
    "norm": range(24, 28),
    "head": range(32, 92),
    "scale": range(92, 94),
}
P = np.array([0.125, 0.25, 0.5, 0.125])


def round_of(folder: Path, *, number: int = 7, change: Any = None) -> tuple[Round, np.ndarray]:
    """A round on disk, and its clients' updates."""
    rng = np.random.default_rng(number)
    start = (100 + rng.normal(size=94)).astype(np.float32)
    clients = (start + 0.1 * rng.normal(size=(4, 94))).astype(np.float32)
    if change is not None:
        change(clients, start)
    mean = np.zeros(4, np.float32)
    rows = Weights(LAYOUT, clients, {"still.running_mean": np.zeros((4, 4), np.float32)})
    model = Weights(LAYOUT, start, {"still.running_mean": mean})
    path = folder / f"{number:05d}.h5"
    write_round(path, RoundRecord(number, model, rows, model, None, *[3 * np.arange(4)] * 4, P))
    return Round(path, LAYOUT, "runs/toy"), clients.astype(np.float64) - start


def test_each_layer_is_its_own_vectors(tmp_path: Path) -> None:
    """Against the layers' columns taken by hand; a layer without parameters has no row, and one whose parameters lie
    apart has one."""
    round_, moved = round_of(tmp_path)
    found = round_layers(round_, selections_of(LAYOUT, "each", "updates")).cells
    assert [cell.layer for cell in found] == [*PLACES, "all layers"]
    assert [cell.parameters for cell in found] == [28, 4, 60, 2, 94]
    for cell in found[:-1]:
        own = moved[:, list(PLACES[cell.layer])]
        lengths = np.linalg.norm(own, axis=1)
        cosines = (own @ own.T / np.outer(lengths, lengths))[np.triu_indices(4, 1)]
        assert cell.cosine_mean == pytest.approx(cosines.mean(), rel=1e-9)
        assert (cell.cosine_min, cell.cosine_max) == pytest.approx((cosines.min(), cosines.max()), rel=1e-9)
        assert cell.mean_norm == pytest.approx(P @ lengths, rel=1e-12)
        assert cell.norm_of_mean == pytest.approx(np.linalg.norm(P @ own), rel=1e-12)
        assert cell.cancellation == pytest.approx(np.linalg.norm(P @ own) / (P @ lengths), rel=1e-12)
        assert (cell.round, cell.clients, cell.unmoved, cell.diverged) == (7, 4, 0, 0)


@pytest.mark.parametrize("layers", ["*", "each", "conv,head", "/./"])
def test_all_layers_are_the_whole_bit_for_bit(tmp_path: Path, layers: str) -> None:
    round_, _ = round_of(tmp_path)
    whole = geometry(update_products(round_), P, number=7, client_ids=round_.client_ids)
    found = round_layers(round_, selections_of(LAYOUT, layers, "updates")).cells
    assert found[-1].layer == "all layers"
    assert {name: getattr(found[-1], name) for name in MEASURED} == measured(whole)
    assert len(found) == {"*": 1, "/./": 1, "conv,head": 2, "each": 5}[layers]


@pytest.mark.parametrize("numbers", [8, 40, 2**20])
def test_products_of_layers_add_up_to_the_whole(tmp_path: Path, numbers: int) -> None:
    round_, _ = round_of(tmp_path)
    *parts, whole = layer_products(
        round_, [one.parameters for one in selections_of(LAYOUT, "each", "updates")[:-1]], numbers=numbers
    )
    assert whole.tobytes() == update_products(round_, numbers=numbers).tobytes()
    lengths = np.sqrt(np.diagonal(whole))
    assert (np.abs(sum(parts) - whole) <= 1e-12 * np.outer(lengths, lengths)).all()
    assert all(np.diagonal(part).min() > 0 for part in parts)


@pytest.mark.parametrize("layers", ["each", "conv,head", "*"])
def test_a_round_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: str) -> None:
    """Every column of the clients once, and the start once, however many layers there are."""
    round_, _ = round_of(tmp_path)
    seen: list[tuple[int, int]] = []
    models: list[str] = []
    read, model = ColumnChunk.read, Round.read

    def reading(self: ColumnChunk, *args: Any) -> np.ndarray:
        seen.append((self.where.start, self.where.stop))
        assert self.rows == 4
        return read(self, *args)

    def opening(self: Round, which: str, *args: Any, **how: Any) -> Any:
        models.append(which)
        return model(self, which, *args, **how)

    monkeypatch.setattr(ColumnChunk, "read", reading)
    monkeypatch.setattr(Round, "read", opening)
    round_layers(round_, selections_of(LAYOUT, layers, "updates"))
    assert sorted(at for begin, end in seen for at in range(begin, end)) == list(range(94))
    assert models == ["start"]


def test_a_layer_that_stays_or_diverges_has_no_numbers_and_the_others_have(tmp_path: Path) -> None:
    def change(clients: np.ndarray, start: np.ndarray) -> None:
        clients[:, 24:28] = start[24:28]
        clients[2, 93] = np.inf

    round_, _ = round_of(tmp_path, change=change)
    with np.errstate(invalid="ignore"):
        by = {cell.layer: cell for cell in round_layers(round_, selections_of(LAYOUT, "each", "updates")).cells}
    assert (by["norm"].unmoved, by["norm"].cosine_mean, by["norm"].cancellation, by["norm"].mean_norm) == (
        4,
        None,
        None,
        0,
    )
    assert (by["scale"].diverged, by["scale"].mean_norm, by["all layers"].diverged) == (1, None, 1)
    assert math.isfinite(by["head"].cancellation or math.nan)
    assert by["head"].diverged == 0


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("hed", r"^layers 'hed' match none; did you mean \"head\"\?$"),
        ("/zz/", r"^layers '/zz/' match none; the model has conv, norm, "),
        (
            "still",
            r"^layers 'still' have no parameters, so nothing is told of them in updates; choose others",
        ),
        ("cumulative", r"^--layers cumulative is a cut of lines; for updates give each \(each layer alone\), or"),
    ],
)
def test_layers_that_there_are_not_are_refused(layers: str, message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        selections_of(LAYOUT, layers, "updates")


# --- at rest, in words, and drawn ---


def example(rounds: int = 3, layers: int = 4, pattern: str = "each") -> LayerUpdates:
    """Cosines and lengths from -0.3 and 0.2 on, growing with the layer."""
    cells = []
    for t in range(1, rounds + 1):
        for i in range(layers + 1):
            name = "all layers" if i == layers else f"blocks.{i}.conv"
            numbers = (0.1 * i - 0.3, 0.01, -0.5, 0.5, 2.0, 1.0, 0.9 - 0.1 * i / layers, 1.5, 0.5)
            cells.append(LayerRow(t, name, 10 * (i + 1), 6, *numbers, 0, 0))
    return LayerUpdates(tuple(cells), {"run": {"path": "runs/fma"}, "layers": pattern})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    result = example()
    gap = replace(result.cells[1], cosine_mean=None, cosine_stderr=None, diversity=math.inf)
    result = LayerUpdates((result.cells[0], gap, *result.cells[2:]), result.attrs)
    paths = result.save(tmp_path / "v1.5")
    assert [path.name for path in paths] == ["v1.5.updates-layers.csv", "v1.5.updates-layers.json"]
    back = fedscope.load(tmp_path / "v1.5")
    assert isinstance(back, LayerUpdates)
    assert back == result
    lines = paths[0].read_text().splitlines()
    assert lines[0].startswith("run,round,layer,parameters,clients,cosine_mean,")
    assert lines[2].startswith("fma,1,blocks.1.conv,20,6,,,-0.5,")
    assert RoundLayers.from_json(RoundLayers(result.cells).to_json()).cells == result.cells


def test_rounds_of_different_layers_are_refused() -> None:
    cells = example().cells
    for some in ((), cells[:-1], (*cells, cells[0])):
        with pytest.raises(
            FedscopeError, match=r"^updates by layer need a row for every round and layer; give at least"
        ):
            LayerUpdates(some)


def test_a_sentence_names_the_layers_that_agree_least_and_cancel_most() -> None:
    assert example().summary() == (
        "fma, round 3: updates agree least in blocks.0.conv, mean cosine -0.3 ± 0.01, and cancel most in "
        "blocks.3.conv, the mean keeps 0.825 of the length (orthogonal ones: 0.5); all layers together mean cosine "
        "0.1 ± 0.01, the mean keeps 0.8 of the length (orthogonal ones: 0.5); ± one standard error over clients"
    )
    one = example(layers=1).summary()
    assert one.startswith("fma, round 3: blocks.0.conv mean cosine -0.3 ± 0.01, the mean keeps 0.9 of the length")
    whole = LayerUpdates(tuple(cell for cell in example().cells if cell.layer == "all layers"), example().attrs)
    assert whole.summary().startswith("fma, round 3: all layers together mean cosine 0.1 ± 0.01, the mean keeps 0.8 ")
    cells = list(example().cells)
    cells[-5] = replace(cells[-5], cosine_mean=None, norm_of_mean=None, cancellation=None, diverged=2)
    cells[-2] = replace(cells[-2], cancellation=0.95)
    cells[-4] = replace(cells[-4], cancellation=0.1)
    words = LayerUpdates(tuple(cells), {"left_out": ["fma: round 9 left out"]}).summary()
    assert "updates agree least and cancel most in blocks.1.conv, mean cosine -0.2 ± 0.01, the mean keeps 0.1 " in words
    assert words.endswith("; clients diverged (2 in blocks.0.conv): no mean exists there\nfma: round 9 left out")
    cells[-4] = replace(cells[-4], cosine_mean=None, diverged=1)
    words = LayerUpdates(tuple(cells), {}).summary()
    assert words.endswith(
        "; clients diverged (2 in blocks.0.conv): no mean exists there; clients diverged (1 in blocks.1.conv): "
        "with weight 0, and only cosines over pairs are missing there"
    )


@pytest.mark.parametrize("width", [3.5, 7])
@pytest.mark.parametrize(
    "result", [example(), example(40, 60), example(1, 1), example(60, 2)], ids=["few", "many", "one", "long"]
)
def test_a_figure_shows_the_numbers_with_nothing_cut_off(result: LayerUpdates, width: float) -> None:
    figure = draw_layers(result, width, title="updates")
    upper, lower = (axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>")
    for axes, name in ((upper, "cosine_mean"), (lower, "cancellation")):
        shown = axes.images[0].get_array()
        assert shown is not None
        np.testing.assert_array_equal(np.asarray(shown), result.values(name))
        assert axes.get_yticklabels()[-1].get_text() == "all layers"
    low, high = upper.images[0].get_clim()
    assert low == -high  # so that white is 0
    assert_apart(assert_inside(figure, width))


def test_a_figure_says_what_hatched_cells_are() -> None:
    cells = list(example().cells)
    cells[0] = replace(cells[0], cosine_mean=None)
    figure = draw_layers(LayerUpdates(tuple(cells)), 7)
    assert "hatched: no client moved there" in " ".join(text.get_text() for text in figure.texts)
