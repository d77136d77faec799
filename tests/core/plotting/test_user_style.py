"""The style of the user's own: what it changes, that it ends, that nothing overlaps in it, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from drawable import TITLES, four, surface, two_pairs
from legible import assert_apart, assert_inside
from matplotlib.text import Text

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.landscape import draw_panels
from fedscope.plotting.looks import looks_of
from fedscope.plotting.style import save_figure
from fedscope.plotting.user_style import current, style

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.drawn]

FIGURES: dict[str, Callable[[], Any]] = {
    "plane": lambda: surface(shown=5).figure(title="A title"),
    "panels": lambda: draw_panels(four(), TITLES),
    "line": lambda: two_pairs().figure(title="A title"),
}


# every size in one font, and the largest in another
@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    ("font", "size"),
    [
        pytest.param(font, size, marks=() if font == "DejaVu Sans" or size == 12 else pytest.mark.slow)
        for font in ("DejaVu Sans", "DejaVu Serif")
        for size in (7, 9, 12)
    ],
)
def test_nothing_overlaps_at_any_size_of_type(name: str, font: str, size: int) -> None:
    with style(font=font, size=size):
        figure = FIGURES[name]()
    assert_apart(assert_inside(figure, 3.5))


@pytest.mark.parametrize("size", [6, 9.5, 12])
def test_all_type_has_the_asked_size_and_font(size: float) -> None:
    def sizes(figure: Any) -> dict[str, float]:
        return {text.get_text(): text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()}

    plain = sizes(surface().figure())
    with style(font="DejaVu Serif", size=size):
        figure = surface().figure()
    figure.draw_without_rendering()
    own = sizes(figure)
    for words in ("distance ($L_2$)", "ima@60", "off plane"):
        assert own[words] == pytest.approx(plain[words] * size / 8), words
    families = {text.get_fontfamily()[0] for text in figure.findobj(Text) if text.get_text().strip()}
    assert families == {"DejaVu Serif"}
    # ticks that are made later are as large as the first
    small = [text.get_fontsize() for axis in figure.axes for text in axis.get_xticklabels()]
    assert small == pytest.approx([7 * size / 8] * len(small))


def test_an_enlarged_figure_is_the_same_layout_in_other_units() -> None:
    with style(size=16):
        large = surface().figure(7.0 * 1.02)  # letters of another size have two hundredths more room
    plain = surface().figure(3.5)
    assert large.get_size_inches() == pytest.approx(2.04 * plain.get_size_inches())
    for one, other in zip(large.axes, plain.axes, strict=True):
        assert one.get_position().bounds == pytest.approx(other.get_position().bounds)
        for line, half in zip(one.lines, other.lines, strict=True):
            assert line.get_markersize() == pytest.approx(2.04 * half.get_markersize())
            assert line.get_linewidth() == pytest.approx(2.04 * half.get_linewidth())


def test_a_style_ends_with_its_block_and_can_be_left_on() -> None:
    with style(size=10, width=5.0):
        assert surface().figure().get_figwidth() == 5.0
        with style(colors={"ima": "red"}):
            assert (current().size, current().width, current().colors) == (10, 5.0, {"ima": "red"})
        assert current().colors == {}
    assert surface().figure().get_figwidth() == 3.5
    try:
        fedscope.style(width=4.0).use()
        assert surface().figure().get_figwidth() == 4.0
        assert surface().figure(6.5).get_figwidth() == 6.5, "a width that is asked for counts"
    finally:
        fedscope.style().use()
    assert current() == type(current())()


def test_an_error_ends_a_style_as_well() -> None:
    with pytest.raises(RuntimeError), style(size=12):
        raise RuntimeError
    assert current().size == 8


def test_colours_of_methods_are_the_users() -> None:
    with style(colors={"ima": "#123456", "my rule": "black"}):
        assert [look["color"] for look in looks_of(["ima-seed1", "my rule", "fma"])][:2] == ["#123456", "black"]
    with style(rc={"axes.prop_cycle": matplotlib.cycler(color=["#010101", "#020202"])}):
        assert {look["color"] for look in looks_of(["fma", "ima", "wima"])} <= {"#010101", "#020202"}


def test_the_colours_of_surfaces_are_those_of_the_style_unless_asked_for() -> None:
    def map_of(**asked: str) -> str:
        return str(surface().figure(**asked).axes[0].collections[0].get_cmap().name)

    assert map_of() == "viridis"
    with style(rc={"image.cmap": "cividis"}):
        assert (map_of(), map_of(cmap="magma")) == ("cividis", "magma")


def test_a_web_page_takes_the_font_and_the_colours_of_the_style_and_keeps_its_sizes() -> None:
    from fedscope.landscape.planes.page import page_figure

    own = page_figure(surface())
    with style(font="DejaVu Serif", size=12, rc={"image.cmap": "cividis"}):
        styled = page_figure(surface())
    assert "font" not in own["layout"]
    assert styled["layout"].pop("font") == {"family": "DejaVu Serif, DejaVu Sans, sans-serif"}
    assert own["data"][0]["colorscale"] != styled["data"][0]["colorscale"]
    assert styled["layout"] == own["layout"]
    with matplotlib.rc_context({"font.family": 'A "font"'}), style(rc="user"):
        assert page_figure(surface())["layout"]["font"] == {"family": "A font, sans-serif"}


def test_settings_of_matplotlib_count_where_they_are_asked_for() -> None:
    with matplotlib.rc_context({"lines.linewidth": 3.0, "axes.labelcolor": "red", "axes.labelsize": 30}):
        plain = two_pairs().figure().axes[0]
        assert plain.yaxis.label.get_color() != "red"
        with style(rc="user", size=10):
            own = two_pairs().figure().axes[0]
    assert own.yaxis.label.get_color() == "red"
    assert own.yaxis.label.get_fontsize() == pytest.approx(10), "type has one size, whatever else is set"
    assert 3.0 in np.round([line.get_linewidth() for line in own.lines], 6), "points are points at any size of type"


def test_a_style_file_is_read_and_arguments_count_more(tmp_path: Path) -> None:
    file = tmp_path / "journal.mplstyle"
    lines = ["# a journal's", "font.family: DejaVu Serif", "font.size: 9  # points", "figure.figsize: 5, 3"]
    file.write_text("\n".join([*lines, 'lines.color: "#0072B2"']))
    with style(file=file) as used:
        assert (used.size, used.width) == (9, 5.0)
        figure = two_pairs().figure()
        assert figure.axes[0].yaxis.label.get_fontfamily() == ["DejaVu Serif"]
    with style(file=file, rc={"font.size": 10}) as used:
        assert used.size == 10
    with style(file=file, rc={"font.size": 10}, size=11, width=4, font="DejaVu Sans") as used:
        assert (used.size, used.width, used.font) == (11, 4, "DejaVu Sans")
        assert two_pairs().figure().axes[0].yaxis.label.get_fontfamily()[0] == "DejaVu Sans"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"font": "DejaVu Serf"}, "font 'DejaVu Serf' is not installed here.*DejaVu Serif"),
        ({"size": 40}, "size = 40 .* 5 to 16 points"),
        ({"size": "9"}, "size = 9 .* 5 to 16 points"),
        ({"width": 0.5}, "width = 0.5 .* 2 to 20 inches"),
        ({"rc": {"axes.gird": True}}, "rc sets axes.gird, which is no setting of matplotlib.*axes.grid"),
        ({"rc": {"axes.grid": "perhaps"}}, "rc sets axes.grid to 'perhaps', which it cannot be"),
        ({"rc": {"axes.labelsize": 9}}, "axes.labelsize, which figures of fedscope cannot have: all type has one size"),
        ({"rc": {"savefig.bbox": "tight"}}, "savefig.bbox, .* its place in inches; leave it out"),
        ({"rc": {"text.usetex": True}}, "text.usetex, .* matplotlib writes all words itself"),
        ({"rc": "mine"}, "rc = 'mine' is no settings; .*'user'"),
        ({"colors": {"ima": "bleu"}}, "the colour 'bleu' of 'ima'"),
        ({"colors": "red"}, "names no methods"),
    ],
)
def test_what_a_figure_cannot_have_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(fedscope.FedscopeError, match=said):
        style(**given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the style .*no.mplstyle does not exist"),
        ("font.size 9\n", "line 1, is no setting of matplotlib: 'font.size 9'"),
        ("axes.grid: True\nfigure.subplot.left: 0.1\n", "line 2, sets figure.subplot.left, which .* cannot have"),
        ("\nfont.size: big\n", "line 2, sets font.size to 'big'"),
        ("font.size: 30\n", "font.size = 30.0 .* 5 to 16 points"),
        ("lines.weight: 3\n", "line 1, sets lines.weight, which is no setting"),
    ],
)
def test_a_style_file_that_does_not_go_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / ("no.mplstyle" if text is None else "my.mplstyle")
    if text is not None:
        file.write_text(text)
    with pytest.raises(fedscope.FedscopeError, match=said):
        style(file=file)


def test_type_that_is_too_large_for_a_width_says_which_one_it_needs() -> None:
    with style(size=16), pytest.raises(fedscope.FedscopeError, match=r"2.5 inches .* 16 pt; make it 4\.1 inches"):
        surface().figure(2.5)


def test_svg_has_the_same_bytes_for_the_same_data_and_no_date(tmp_path: Path) -> None:
    for form in ("svg", "pdf"):
        with style(font="DejaVu Serif", size=9):
            (one,), (other,) = (
                save_figure(two_pairs().figure(title="T"), tmp_path / name, [form]) for name in ("one", "other")
            )
        assert one.read_bytes() == other.read_bytes()
        assert b"<dc:date>" not in one.read_bytes()


def test_colours_markers_and_fonts_that_there_are_not_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    """Matplotlib takes their names and looks for them when it draws."""
    for name, value, said in (
        ("image.cmap", "virids", r'no colours of surfaces are called so; did you mean "viridis"'),
        ("lines.marker", "zz", "Unrecognized marker style"),
        ("font.family", "Dejavu Seriff, Nowhere Sans", r"no such font is installed here; did you mean"),
    ):
        with pytest.raises(FedscopeError, match=said):
            style(rc={name: value})
        (tmp_path / "my.mplstyle").write_text(f"axes.grid: True\n{name}: {value}\n")
        with pytest.raises(FedscopeError, match=f"line 2, sets {name} to '{value}', which it cannot be .*{said}"):
            style(file=tmp_path / "my.mplstyle")
    with style(rc={"font.family": ["Nowhere Sans", "DejaVu Serif", "serif"]}) as chosen:
        assert chosen.family == ("DejaVu Serif", "serif"), "matplotlib would complain of the first at each word"


@pytest.mark.parametrize("width", ["3.5in", 0, 1, 21, float("nan"), True])
def test_widths_that_no_figure_has_are_refused_in_a_sentence(width: Any) -> None:
    with pytest.raises(FedscopeError, match=f"width = {width} is none that figures have; give 2 to 20 inches"):
        two_pairs().figure(width)
    assert two_pairs().figure(np.float32(4)).get_figwidth() == 4


def test_settings_that_no_figure_has_are_named() -> None:
    for draw, name, hint in (
        (two_pairs().figure, "axes", '; did you mean "ax"?'),
        (surface().figure, "axes", '; did you mean "ax"?'),
        (surface().figure, "titel", '; did you mean "title"?'),
    ):
        with pytest.raises(TypeError) as refused:
            draw(**{name: None})
        assert str(refused.value) == f"this figure has no setting {name!r}{hint}"
