"""The notebooks run from top to bottom in an empty folder, and keep the outputs of their code as it is.

Their code cells are run in order as one program, each with its last expression shown as a notebook would show it; so
no kernel is needed. ``make notebooks`` does the same and writes the outputs into the files, so that a code host shows
them.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
#: those that take longer than a few seconds
SLOW = {"flower-run", "ima-and-fma"}
#: what a notebook does with a cell's last value
SHOW = """
def show(value):
    for kind in ("_repr_html_", "_repr_png_"):
        made = getattr(value, kind, lambda: None)()
        if made:
            print(f"shown: {type(value).__name__}, {len(made)}")
            return
    print(repr(value))
"""


def cells(name: str, kind: str) -> list[str]:
    """The sources of a notebook's cells of a kind."""
    return ["".join(cell["source"]) for cell in book(name)["cells"] if cell["cell_type"] == kind]


def book(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return read


def program(name: str) -> str:
    """The code cells of a notebook as one program."""
    return "\n".join([SHOW, *map(shown, cells(name, "code"))])


def shown(cell: str) -> str:
    """A cell that shows its last expression.

    >>> print(shown("a = 1\\na"))
    a = 1
    show(a)
    """
    body = ast.parse(cell).body
    if body and isinstance(body[-1], ast.Expr) and not isinstance(body[-1].value, ast.Call):
        body[-1].value = ast.Call(ast.Name("show", ast.Load()), [body[-1].value], [])
    return ast.unparse(body)


def test_a_cell_shows_its_last_expression() -> None:
    assert shown("a = 1\na") == "a = 1\nshow(a)"
    assert shown("print(1)") == "print(1)"
    assert shown("a = 1") == "a = 1"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in BOOKS])
def test_a_notebook_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has loaded torch already, and with digests for its figures."""
    script = tmp_path / "cells.py"
    script.write_text(program(name), encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    runpy.run_path(str(script))
    printed = capfd.readouterr().out
    asked = [cell.strip().splitlines()[-1] for cell in cells(name, "code")]
    answers = [line for line in asked if re.fullmatch(r"\w+", line)]
    assert len(re.findall(r"^shown: ", printed, re.MULTILINE)) == len(answers) >= 3, printed


def test_there_are_three_and_the_index_names_them() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert BOOKS == ["flower-run", "ima-and-fma", "own-checkpoints"]
    assert set(BOOKS) >= SLOW
    assert [name for name in BOOKS if f"](notebooks/{name}.ipynb)" not in index] == []


@pytest.mark.parametrize("name", BOOKS)
def test_a_notebook_keeps_the_outputs_of_its_code_and_begins_with_a_title(name: str) -> None:
    read = book(name)
    assert (read["nbformat"], read["nbformat_minor"]) == (4, 5)
    code, before = [cell for cell in read["cells"] if cell["cell_type"] == "code"], b""
    for count, cell in enumerate(code, start=1):
        source = "".join(cell["source"])
        before += source.encode() + b"\0"
        assert cell["metadata"]["outputs_of"] == hashlib.sha256(before).hexdigest()[:16], (
            f"{cell['id']} or a cell before it was changed after its outputs were made; run `make notebooks`"
        )
        assert cell["execution_count"] == count
        assert_outputs(cell)
    assert len({cell["id"] for cell in read["cells"]}) == len(read["cells"])
    assert read["cells"][0]["cell_type"] == "markdown"
    assert cells(name, "markdown")[0].startswith("# ")
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000


def assert_outputs(cell: dict[str, Any]) -> None:
    """A cell that ends with a result has its sentence and a picture; one that prints has what it printed."""
    source, outputs = "".join(cell["source"]), cell["outputs"]
    printed = [output for output in outputs if output["output_type"] == "stream"]
    assert bool(printed) == bool(re.search(r"^\s*print\(", source, re.MULTILINE))
    assert all("".join(output["text"]).strip() for output in printed)
    (*_, last) = ast.parse(source).body
    answers = isinstance(last, ast.Expr) and isinstance(last.value, ast.Name)
    shown = [output["data"] for output in outputs if output["output_type"] != "stream"]
    assert bool(shown) == answers, cell["id"]
    if answers:
        said, *pictures = shown
        assert len("".join(said["text/plain"])) > 30, "a sentence"
        assert pictures
    for picture in shown[1:]:
        with Image.open(io.BytesIO(base64.b64decode(picture["image/png"]))) as drawn:
            assert 400 < drawn.width <= 1100
            assert len(drawn.convert("RGB").getcolors(1 << 24)) > 20, "a figure"
    assert not re.search(r"/tmp|/home|/work", json.dumps(outputs))


@pytest.mark.parametrize("name", BOOKS)
def test_its_links_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", "\n".join(cells(name, "markdown")))
    assert targets
    assert [target for target in targets if not (FOLDER / target.partition("#")[0]).is_file()] == []
