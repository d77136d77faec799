"""Figures: the same bytes from the same data, the promised size and type, and no label over another."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawable import TITLES, four, layers, surface, two_pairs
from few import few
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from legible import assert_apart, assert_inside
from matplotlib.figure import Figure

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import Line, Plane, barrier_of, draw_panels
from fedscope.landscape.planes.basins import basin_of
from fedscope.landscape.planes.drawing.color_scales import SurfaceColours, distinct, scale_of
from fedscope.landscape.planes.drawing.fill import remarks
from fedscope.landscape.planes.page import page_figure
from fedscope.plotting.heatmaps import name_cells, signed_heat_map
from fedscope.plotting.layout import FigureLayout, wrap_words
from fedscope.plotting.levels import even_depth, even_levels, levels, round_edges, within
from fedscope.plotting.style import CHARACTER, save_figure

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.drawn]


def tiny() -> Plane:
    """Coordinates and differences of loss far below 1, as late global models have."""
    plane = surface(2)
    models = tuple(
        replace(m, a=0.04 * m.a, b=0.04 * m.b, loss=0.19 + 0.002 * m.loss, error=plane.error.min())
        for m in plane.models
    )
    error = np.round(360 * np.minimum(0.05 + plane.error / 30, 1)) / 360
    return replace(
        plane, a=0.04 * plane.a, b=0.04 * plane.b, loss=0.19 + 0.002 * plane.loss, error=error, models=models
    )


def panels(width: float) -> Figure:
    return draw_panels(four(), TITLES, width)


def drawings() -> dict[str, tuple[Figure, float]]:
    figures = {}
    for width in (3.5, 7.0):
        figures[f"plane {width}"] = (surface().figure(width), width)
        figures[f"tiny {width}"] = (tiny().figure(width), width)
        figures[f"tiny panels {width}"] = (draw_panels([tiny(), surface(), tiny()], TITLES[:3], width), width)
        figures[f"many {width}"] = (surface(shown=5).figure(width, "A title"), width)
        figures[f"path {width}"] = (surface(shown=12).figure(width), width)
        figures[f"panels {width}"] = (panels(width), width)
        figures[f"rows {width}"] = (
            draw_panels([four(), four()], [TITLES, TITLES], width, "T", rows=["fma", "ima"]),
            width,
        )
        figures[f"line {width}"] = (two_pairs().figure(width, "A title"), width)
    for width in (2.0, 3.5, 7.0):
        figures[f"layers {width}"] = (layers(3).figure(width, "A title"), width)
        figures[f"many layers {width}"] = (layers(40, 81, 50.0).figure(width), width)
    return figures


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Figure, float]]:
    return drawings()


def test_the_same_data_make_the_same_bytes(tmp_path: Path, drawn: dict[str, tuple[Figure, float]]) -> None:
    # one figure, with a filled surface: all are written by one function
    for name, figure in {"plane 3.5": surface().figure(3.5)}.items():
        first = save_figure(drawn[name][0], tmp_path / "first")
        second = save_figure(figure, tmp_path / "second")
        assert [path.suffix for path in first] == [".pdf", ".png"]
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes() == other.read_bytes(), f"{name}{one.suffix}"


def test_a_pdf_embeds_truetype_a_rasterised_fill_and_no_dates(tmp_path: Path) -> None:
    pdf, png = save_figure(surface().figure(3.5), tmp_path / "deeper" / "plane-v1.5")
    assert (pdf.name, png.name) == ("plane-v1.5.pdf", "plane-v1.5.png")
    content = pdf.read_bytes()
    assert b"/FontType 42" in content or b"/CIDFontType2" in content or b"/TrueType" in content
    assert b"/Type3" not in content
    assert content.count(b"/Subtype /Image") == 1
    assert b"Date" not in content
    assert len(content) < 150_000
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", content)
    assert box is not None
    assert float(box[1]) == pytest.approx(3.5 * 72)


def test_the_users_style_does_not_matter(tmp_path: Path) -> None:
    import matplotlib

    before = save_figure(surface().figure(), tmp_path / "a", ("png",))[0].read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "image.cmap": "jet", "savefig.bbox": "tight"}):
        after = save_figure(surface().figure(), tmp_path / "b", ("png",))[0].read_bytes()
        assert matplotlib.rcParams["font.size"] == 20
    assert before == after


def test_no_label_lies_over_another_or_outside(drawn: dict[str, tuple[Figure, float]]) -> None:
    for figure, width in drawn.values():
        boxes = assert_inside(figure, width)
        assert len(boxes) > 10
        assert_apart(boxes)


def test_long_tick_labels_do_not_reach_into_the_panel_before() -> None:
    plane = surface()
    fine = replace(plane, a=np.linspace(-0.05, 0.1, len(plane.a)), b=np.linspace(-0.053, 0.104, len(plane.b)))
    figure = draw_panels([[fine] * 4], [TITLES], 7.3)
    figure.draw_without_rendering()
    first, second = (axes for axes in figure.axes if axes.get_title() in TITLES[:2])
    labels = [label for label in second.get_yticklabels() if label.get_text()]
    assert any(len(label.get_text()) == 5 for label in labels), "as −0.05"
    shown = [label.get_window_extent().x0 for label in labels if -0.053 <= label.get_position()[1] <= 0.104]
    assert (min(shown) - first.get_window_extent().x1) / figure.dpi > 0.04, "inches, half a small letter"


def test_levels_are_logarithmic_in_the_excess_and_shared() -> None:
    planes = [surface(0, floor=0.1), surface(1, floor=1.0)]
    scale = scale_of(planes, "loss")
    lowest = min(plane.loss.min() for plane in planes)
    lowest = min(lowest, *(m.loss for plane in planes for m in plane.models))
    assert scale.edges[0] == lowest
    edges, _ = levels(np.concatenate([plane.loss.ravel() for plane in planes]), lowest)
    steps = np.diff(np.log(edges[1:] - lowest))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-9)
    moved = np.abs(scale.edges - edges)[1:-1]
    assert (moved <= np.minimum(np.diff(edges)[:-1], np.diff(edges)[1:]) / 5).all(), "rounded a little"
    highest = max(plane.loss.max() for plane in planes)
    assert highest <= scale.edges[-1] < highest + np.diff(edges)[-1] / 5 * 1.001
    assert not scale.above
    assert scale_of(planes, "error").label == "test error (%)"


def test_levels_of_the_error_are_not_finer_than_a_sample() -> None:
    plane = tiny()
    edges = scale_of([plane], "error").edges
    assert np.diff(edges).min() >= 100 / 360 / 2 * (1 - 1e-9)


def test_an_outlier_does_not_swallow_the_levels() -> None:
    plane = surface()
    top = plane.loss.max()
    plane.loss[0, 0] = 1e9
    scale = scale_of([plane], "loss")
    assert scale.above
    assert scale.edges[-1] < 25 * top


def test_what_is_not_finite_is_counted_and_hatched(tmp_path: Path) -> None:
    plane = surface()
    whole = save_figure(plane.figure(), tmp_path / "whole", ("png",))[0].read_bytes()
    plane.loss[-6:, -6:] = np.inf
    plane.loss[0, 0] = np.nan
    assert remarks([plane]) == "digits test, 360 samples; 37 of 441 points not finite (hatched)"
    figure = plane.figure()
    assert any("37 of 441 points not finite" in text.get_text() for text in figure.texts)
    assert save_figure(figure, tmp_path / "holes", ("png",))[0].read_bytes() != whole
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
    axes = figure.axes[0]
    x, y = axes.transData.transform((plane.a[-3], plane.b[-3]))
    patch = pixels[len(pixels) - int(y) - 6 : len(pixels) - int(y) + 6, int(x) - 6 : int(x) + 6, :3].reshape(-1, 3)
    assert (np.ptp(patch.astype(int), axis=1) < 8).all(), "grey, no colour of the scale"
    assert len(np.unique(patch[:, 0])) > 1, "hatched"


@pytest.mark.parametrize("value", [np.nan, 2.5])
def test_a_surface_without_relief_is_drawn(value: float, tmp_path: Path) -> None:
    plane = surface()
    plane.loss[:], plane.error[:] = value, value
    save_figure(plane.figure(7.0), tmp_path / "flat")


def test_a_line_that_breaks_says_so() -> None:
    line = two_pairs()
    line.loss[0, :5] = np.nan
    assert any("5 of 82 points not finite" in text.get_text() for text in line.figure().texts)


def test_numbers_on_the_colour_bar_differ() -> None:
    assert distinct([0.1, 0.1004, 0.2, 3.0]) == ["0.1", "0.1004", "0.2", "3"]
    assert distinct([0.0, 1e-12, 3e-5, 0.1]) == ["0", "1.0e−12", "3.0e−5", "0.1"]
    assert distinct([1e29, 1.02e29, 2e30]) == ["1.00e29", "1.02e29", "2.0e30"]
    assert distinct([-5.0, -4.5, 0.0]) == ["−5", "−4.5", "0"]
    assert distinct([3.0, 3 + 1e-12, 3.5]) == ["3", "", "3.5"], "rather none than the same twice"


@pytest.mark.parametrize("height", [0.5, 1.2, 2.0, 3.0])
def test_both_ends_of_a_colour_bar_have_their_number(height: float) -> None:
    scale = scale_of([surface()], "loss", SurfaceColours(loss_limits=(0.5, 2.0)))
    at, texts = scale.numbers_within(height)
    assert (at[0], at[-1], texts[0], texts[-1]) == (0.5, 2.0, "0.5", "2")
    places = np.searchsorted(scale.edges, at) / (len(scale.edges) - 1) * height
    assert len(at) == 2 or np.diff(places).min() > 0.115, "inches, a line of small type"


def test_the_page_is_whole_and_the_same_twice() -> None:
    plane = surface()
    plane.loss[3, 3] = np.inf
    page = plane.page("Title")
    assert page == plane.page("Title")
    assert "plotly.js" in page
    head = page.partition("</head>")[0]
    assert '<html lang="en">' in head
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in head
    assert "<title>Title</title>" in head
    assert 'src="http' not in page, "nothing is fetched"
    assert "client-8: loss" in page
    assert "1 of 441 points not finite (holes)" in page
    assert '"surface"' in page
    assert '"contour"' in page


def test_plotly_knows_every_word_of_the_page() -> None:
    """The layout is written without plotly's own look at it."""
    import plotly.graph_objects as go

    said = surface().page("Title").rpartition("Plotly.newPlot(")[2]
    data, end = json.JSONDecoder().raw_decode(said, said.index("["))
    layout, _ = json.JSONDecoder().raw_decode(said, said.index("{", end))
    figure = go.Figure(data, layout)  # raises at a word or a value that it does not know
    assert figure.layout.scene.zaxis.title.text == "loss (nats),<br>log above minimum"
    assert figure.layout.template.layout.paper_bgcolor == "white"
    assert figure.layout.scene.domain.x[1] < figure.layout.xaxis.domain[0], "side by side"


