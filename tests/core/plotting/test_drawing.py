"""Figures in somebody's axes and in parts of somebody's figure, and what is written on them afterwards."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawable import TITLES, four, surface, two_pairs
from legible import assert_apart, seen
from matplotlib import colormaps
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from PIL import Image

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import draw_panels
from fedscope.plotting.user_style import style

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.drawn]


def drawn_lines(axes: Any) -> list[bytes]:
    return sorted(line.get_xydata().tobytes() for line in axes.lines)


def test_axes_get_the_panel_of_the_figure_and_nothing_else() -> None:
    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    right.plot([0, 1], [0, 1], linewidth=5)
    assert two_pairs().figure(ax=left, title="mine") is figure
    alone = two_pairs().figure().axes[0]
    assert drawn_lines(left) == drawn_lines(alone)
    assert (left.get_yscale(), left.get_ylabel(), left.get_title()) == ("log", alone.get_ylabel(), "mine")
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["a - b", "c - d"]
    assert not left.spines["top"].get_visible()
    assert figure.axes == [left, right]
    assert figure.texts == []
    assert (right.lines[0].get_linewidth(), right.spines["top"].get_visible()) == (5, True), "others are left alone"


def test_a_surface_in_axes_brings_its_colour_bar_which_follows_it() -> None:
    figure = Figure(figsize=(3, 3), layout="constrained")
    axes = figure.subplots()
    plane = surface()
    plane.figure(ax=axes)
    (bar,) = axes.child_axes
    assert "loss" in bar.get_ylabel()
    (filled,) = (one for one in axes.collections if isinstance(one, QuadContourSet) and one.filled)
    filled.set_cmap("magma")
    figure.draw_without_rendering()
    corner = axes.get_position().x1
    assert figure.transFigure.inverted().transform(bar.bbox)[0][0] > corner
    mesh = next(one for one in bar.collections if hasattr(one, "get_cmap") and one.get_array() is not None)
    assert mesh.get_cmap().name == "magma"
    # ticks and labels of the bar lie on the figure: a layout leaves room for them
    assert bar.get_tightbbox().x1 <= figure.bbox.x1 + 1


def test_every_panel_can_have_axes_in_their_order() -> None:
    figure = Figure(figsize=(4, 5))
    both = figure.subplots(2, 1)
    two_pairs().figure(ax=both)
    alone = two_pairs().figure().axes
    for own, other in zip(both, alone, strict=True):
        assert (drawn_lines(own), own.get_ylabel()) == (drawn_lines(other), other.get_ylabel())


@pytest.mark.parametrize("size", [8, 11])
def test_axes_have_the_type_of_the_style(size: float) -> None:
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    with style(size=size):
        two_pairs().figure(ax=axes)
        two_pairs().figure(ax=axes)  # and not twice as large when drawn into twice
    assert axes.yaxis.label.get_fontsize() == pytest.approx(size)
    assert axes.get_legend().get_texts()[0].get_fontsize() == pytest.approx(7 * size / 8)
    small = [text.get_fontsize() for text in axes.get_xticklabels()]
    assert small == pytest.approx([7 * size / 8] * len(small))


def test_a_part_of_a_figure_gets_the_whole_figure() -> None:
    figure = Figure(figsize=(7.5, 5))
    left, right = figure.subfigures(1, 2)
    assert two_pairs().figure(into=left, title="one") is left
    with style(size=9):
        draw_panels(four()[:2], TITLES[:2], into=right)
    alone = two_pairs().figure(3.75, "one")
    assert [text.get_text() for text in left.texts] == [text.get_text() for text in alone.texts]
    for own, other in zip(left.axes, alone.axes, strict=True):
        scale = own.bbox.width / other.bbox.width, own.bbox.height / other.bbox.height
        assert scale == pytest.approx((1, 1)), "as large as alone, in inches"
    boxes = seen(figure)
    assert_apart(boxes)
    for words, box in boxes:
        assert box.x0 >= -0.5, words
        assert box.x1 <= figure.bbox.x1 + 0.5, words


def test_what_does_not_fit_is_one_sentence_and_nothing_is_drawn() -> None:
    figure = Figure(figsize=(7, 2))
    left, right = figure.subfigures(1, 2)
    with pytest.raises(FedscopeError, match=r"needs \d\.\d\d inches of height at a width of 3\.50, .* has 2\.00"):
        surface().figure(into=left)
    axes = right.subplots(1, 3)
    with pytest.raises(FedscopeError, match=r"the figure has 2 panels, but ax has 3; .* into="):
        two_pairs().figure(ax=axes)
    with pytest.raises(FedscopeError, match=r"ax has a width of its own; leave width = 7\.0 out"):
        two_pairs().figure(7.0, ax=axes[0])
    with pytest.raises(FedscopeError, match="not into polar ones; leave out projection="):
        two_pairs().figure(ax=Figure().add_subplot(projection="polar"))
    with pytest.raises(FedscopeError, match=r"the axes are 0\.\d\d inches wide; give 0\.7 or more"):
        two_pairs().figure(ax=Figure().add_axes((0, 0, 0.1, 1)))
    with pytest.raises(FedscopeError, match="ax is a str; give axes"):
        two_pairs().figure(ax="left")
    with pytest.raises(FedscopeError, match="into is a list; give a part of a figure"):
        two_pairs().figure(into=[left])
    with pytest.raises(FedscopeError, match="ax or into, not both"):
        two_pairs().figure(ax=axes[0], into=left)
    assert left.axes == []
    assert all(not one.lines and not one.get_ylabel() for one in axes)


def ink(figure: Figure) -> tuple[np.ndarray, tuple[int, int]]:
    room = BytesIO()
    figure.savefig(room, format="png", dpi=100)
    picture = Image.open(room).convert("L")
    return np.asarray(picture) < 128, picture.size


def test_a_title_that_was_set_later_is_not_cut_off() -> None:
    figure = surface().figure()
    before, size = ink(figure)
    figure.axes[0].set_title("A title of one's own", fontsize=20)
    after, larger = ink(figure)
    assert size[0] == larger[0]
    assert larger[1] > size[1]
    grown = larger[1] - size[1]
    assert not after[0].any(), "nothing touches the upper edge"
    assert (after[grown + 14 :] == before[14:]).mean() > 0.999, "all else stays where it was"
    assert after[: grown + 10].sum() > 100


def test_a_title_that_was_set_later_stands_above_a_legend() -> None:
    figure = draw_panels(four()[:1], TITLES[:1], 3.5, "The figure's own")
    figure.axes[0].set_title("mine\nin two lines")
    figure.canvas.draw()
    title = figure.axes[0].title.get_window_extent()
    for text in figure.texts:
        assert_apart([("title", title), (text.get_text(), text.get_window_extent())])


def test_a_common_title_that_was_set_later_stands_above_the_figure() -> None:
    figure = draw_panels(four()[:2], TITLES[:2], 7.0)
    before, size = ink(figure)
    figure.suptitle("both")
    after, larger = ink(figure)
    grown = larger[1] - size[1]
    assert grown > 8
    assert [axes.title.get_position()[1] for axes in figure.axes[:2]] == [1.0, 1.0], "titles of panels stay"
    assert (after[grown:] == before).mean() > 0.999
    assert after[:grown].any()


def test_a_figure_that_nobody_wrote_on_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figure = surface().figure()
    monkeypatch.setattr(type(figure), "get_tightbbox", lambda *_: pytest.fail("measured"))
    figure.savefig(tmp_path / "as-it-is.png")


def test_figures_can_be_kept_and_copied() -> None:
    figure = pickle.loads(pickle.dumps(surface().figure()))
    assert ink(figure)[0].sum() == ink(surface().figure())[0].sum()
    figure.axes[0].set_title("later", fontsize=20)
    assert ink(figure)[1][1] > ink(surface().figure())[1][1]


@pytest.mark.parametrize("name", ["magma", "tab10"])
def test_the_bar_of_a_figure_follows_its_surface(name: str) -> None:
    figure = surface().figure(7.0)
    (filled,) = (one for one in figure.axes[0].collections if isinstance(one, QuadContourSet) and one.filled)
    filled.set_cmap(name)
    figure.canvas.draw()
    words = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert words == [text.get_text() for text in surface().figure(7.0).axes[1].get_yticklabels()]
    maps = [one.get_cmap() for axes in figure.axes[1:2] for one in axes.collections if one.get_array() is not None]
    assert maps == [colormaps[name]]
