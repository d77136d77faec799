"""Whatever a file calls its models and data, a page holds it as text: no element of its own, no script, no fetch."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import TEXTS, Page, steers
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.visible_text import visible
from fedscope.decomposition.embedding.result import Embedding
from fedscope.decomposition.embedding.shown_models import Point
from fedscope.landscape.planes.drawing.markers import looks
from fedscope.landscape.planes.page import LETTERS, SYMBOLS, page_figure
from fedscope.landscape.planes.result import Plane, PlaneModel
from fedscope.plotting import web_page as pages
from fedscope.plotting.static_fallback import Still, draw_small
from fedscope.plotting.web_page import escape_html, keep_together, label_text, markup, split_library, web_page

pytestmark = pytest.mark.same_elsewhere

NONE = float("nan")


def plane(label: str = "ima@1", role: str = "anchor", **attrs: Any) -> Plane:
    grid = np.linspace(-1.0, 2.0, 5)
    places = [(0.0, 0.0), (1.0, 0.0), (0.3, 1.0), (0.4, 0.3)]
    names, roles = [label, "b@1", "c@1", "mean"], [role, "anchor", "anchor", "mean"]
    models = tuple(
        PlaneModel(name, x, y, 0.0, 0.5, 0.1, NONE, NONE, kind)
        for name, (x, y), kind in zip(names, places, roles, strict=True)
    )
    loss = 0.1 + grid[:, None] ** 2 + grid[None] ** 2
    said = {"data": "digits", "split": "test", "samples": 9, **attrs}
    return Plane(grid, grid, loss, np.clip(loss / 9, 0, 1), models, 0.0, "none", said)


def surface(units: str) -> Plane:
    """One of another program."""
    return replace(
        plane(), attrs={"file": "x.h5", "program": "other", "units": units}, normalization_policy="unknown", models=()
    )


def embedding(run: str = "ima", which: str = "client-1", **attrs: Any) -> Embedding:
    points = (Point(run, 1, which, (3, 8)), Point(run, 2, "client-0"), Point(run, 1, "global"), Point(run, 2, "global"))
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 1.0], [0.5, 0.5]])
    return Embedding(points, places, "pca", 0.9, 2, ((run, 1, 0.5),), explained=(0.5, 0.3), attrs=attrs)


#: a page of a text, by where the text stands
PAGES: dict[str, Callable[[str], str]] = {
    "label of a model": lambda text: plane(text).page(),
    "a path's first model": lambda text: plane(text, "path").page(),
    "origin": lambda text: plane(text, "origin").page(),
    "plane's title": lambda text: plane().page(text),
    "data": lambda text: plane(data=text).page(),
    "data's file": lambda text: plane(data=f"npz:{text}").page(),
    "split": lambda text: plane(split=text).page(),
    "statistics": lambda text: replace(plane(statistics_of=text), normalization_policy="keep").page(),
    "calibration": lambda text: replace(plane(calibration_split=text), normalization_policy="re-estimate").page(),
    "units": lambda text: surface(text).page(),
    "program": lambda text: replace(plane(), attrs={"file": "x.h5", "program": text}).page(),
    "surface's file": lambda text: replace(plane(), attrs={"file": text, "program": "x"}).page(),
    "run on a map": lambda text: embedding(text).pages()[".embedding"],
    "model on a map": lambda text: embedding(which=text).pages()[".embedding"],
    "map's title": lambda text: embedding().pages(text)[".embedding"],
    "layers of a map": lambda text: embedding(layers=[text]).pages()[".embedding"],
}


def drawn(page: Page) -> list[Any]:
    """What plotly is given: the traces and the layout."""
    call = page.scripts[-1].partition("Plotly.newPlot(")[2]
    data, end = json.JSONDecoder().raw_decode(call, call.index("["))
    layout, _ = json.JSONDecoder().raw_decode(call, call.index("{", end))
    return [data, layout]


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    return [text for part in value for text in texts(part)] if isinstance(value, list) else []


#: of plotly's elements those that the pages write themselves
WRITTEN = {"<br>", "<sup>", "</sup>", "<sub>", "</sub>", "<extra>", "</extra>"}


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without the 5 MB that draw them."""
    monkeypatch.setattr(pages, "_library", lambda: "const Plotly = {};")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages whose picture is not drawn: what a text does to figures is tested elsewhere."""

    def still(result: Plane | Embedding, **_: Any) -> Still:
        return Still(b"a picture", result.summary())

    for module in ("landscape.planes.page", "decomposition.embedding.page"):
        monkeypatch.setattr(f"fedscope.{module}.still_of", still)


@cache
def plain(place: str) -> Page:
    """A page of a text without a sign."""
    return Page(PAGES[place]("plain"))


@pytest.mark.usefixtures("few_bytes", "no_figures")
@pytest.mark.parametrize("kind", ["script", "attribute", "comment", "link", "escape", "rows", "surrogate"])
@pytest.mark.parametrize("place", PAGES)
def test_a_text_is_text_wherever_it_stands(place: str, kind: str) -> None:
    page = Page(PAGES[place](TEXTS[kind]))
    assert page.shape == plain(place).shape
    assert not page.comments
    page.refuse_open()
    for text in texts(drawn(page)):
        assert set(re.findall(r"<[^>]*>", text)) <= WRITTEN
        assert not steers(text)


@pytest.mark.usefixtures("few_bytes", "no_figures")
@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind not in ("long", "line")])
def test_a_label_is_shown_as_it_is(kind: str) -> None:
    page, text = Page(plane(TEXTS[kind]).page()), visible(TEXTS[kind])
    names = [unescape(trace["name"]) for trace in drawn(page)[0] if "name" in trace]
    assert f"{text}: loss 0.500, error 10.0 %" in {name.removeprefix("1  ") for name in names}
    if len(text) <= 40:
        assert page.title == f"Loss on the plane through {text}, b@1 and c@1"


def test_the_pages_of_the_same_result_are_the_same() -> None:
    for make in (plane, embedding):
        assert make().pages() == make().pages()


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_is_text(title: str, text: str) -> None:
    body = f'<p title="{escape_html(text)}">{escape_html(text)}</p><p>{keep_together(text)}</p>'
    page = Page(web_page(title, body, scripts=["let x = 1;"]))
    page.refuse_open()
    # of a text's own, which unbroken() may keep together
    tags = [tag for tag, _ in page.elements if tag != "span"]
    assert tags == ["html", "head", "meta", "meta", "meta", "title", "style", "body", "p", "p", "script"]
    assert page.title == visible(title, keep="\n")
    assert dict(page.elements[8][1]) == {"title": visible(text, keep="\n")}
    assert page.text.strip("\n").replace("\n", "") == 2 * visible(text, keep="\n").replace("\n", "")
    web_page(title, body).encode()


@given(st.text(st.characters()))
def test_plotly_reads_any_text_as_it_is(text: str) -> None:
    """It knows &amp;, &lt; and &gt;, and takes what else stands between < and > for an element."""
    for written in (label_text(text), markup(text.replace("$", r"\$"))):
        assert not re.search("[<>]", written)
        assert set(re.findall(r"&\w*;", written)) <= {"&amp;", "&lt;", "&gt;"}
        assert unescape(written).replace(r"\$", "$") == visible(text).replace(r"\$", "$").replace("\u200c_", "_")


def test_a_page_takes_its_library_from_beside_it_and_nothing_else() -> None:
    whole = plane().page()
    page, name, library = split_library(whole)
    assert split_library(whole) == (page, name, library)
    assert len(page) < 50_000
    assert re.fullmatch(r"plotly-[\d.]+\.min\.js", name)
    assert library.decode() in whole
    assert f"put {name} next to this page" in page
    assert "does not run here" in whole
    assert name not in whole
    read = Page(page)
    read.refuse_open()
    scripts = [attrs for tag, attrs in read.elements if tag == "script"]
    assert [attrs.get("src") for attrs in scripts] == [name, None], "the library is there when it is called"
    assert f"'nonce-{scripts[0]['nonce']}'" in read.policy["script-src"]


def test_no_label_can_know_the_nonce() -> None:
    """It is another one wherever anything in the page is, so that a text that holds one holds a wrong one."""

    def nonce(label: str) -> str:
        scripts = [attrs for tag, attrs in Page(split_library(plane(label).page())[0]).elements if tag == "script"]
        return scripts[0]["nonce"]

    first = nonce("a")
    assert first != nonce("b")
    assert nonce(f"<script nonce={first}>") != first


def test_a_page_without_a_drawing_stays_as_it_is() -> None:
    page = web_page("a", "<p>Plotly.newPlot</p>")
    assert split_library(page) == (page, "", b"")
    assert Page(page).policy["script-src"] == ["'none'"]


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize("result", [plane(), surface("nats"), embedding()], ids=["plane", "surface", "embedding"])
def test_a_page_shows_its_picture_and_its_numbers_without_a_script(result: Plane | Embedding) -> None:
    (page,) = result.pages("A title").values()
    read = Page(page)
    (picture,) = [attrs for tag, attrs in read.elements if tag == "img"]
    kind, _, data = picture["src"].partition(";base64,")
    assert kind == "data:image/png"
    assert base64.b64decode(data) == draw_small(next(iter(result.figures().values())))
    assert picture["alt"] == result.summary()
    shown = " ".join(read.text.split())
    assert "A title The script in this page does not run here" in shown
    assert shown.endswith(" ".join(result.summary().split()))
    # what hides the picture is done by the script that draws, and only where plotly is there
    assert read.scripts[-1].startswith('if (window.Plotly) {\ndocument.documentElement.className = "drawn";')
    assert 'class="drawn"' not in page


@pytest.mark.usefixtures("few_bytes")
def test_a_page_of_what_no_figure_can_show_has_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise FedscopeError("there is nothing to draw")

    monkeypatch.setattr(Plane, "figure", refuse)
    page = Page(plane().page())
    assert [tag for tag, _ in page.elements if tag == "img"] == []
    assert plane().summary() in page.text


@pytest.mark.drawn
def test_a_small_picture_keeps_the_colour_of_one_marker() -> None:
    """Of panels: two hundred shades of a surface leave little room for a method's own colour."""
    grid = np.linspace(0, 1, 30)
    loss = 0.1 + np.exp(4 * grid[:, None] + 3 * np.sin(9 * grid[None]))
    here = replace(plane(), a=grid, b=grid, loss=loss, error=loss / loss.max())
    shown = PlaneModel("m", 0.5, 0.5, 0.0, 0.5, 0.1, NONE, NONE, "shown")
    here = replace(here, models=(*here.models, shown))
    (orange,) = [look["color"] for model, look in looks(here) if model is shown]
    with Image.open(io.BytesIO(draw_small(here.figure(7.0)))) as picture:
        seen = np.asarray(picture.convert("RGB")).astype(int)
    wanted = [int(orange[i : i + 2], 16) for i in (1, 3, 5)]
    assert np.abs(seen - wanted).max(axis=2).min() <= 4