def test_a_model_shown_on_several_panels_has_one_key() -> None:
    texts = [text.get_text() for text in draw_panels([four(), four()], [TITLES, TITLES], 7.0).texts]
    assert sum(text.startswith("ima@60: loss ") for text in texts) == 1


@pytest.mark.parametrize("scale", [1e17, 1e36])  # float32 ends at 3e38
def test_diverged_losses_are_drawn_too(scale: float) -> None:
    wild = surface(scale=scale)
    assert wild.figure(3.5).axes
    assert draw_panels([wild, surface()], ["wild", "tame"], 3.5).axes


@given(
    hnp.arrays(np.float64, st.integers(2, 30), elements=st.floats(1e-3, 1.0)),
    st.floats(-10, 10),
    st.integers(-3, 3),
)
def test_round_edges_stay_in_order_and_lose_no_value(gaps: np.ndarray, least: float, power: int) -> None:
    edges = least + np.concatenate([[0.0], np.cumsum(gaps)]) * 10.0**power
    moved = round_edges(edges)
    assert moved[0] == edges[0]
    assert moved[-1] >= edges[-1], "the highest value is within the last band"
    assert (np.diff(moved) > 0).all()
    thin = np.minimum(np.diff(edges)[:-1], np.diff(edges)[1:])
    assert (np.abs(moved - edges)[1:-1] <= thin / 5 * (1 + 1e-9)).all()


