"""Whatever a file calls its models and data, a page holds it as text: no element of its own, no script, no fetch."""

from __future__ import annotations

import json
import re
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

from fedscope.checkpoints.io.visible_text import visible
from fedscope.decomposition.embedding.result import Embedding
from fedscope.decomposition.embedding.shown_models import Point
from fedscope.landscape.planes.result import Plane, PlaneModel
from fedscope.plotting import web_page as pages
from fedscope.plotting.web_page import escape_html, keep_together, label_text, markup, split_library, web_page

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


@cache
def plain(place: str) -> Page:
    """A page of a text without a sign."""
    return Page(PAGES[place]("plain"))


@pytest.mark.usefixtures("few_bytes")
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


@pytest.mark.usefixtures("few_bytes")
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
    assert len(page) < 40_000
    assert re.fullmatch(r"plotly-[\d.]+\.min\.js", name)
    assert library.decode() in whole
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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="there is no Chromium here")
def test_a_browser_draws_the_page_from_a_disk_and_runs_nothing_else(tmp_path: Path) -> None:
    import subprocess

    page, name, library = split_library(plane("</title><script src=x.js></script>").page())
    (tmp_path / name).write_bytes(library)
    (tmp_path / "x.js").write_text("document.documentElement.id = 'ran'")
    (tmp_path / "sound.html").write_text(page, encoding="utf-8")
    # as if a text had come in as it is
    put = '<script src="x.js"></script><script>document.documentElement.id = "ran"</script><img src=x onerror="x()">'
    (tmp_path / "spoilt.html").write_text(page.replace("<body>", f"<body>{put}", 1), encoding="utf-8")
    for file in ("sound.html", "spoilt.html"):
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--disable-quic", "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000"]
        flags += [f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", f"file://{tmp_path / file}"]
        shown = subprocess.run(["/usr/bin/chromium", *flags], capture_output=True, text=True, check=True).stdout
        assert 'class="main-svg"' in shown, "plotly has drawn"
        assert 'id="ran"' not in shown