@pytest.mark.parametrize("count", [1, 6])
def test_a_page_has_the_markers_of_the_printed_figure(count: int) -> None:
    """On contours, in the legend and on the surface: no two looks of the figure are one look of the page."""
    here = plane()
    shown = [PlaneModel(f"m{i}", 0.1 * i, 0.2, 0.0, 0.5, 0.1, NONE, NONE, "shown") for i in range(count)]
    here = replace(here, models=(*here.models, *shown))
    figure = page_figure(here)
    printed = {model.label: look for model, look in looks(here)}
    on_contours = {
        trace["name"].partition(":")[0].split("  ")[-1]: trace["marker"]
        for trace in figure["data"]
        if trace["type"] == "scatter"
    }
    assert printed.keys() <= on_contours.keys()
    for label, look in printed.items():
        assert on_contours[label]["symbol"] == SYMBOLS[look["marker"]]
        assert on_contours[label]["color"] == look["color"]
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)
    letters = {(note["x"], note["y"]): note for note in figure["layout"]["scene"]["annotations"]}
    over = [trace for trace in figure["data"] if trace["type"] == "scatter3d"]
    for model, look in looks(here):
        (trace,) = [own for own in over if (model.a, model.b) == (own["x"][0], own["y"][0])]
        if look["marker"] in LETTERS:
            letter = letters[model.a, model.b]
            assert letter["text"] == LETTERS[look["marker"]]
            assert (letter["font"]["color"], letter["z"]) == (look["color"], trace["z"][0])
        else:
            assert (model.a, model.b) not in letters
            assert trace["marker"]["symbol"] == SYMBOLS[look["marker"]]