def test_equal_limits_are_equal_scales_whatever_is_drawn() -> None:
    """So that two figures can be compared; what is beyond them has an arrow at its end of the colour bar."""
    ends = SurfaceColours(loss_limits=(0.5, 2.0), error_limits=(0.0, 100.0))
    low, high = (scale_of([surface(seed, floor=floor)], "loss", ends) for seed, floor in ((0, 0.1), (1, 1.0)))
    np.testing.assert_array_equal(low.edges, high.edges)
    assert (low.edges[0], low.edges[-1]) == (0.5, 2.0)
    plane = surface(0, floor=0.1)
    assert (low.below, low.above) == ((plane.loss < 0.5).any(), (plane.loss > 2.0).any()) == (True, True)
    assert low.extend == "both"
    error = scale_of([surface(0)], "error", ends)
    assert (error.edges[[0, -1]].tolist(), error.extend) == ([0.0, 100.0], "neither")
    assert np.diff(within(0.0, 100.0, step=5.0)).min() >= 5.0 * (1 - 1e-9)


def ridge() -> Plane:
    """The mean at the maximum of a narrow range, as of three fine-tuned models."""
    plane = surface(0, floor=0.0)
    x, y = np.meshgrid(plane.a - plane.models[3].a, plane.b - plane.models[3].b)
    return replace(plane, loss=0.0067 + 0.0084 * np.exp(-(x**2) / 2 - 0.02 * y**2), attrs={**plane.attrs})


