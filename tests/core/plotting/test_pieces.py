"""The pieces that figures and pages are put together from, each by what it is for."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from plotly.offline import get_plotlyjs

from fedscope.checkpoints import FedscopeError
from fedscope.plotting.heatmaps import signed_heat_map
from fedscope.plotting.layout import (
    FEWEST,
    LINE,
    TITLE_LINE,
    FigureLayout,
    legend_rows,
    readable_columns,
    title_lines,
)
from fedscope.plotting.levels import BANDS, RATIO, within
from fedscope.plotting.spread import mean_band
from fedscope.plotting.static_fallback import Still
from fedscope.plotting.style import CHARACTER, SMALL, clip_label, paper_style
from fedscope.plotting.ticks import DOT, crosses, even, from_zero, label_ends, label_points, room_for_ends
from fedscope.plotting.web_page import as_page, split_library

pytestmark = pytest.mark.same_elsewhere

KEY, GAP, LEFT = 0.3, 0.1, 0.2


@given(st.lists(st.text("abc", min_size=1, max_size=30), max_size=12), st.floats(0.5, 4.0))
def test_entries_of_a_legend_are_all_there_in_their_order_and_end_before_its_width(
    labels: list[str], width: float
) -> None:
    legend = legend_rows(labels, LEFT, width, KEY, GAP)
    most = int((width - LEFT - KEY) / CHARACTER)
    for label, shown in zip(labels, legend.labels, strict=True):
        fits = len(label) <= most or most < FEWEST
        assert (shown == label) if fits else (len(shown) <= most and "…" in shown), "cut where it is wider than a row"
    assert [*dict.fromkeys(row for _, row in legend.places)] == [*range(legend.rows)]
    assert legend.height == pytest.approx(LINE * legend.rows)
    behind = dict.fromkeys(range(legend.rows), LEFT)
    for label, (left, row) in zip(legend.labels, legend.places, strict=True):
        end = left + KEY + CHARACTER * len(label)
        assert left == pytest.approx(behind[row])
        assert end <= width or left == LEFT, "one that is wider than a row has one of its own"
        behind[row] = end + GAP


def test_a_legend_is_drawn_row_by_row_with_each_label_right_of_its_symbol() -> None:
    sheet, symbols = FigureLayout(2.0, 1.0), []
    legend = legend_rows(["ima", "fma", "fedprox"], LEFT, 1.3, KEY, GAP)
    legend.draw(sheet, 0.4, lambda i, left, middle: symbols.append((i, left, middle)), KEY)
    assert [row for _, row in legend.places] == [0, 0, 1]
    assert symbols == [
        (i, left, pytest.approx(0.4 + LINE * (row + 0.5))) for i, (left, row) in enumerate(legend.places)
    ]
    texts = [(text.get_text(), *text.get_position()) for text in sheet.figure.texts]
    for (label, x, y), (i, left, middle) in zip(texts, symbols, strict=True):
        assert label == legend.labels[i]
        assert (x * 2.0, (1 - y) * 1.0) == (pytest.approx(left + KEY), pytest.approx(middle))


def test_a_symbol_of_a_legend_is_a_line_with_its_marker_in_the_middle_or_the_marker_alone() -> None:
    look = {"color": "#0072b2", "linestyle": "--", "marker": "s"}
    sheet = FigureLayout(2.0, 1.0)
    sheet.symbol(0.5, 0.25, look, 0.4)
    sheet.symbol(1.5, 0.75, look)
    drawn = [(line.get_xydata(), line.get_linestyle(), line.get_marker()) for line in sheet.figure.findobj(Line2D)]
    line, middle, alone = (np.column_stack([2 * at[:, 0], 1 - at[:, 1]]).round(9).tolist() for at, _, _ in drawn)
    assert (line, middle, alone) == ([[0.5, 0.25], [0.9, 0.25]], [[0.7, 0.25]], [[1.5, 0.75]]), "inches from the top"
    assert [marker for _, _, marker in drawn] == ["None", "s", "s"]
    assert drawn[0][1] == "--"


WIDE, HIGH = 3.0, 2.0


def labels_of(points: list[tuple[float, float, str, str]], most: int | None = None) -> dict[str, np.ndarray]:
    """Where the middles of the labels come to lie beside points of a panel, in inches."""
    axes = Figure().add_subplot()
    axes.set(xlim=(0, WIDE), ylim=(0, HIGH))
    label_points(axes, points, WIDE, HIGH, most)
    return {text.get_text(): text.get_position() * np.array([WIDE, HIGH]) for text in axes.texts}


@pytest.mark.parametrize("across", [1, -1])
@pytest.mark.parametrize("up", [1, -1])
def test_a_label_stands_at_the_corner_of_its_point_that_lies_inside_the_panel(across: int, up: int) -> None:
    at = np.array([0.1 if across > 0 else WIDE - 0.1, 0.1 if up > 0 else HIGH - 0.1])
    (found,) = labels_of([(*at, "label", "k")]).values()
    half = np.array([CHARACTER * len("label"), SMALL / 72]) / 2
    np.testing.assert_allclose(found, at + np.array([across, up]) * (half + DOT))


@given(st.lists(st.tuples(st.floats(0, WIDE), st.floats(0, HIGH)), max_size=12), st.none() | st.integers(0, 4))
def test_labels_of_points_cover_neither_points_nor_each_other(at: list[tuple[float, float]], most: int | None) -> None:
    found = labels_of([(x, y, f"p{i:02}", "k") for i, (x, y) in enumerate(at)], most)
    assert len(found) <= (len(at) if most is None else most)
    half, dot = np.array([CHARACTER * 3, SMALL / 72]) / 2, np.array([DOT, DOT])
    boxes = [(middle - half, middle + half) for middle in found.values()]
    assert all((low >= -1e-9).all() and (high <= np.array([WIDE, HIGH]) + 1e-9).all() for low, high in boxes)
    others = [*boxes, *((np.array(place) - dot, np.array(place) + dot) for place in at)]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in others[i + 1 :]:
            assert (np.minimum(high, other_high) - np.maximum(low, other_low)).min() < 1e-6


@pytest.mark.parametrize(
    ("values", "greatest"),
    [
        ([[0.2, -0.5]], 0.5),
        ([[3.0, np.nan], [-1.0, -np.inf]], 3.0),
        ([[1e-12, 0.0]], 1e-12),
        ([[0.0, 0.0]], 1.0),
        ([[np.nan]], 1.0),
    ],
)
def test_a_map_with_a_sign_is_white_at_zero_and_uses_all_of_its_colours(values: list[list[float]], greatest: float):
    axes = Figure().add_subplot()
    image = signed_heat_map(axes, np.array(values))
    assert image.get_clim() == (-greatest, greatest)
    np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), ~np.isfinite(values))
    assert image.cmap(image.norm(0.0))[:3] == pytest.approx((1, 1, 1), abs=0.05)
    colours = {to_hex(spine.get_edgecolor()) for spine in axes.spines.values() if spine.get_visible()}
    assert (len(axes.spines), len(colours)) == (4, 1), "a line all round"
    assert {tick.tick1line.get_markersize() for tick in axes.xaxis.get_major_ticks()} == {0}, "names without ticks"


@given(st.floats(-100, 100), st.floats(0.1, 100), st.floats(0, 1))
def test_bands_between_given_limits_end_there_grow_by_a_ratio_and_are_not_finer_than_a_step(
    low: float, size: float, step: float
) -> None:
    edges = within(low, low + size, step=step * size)
    assert (edges[0], edges[-1]) == (low, pytest.approx(low + size))
    shares = (edges[1:] - low) / size
    np.testing.assert_allclose(shares[1:] / shares[:-1], shares[-1] / shares[-2], rtol=1e-6)
    if step < 1e-4:
        np.testing.assert_allclose(shares, RATIO ** (np.arange(BANDS) + 1.0 - BANDS), rtol=1e-6)
    elif step < (RATIO - 1) / 2:
        assert np.diff(shares).min() > 0.8 * step, "a fifth for a whole number of bands"
    else:  # half of the range, and two bands that share the other half
        np.testing.assert_allclose(shares, [1 / 2, 1 / np.sqrt(2), 1])


def test_a_band_about_a_mean_lies_behind_its_line_and_nowhere_without_a_spread() -> None:
    axes = Figure().add_subplot()
    x, mean, spread = np.arange(4.0), np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.5, 0.25, 1.0, np.nan])
    (line,) = axes.plot(x, mean)
    mean_band(axes, x, mean, spread, "#0072b2")
    (band,) = axes.collections
    assert band.get_zorder() < line.get_zorder()
    (path,) = band.get_paths()
    corners = {(float(a), float(b)) for a, b in path.vertices}
    assert {(a, m - s) for a, m, s in zip(x[:3], mean, spread, strict=False)} <= corners
    assert {(a, m + s) for a, m, s in zip(x[:3], mean, spread, strict=False)} <= corners
    assert max(a for a, _ in corners) == 2


def test_crosses_stand_at_the_axis_where_a_value_is_not_finite() -> None:
    axes = Figure().add_subplot()
    crosses(axes, np.array([1, 2, 5]), np.array([np.nan, 3.0, np.inf]), 0.02)
    (line,) = axes.lines
    assert (list(line.get_xdata()), list(line.get_ydata()), line.get_marker()) == ([1, 5], [0.02, 0.02], "x")
    assert line.get_transform() == axes.get_xaxis_transform(), "across in data, upwards in shares of the panel"


def test_the_highest_marker_has_room_above_it() -> None:
    """The margin of values from 97 to 100 is of three of them, and the axis begins at 0."""
    for values, top in (([97.0, 100.0], 108.0), ([0.0, 100.0], 108.0), ([np.nan, 50.0], 54.0)):
        axes = Figure().add_subplot()
        axes.plot([1, 2], values, "o")
        from_zero(axes)
        assert axes.get_ylim() == (0.0, pytest.approx(top))


def test_labels_at_the_ends_name_the_lines_of_all_panels_side_by_side() -> None:
    """A line that only a panel further left has is named, too, and each once."""
    left, right = Figure().subplots(1, 2, sharey=True)
    left.plot([1, 2], [3, 4], color="#000000", label="averaged")
    left.plot([1, 2], [5, 6], color="#777777", label="global")
    right.plot([1, 2], [5, 8], color="#777777", label="global")
    right.plot([1, 2], [0, np.nan], label="_bar")
    label_ends(right, 1.0, [left])
    found = {text.get_text(): text.get_position()[1] for text in right.texts}
    assert list(found) == ["averaged", "global"]
    places = (right.transScale + right.transLimits).transform([(0, 4), (0, 8)])[:, 1]
    assert list(found.values()) == pytest.approx(places.tolist())
    assert not left.texts


def test_a_page_is_one_document_that_runs_two_scripts_both_known_by_hash() -> None:
    page = as_page(go.Figure(go.Scatter(x=[1], y=["</script><b>"])), "a < b", "drawn", Still(b"", "words"), "narrow()")
    for tag in ("<!DOCTYPE html>", "<html", "<head>", "<body>", "<title>", '<div id="drawn"'):
        assert page.replace(get_plotlyjs(), "").count(tag) == 1, tag
    scripts = re.findall(r"<script>(.*?)</script>\n", page, re.DOTALL)
    assert [scripts[0] == get_plotlyjs(), "narrow()" in scripts[1]] == [True, True]
    assert len(scripts) == page.count("</script>") == 2
    hashes = re.findall(r"'sha256-([^']+)'", page.partition("<title>")[0])
    assert hashes == [b64encode(sha256(one.encode()).digest()).decode() for one in scripts]
    # the library can lie beside many pages: what is left is the page without it, and lets only that file run
    rest, name, library = split_library(page)
    assert library.decode() == scripts[0]
    assert re.findall(r"<script>(.*?)</script>\n", rest, re.DOTALL) == scripts[1:]
    nonce, opened = re.findall(r'<script nonce="([^"]+)" src="([^"]+)">', rest)[0]
    assert (opened, rest.count(f'src="{name}"'), rest.count(f"'nonce-{nonce}' 'sha256-{hashes[1]}'")) == (name, 1, 1)
    assert split_library(page.replace(hashes[0], hashes[1])) == (page.replace(hashes[0], hashes[1]), "", b"")


@pytest.mark.parametrize(("rounds", "ticks"), [([3], [3]), ([1, 2], [1, 2]), ([1, 4], [1, 2, 3, 4])])
def test_rounds_are_whole_numbers_where_only_one_has_a_number(rounds: list[int], ticks: list[int]) -> None:
    axes = Figure().subplots()
    axes.plot([1, 2, 3, 4], [1.0 if number in rounds else np.nan for number in (1, 2, 3, 4)], marker="o")
    even(axes.xaxis, 6, integer=True)
    low, high = sorted(axes.get_xlim())
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == ticks


def test_a_value_below_0_is_within_a_panel_that_begins_at_0_else() -> None:
    """As the negative losses of a task of one's own; of a band of numbers that are not negative, the part above 0."""
    for values in ([-3.0, -1.0], [-1.0, 2.0], [np.nan, -2.0, -1.0]):
        axes = Figure().add_subplot()
        axes.plot(np.arange(len(values)), np.ma.masked_invalid(values))
        from_zero(axes)
        low, high = axes.get_ylim()
        assert low < np.nanmin(values) < np.nanmax(values) < high
    axes = Figure().add_subplot()
    axes.errorbar([1, 2], [1.0, 2.0], yerr=[3.0, 1.0], capsize=2)
    mean_band(axes, np.array([1, 2]), np.array([1.0, 2.0]), np.array([3.0, 1.0]), "black")
    from_zero(axes)
    assert axes.get_ylim()[0] == 0