CHROMIUM = Path("/usr/bin/chromium")


def browse(page: Path, *flags: str) -> str:
    """What Chromium prints of a page from a disk."""
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-quic", "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000",
        f"--user-data-dir={page.parent.parent / 'user'}", *flags,
    )  # fmt: skip
    return subprocess.run([CHROMIUM, *flags, f"file://{page}"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium here")
def test_a_browser_draws_the_page_from_a_disk_and_runs_nothing_else(tmp_path: Path) -> None:
    page, name, library = split_library(plane("</title><script src=x.js></script>").page())
    here = tmp_path / "here"
    here.mkdir()
    (here / name).write_bytes(library)
    (here / "x.js").write_text("document.documentElement.id = 'ran'")
    (here / "sound.html").write_text(page, encoding="utf-8")
    # as if a text had come in as it is
    put = '<script src="x.js"></script><script>document.documentElement.id = "ran"</script><img src=x onerror="x()">'
    (here / "spoilt.html").write_text(page.replace("<body>", f"<body>{put}", 1), encoding="utf-8")
    for file in ("sound.html", "spoilt.html"):
        shown = browse(here / file, "--dump-dom")
        assert 'class="main-svg"' in shown, "plotly has drawn"
        assert 'class="drawn"' in shown
        assert 'id="ran"' not in shown


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium here")
@pytest.mark.parametrize("size", [(1300, 800), (1300, 1100), (500, 1000)])
def test_the_names_of_a_surfaces_axes_are_not_cut_off(size: tuple[int, int], tmp_path: Path) -> None:
    """A scene cuts off what lies outside: then there is ink at its left edge."""
    page, shot = tmp_path / "here" / "plane.html", tmp_path / "shot.png"
    page.parent.mkdir()
    page.write_text(plane().page(), encoding="utf-8")
    browse(page, f"--window-size={size[0]},{size[1]}", "--hide-scrollbars", f"--screenshot={shot}")
    with Image.open(shot) as picture:
        seen = np.asarray(picture.convert("L"))
    left, low, high = (20, 110, 650) if size[0] > 700 else (10, 110, 430)
    assert seen[low:high, left : left + 3].min() > 200
    assert seen[low:high, left + 3 : left + 150].min() < 100, "the names are there"


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium here")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1300, 500])  # Chromium's windows are no narrower
def test_a_page_alone_in_a_folder_is_seen(width: int, dark: bool, tmp_path: Path) -> None:
    """As mailed: without the script next to it. Both colours of its ink, and the surface's, are on the screen."""
    page, _, _ = split_library(plane().page())
    alone = tmp_path / "alone" / "plane.html"
    alone.parent.mkdir()
    alone.write_text(page, encoding="utf-8")
    assert 'class="drawn"' not in browse(alone, "--dump-dom")
    shot = tmp_path / "shot.png"
    look = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(alone, f"--window-size={width},1000", "--hide-scrollbars", f"--screenshot={shot}", *look)
    with Image.open(shot) as picture:
        seen = np.asarray(picture.convert("RGB")).astype(int)
    vivid = seen.max(axis=2) - seen.min(axis=2) > 60
    assert vivid.mean() > 0.05, "the surface"
    corner = seen[:5, :5].mean()
    assert (corner < 60) == dark
    words = seen[:200].mean(axis=2)
    assert (words > 200).any()
    assert (words < 60).any()