def bars(figure: Figure, width: float) -> list[str]:
    """What stands at the colour bars."""
    return [axes.get_ylabel() for axes in figure.axes if axes.get_position().width * width < 0.2]


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("width", few([2.5, 3.5, 7.0], lambda width: width == 3.5))
def test_every_colour_bar_says_its_scale(scale: str, width: float) -> None:
    figures = {
        "plane": surface().figure(width, colour_scale=scale),
        "limits": surface().figure(width, colour_scale=scale, loss_limits=(0.5, 2.0)),
        "panels": draw_panels(four(), TITLES, width, colours=SurfaceColours(colour_scale=scale)),
        "each": draw_panels(four(), TITLES, width, colours=SurfaceColours(colour_scale=scale), scale="panel"),
    }
    for name, figure in figures.items():
        assert_apart(assert_inside(figure, width))
        said = [label.split("\n") for label in bars(figure, width) if label]
        assert said, name
        assert all(len(label) == 2 and label[1].startswith(scale) for label in said), said
    if scale == "log":
        if width == 3.5:
            assert bars(figures["plane"], width) == ["test loss (nats)\nlog scale above the minimum"]
        assert all(label.endswith(" above 0.5") for label in bars(figures["limits"], width)[:1])


@given(
    hnp.arrays(np.float64, st.integers(4, 40), elements=st.floats(0, 1)),
    st.floats(-10, 10),
    st.integers(-4, 4),
    st.floats(0, 0.3),
)
def test_linear_bands_are_alike_and_hold_every_value(
    values: np.ndarray, floor: float, power: int, thinnest: float
) -> None:
    values = floor + values * 10.0**power
    least, step = float(values.min()), thinnest * 10.0**power
    edges, above = even_levels(values, least, step=step)
    assert edges[0] <= least
    gaps = np.diff(edges)
    np.testing.assert_allclose(gaps, gaps.mean(), rtol=1e-6)
    assert gaps.mean() >= step * (1 - 1e-9)
    assert len(edges) <= 24
    assert above or values.max() <= edges[-1] + 1e-12 * abs(edges[-1])
    # an affine function of the value, by which pages have their heights
    heights = even_depth(values, edges)
    np.testing.assert_allclose(
        edges[0] + heights * gaps.mean(), values, atol=1e-9 * max(1.0, abs(floor), np.ptp(edges))
    )


def test_a_ridge_on_top_is_seen_on_a_linear_scale_alone() -> None:
    plane = ridge()
    high = plane.loss > 0.0067 + 0.5 * 0.0084  # the upper half of the range
    shades = {}
    for name in ("log", "linear"):
        scale = scale_of([plane], "loss", SurfaceColours(colour_scale=name))
        shades[name] = len(set(np.digitize(plane.loss[high], scale.edges)))
    assert shades["log"] <= 3, "one flat patch"
    assert shades["linear"] >= 7