def test_labels_that_fill_a_panel_stand_beside_it() -> None:
    """Lines that end close together have labels as high as the panel, which would reach into the next one."""
    for last in (0.0, 1.0):
        axes = Figure().add_subplot()
        for i in range(20):
            axes.plot([1, 2], [0.5, last + 1e-6 * i], color="#000000", label=f"run {i}")
        axes.set_ylim(0, 1)
        label_ends(axes, room_for_ends(20))
        places = sorted(text.get_position()[1] for text in axes.texts)
        assert places == pytest.approx(((np.arange(20) + 0.5) / 20).tolist())


def test_a_title_that_is_wider_than_its_figure_has_several_lines_and_moves_all_below_it() -> None:
    words = "a title of words and $x + y$ that is far wider than the figure"
    with paper_style(2.0):
        short, long = FigureLayout(2.0, 1.0, "short"), FigureLayout(2.0, 1.0, words)
        lines = [text.get_text() for text in long.figure.texts]
        assert " ".join(lines) == words
        assert len(lines) > 1
        assert [text.get_text() for text in short.figure.texts] == ["short"]
        assert long.height == pytest.approx(short.height + TITLE_LINE * (len(lines) - 1))
        assert long.figure.get_figheight() == pytest.approx(long.height)
        for sheet in (short, long):
            sheet.axes(0.5, 0.3, 1.0, 0.4)
            sheet.finished(["a remark"])
        assert all(text.get_window_extent().width <= long.figure.bbox.width for text in long.figure.texts)
        low, lower = (sheet.figure.axes[0].get_position().y0 * sheet.height for sheet in (short, long))
        assert lower == pytest.approx(low)
        low, lower = (sheet.figure.texts[-1].get_position()[1] * sheet.height for sheet in (short, long))
        assert lower == pytest.approx(low)
        assert "".join(title_lines("w" * 60, 1.0)) == "w" * 60
        assert title_lines("a\n\nb", 3.0) == ["a", "", "b"]
        first, *others = title_lines("short\n" + words, 3.0)
        assert (first, " ".join(others)) == ("short", words)


def test_a_figure_without_room_for_its_panels_says_so() -> None:
    with pytest.raises(FedscopeError) as error:
        FigureLayout(2.0, 1.0).axes(0.5, 0.1, -0.2, 0.5)
    assert str(error.value) == "a figure 2 inches wide has no room for its panels; give a greater --width"
    assert readable_columns(0.2, 3, 3.5) == 0.2
    for wide, runs, remedy in (
        (0.04, 14, "give --width 5.8, or draw fewer"),
        (0.0, 120, "give --width 20, or draw fewer"),
        (-0.1, 120, "draw fewer"),
    ):
        with pytest.raises(FedscopeError) as error:
            readable_columns(wide, runs, 3.5)
        assert str(error.value) == f"{runs} columns have no room side by side in a figure 3.5 inches wide; {remedy}"


def test_a_label_of_one_letter_is_cut_to_it() -> None:
    assert [clip_label("a-long-name", length) for length in (0, 1, 2, 5)] == ["…", "…", "…e", "a-…me"]