def test_pages_have_the_scale_as_their_height_and_say_it() -> None:
    plane = surface()
    for name in ("log", "linear"):
        figure = page_figure(plane, colours=SurfaceColours(colour_scale=name))
        z = figure["data"][0]["z"]
        heights = np.frombuffer(b64decode(z["bdata"]), z["dtype"]).reshape(plane.loss.shape)
        correlation = np.corrcoef(heights.ravel(), plane.loss.ravel())[0, 1]
        assert bool(correlation > 1 - 1e-9) is (name == "linear"), "as high as the loss itself"
        assert name in figure["layout"]["scene"]["zaxis"]["title"]["text"]
        assert figure["data"][0]["colorbar"]["title"]["text"].partition("<br>")[2].startswith(name)
        # the numbers at the axis stand where their losses are
        axis = figure["layout"]["scene"]["zaxis"]
        edges = scale_of([plane], "loss", SurfaceColours(colour_scale=name)).edges
        for at, text in zip(axis["tickvals"], axis["ticktext"], strict=True):
            assert float(text) == pytest.approx(edges[at], rel=0.06)


def test_panels_share_a_scale_as_asked() -> None:
    rows = [[surface(0, floor=0.1), surface(1, floor=1.0)], [surface(2, floor=3.0), surface(3, floor=9.0)]]
    titles = [["a", "b"], ["c", "d"]]

    def drawn(scale: str) -> tuple[list[float], int, int]:
        """Where each panel's colours of the loss begin, and how many colour bars there are, with and without words."""
        figure = draw_panels(rows, titles, 7.0, scale=scale)
        filled = [axes for axes in figure.axes if axes.get_title()]
        starts = [float(axes.collections[0].norm.boundaries[0]) for axes in filled]  # type: ignore[union-attr]
        bars = [axes for axes in figure.axes if axes.get_position().width * 7 < 0.2]
        return starts, sum("(nats)" in axes.get_ylabel() for axes in bars), len(bars)

    least = [[float(scale_of([plane], "loss").edges[0]) for plane in row] for row in rows]
    assert drawn("figure") == ([min(map(min, least))] * 4, 2, 4)
    assert drawn("row") == ([*[min(least[0])] * 2, *[min(least[1])] * 2], 2, 4)
    assert drawn("panel") == ([*least[0], *least[1]], 2, 8), "the last bar of a row has the label"


@pytest.mark.parametrize("width", [3.0, 3.5, 7.0])
def test_panels_with_a_bar_each_can_be_read(width: float) -> None:
    assert_apart(assert_inside(draw_panels(four(), TITLES, width, scale="panel"), width))


def test_the_minimum_is_marked_where_the_table_says_it_is() -> None:
    plane = surface()
    basin = basin_of(plane)
    assert basin is not None
    figure = plane.figure(7.0)
    panels = [axes for axes in figure.axes if axes.get_position().width * 7 > 0.2]
    marked = [
        [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines if line.get_marker() == "+"]  # type: ignore[index]
        for axes in panels
    ]
    assert marked == [[(basin.a, basin.b)], []], "on the loss, and not on the error"
    assert f"{basin.loss:#.3g}" in [text.get_text() for text in figure.texts]
    assert any(text.get_text().startswith("distance to the minimum") for text in figure.texts)


@pytest.mark.parametrize(
    ("colours", "said"),
    [
        ({"cmap": "virids"}, "cmap='virids' is no colour map of matplotlib; did you mean \"viridis\"?"),
        ({"cmap": "zzz"}, "cmap='zzz' is no colour map of matplotlib; viridis, cividis and magma are three"),
        ({"loss_limits": (2.0, 1.0)}, "loss_limits=2 1 is no scale; give two numbers, the lower one first"),
        ({"loss_limits": (1.0, 1 + 1e-14)}, "loss_limits=1 1 is no scale; give two numbers, the lower one first"),
        (
            {"loss_limits": (-1e308, 1e308)},
            "loss_limits=-1e+308 1e+308 is no scale; give two numbers, the lower one first",
        ),
        (
            {"colour_scale": "linaer"},
            "colour_scale='linaer' is no scale of colours; did you mean \"linear\"?",
        ),
        ({"error_limits": (0.0, np.inf)}, "error_limits=0 inf is no scale; give two numbers, the lower one first"),
    ],
)
def test_colours_that_are_none_are_refused(colours: dict[str, Any], said: str) -> None:
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}$"):
        surface().figure(**colours)


def test_another_colour_map_colours_figure_and_page() -> None:
    plane = surface()
    assert plane.figure(3.5, cmap="cividis").axes[0].collections[0].get_cmap().name == "cividis"  # type: ignore[union-attr]
    said = plane.page(cmap="cividis").rpartition("Plotly.newPlot(")[2]
    assert "#00224e" in said, "its darkest colour"


@pytest.mark.parametrize("cmap", ["viridis_r", "tab10", "Set1", "twilight"])
def test_maps_of_few_colours_and_reversed_ones_colour_surfaces(cmap: str) -> None:
    """A map of ten colours has none for each of twenty bands."""
    figure = surface().figure(7.0, cmap=cmap, loss_limits=(0.0, 2.0))
    assert len(figure.axes[0].collections) > 0
    assert surface().page(cmap=cmap)


@pytest.mark.parametrize("limits", [(100.0, 200.0), (-5.0, -1.0), (0.0, 1e-3), (1e29, 1e30), (1e-12, 2e-12)])
def test_limits_that_no_value_is_within_are_drawn(limits: tuple[float, float]) -> None:
    scale = scale_of([surface()], "loss", SurfaceColours(loss_limits=limits))
    assert (scale.below, scale.above) == (limits[0] > 50, limits[1] < 1)
    assert_apart(assert_inside(surface().figure(7.0, loss_limits=limits), 7.0))


def test_an_infinite_loss_is_a_hole_of_the_page_whatever_its_sign() -> None:
    plane = surface()
    plane.loss[0, :3] = [-np.inf, np.inf, np.nan]
    for colours in (None, SurfaceColours(loss_limits=(0.5, 2.0))):
        z = page_figure(plane, None, colours)["data"][0]["z"]
        heights = np.frombuffer(b64decode(z["bdata"]), z["dtype"]).reshape(plane.loss.shape)
        np.testing.assert_array_equal(np.isnan(heights), ~np.isfinite(plane.loss))


def test_a_round_edge_is_zero_where_it_can_be() -> None:
    assert round_edges(within(-1.0, 1.0))[-3] == 0.0


@pytest.mark.parametrize("count", [3, 12, 40, 200])
@pytest.mark.parametrize("side", [0.6, 1.0, 2.2])
def test_names_of_cells_are_legible_and_apart(count: int, side: float) -> None:
    names = [str(7 * i) for i in range(count)]
    sheet = FigureLayout(side + 1.0, side + 1.0)
    axes = sheet.axes(0.5, 0.2, side, side)
    signed_heat_map(axes, np.eye(count))
    name_cells(axes, names, side)
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    every = len(labels) == 2 * count
    assert min(label.get_fontsize() for label in labels) >= (5.5 if every else 6), "points"
    assert every == (72 * side / count >= 5), "where there is room for a number, it is there"
    assert [label.get_text() for label in axes.get_yticklabels()][:1] == ["0"]
    assert_apart(assert_inside(sheet.finished([]), side + 1.0))


def test_a_number_of_samples_stays_with_its_word() -> None:
    for letters in range(15, 60):
        lines = wrap_words("means over subsets; digits test, 1,360 samples; others", letters * CHARACTER + 0.001)
        assert not any(line.startswith("samples") for line in lines)
        assert " ".join(lines) == "means over subsets; digits test, 1,360 samples; others"


def test_a_line_says_what_its_dotted_line_is() -> None:
    said = " ".join(text.get_text() for text in two_pairs().figure().texts)
    assert "barrier: the highest rise above the dotted line" in said


def test_the_dotted_line_is_straight_on_a_logarithmic_axis_too() -> None:
    """Between its ends alone it would be a geometric mean, under which no barrier is."""
    beta = np.linspace(0, 1, 11)
    loss = (0.05 + beta**3)[None]
    barrier, where = np.transpose([barrier_of(beta, loss[0])])
    line = Line(("a - b",), (("a@1", "b@1"),), beta, loss, loss / 10, barrier, where, {}, loss[:, [10, 0]], None)
    axes = line.figure().axes[0]
    assert axes.get_yscale() == "log"
    (dotted,) = [one for one in axes.lines if one.get_linestyle() == ":"]
    x, y = dotted.get_xdata(), dotted.get_ydata()
    np.testing.assert_allclose(y, 0.05 + x)
    assert len(x) > 50
    assert [float(x[i]) for i in dotted.get_markevery()] == [0, 1], "and the dots are the models"
    line = replace(line, loss=loss + 1)
    dotted = next(one for one in line.figure().axes[0].lines if one.get_linestyle() == ":")
    assert list(dotted.get_xdata()) == [0, 1]
