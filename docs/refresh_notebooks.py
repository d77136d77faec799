"""Run the notebooks and keep what they show in them, so that a code host shows pictures: ``make notebooks``.

    python -P docs/refresh_notebooks.py [NAME ...]

Each runs in an empty folder, with the installed package and no kernel: its code cells are run in order as one program.
A cell keeps what it prints, and its last value: of a result its sentence and its figures, small. Its metadata say by a
sum of which code its outputs are: of its own and that of all code cells before it. A test compares.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import sys
import tempfile
from base64 import b64encode
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"
#: dots an inch of a picture: a file of 15 to 50 kB
DPI = 150


def main(names: list[str]) -> None:
    """Refresh notebooks, all of them by default."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        book = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as work, chdir(work):
            run(book)
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def run(book: dict[str, Any]) -> None:
    """Run the code cells of a notebook, and put what each shows into it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = hashlib.sha256()
    for count, cell in enumerate((cell for cell in book["cells"] if cell["cell_type"] == "code"), start=1):
        source = "".join(cell["source"])
        before.update(source.encode() + b"\0")
        printed = io.StringIO()
        with redirect_stdout(printed):
            value = execute(source, names)
        outputs = [{"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())}]
        outputs = outputs if printed.getvalue() else []
        if value is not None:
            outputs += shown(value, count)
        cell.update(execution_count=count, outputs=outputs, metadata={"outputs_of": before.hexdigest()[:16]})


def execute(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return its last expression's value."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def shown(value: Any, count: int) -> list[dict[str, Any]]:
    """Return the outputs of a cell's last value: a result's sentence, then its figures."""
    from fedscope.plotting.static_fallback import draw_small

    figures = value.figures() if hasattr(value, "figures") else {}
    # the sentence stands above the pictures, in an output of its own: a code host shows one form of an output
    texts: list[dict[str, Any]] = [{"text/plain": lines(value.summary() if figures else repr(value))}]
    texts += [{"image/png": b64encode(draw_small(figure, DPI)).decode() + "\n"} for figure in figures.values()]
    first, *others = texts
    result = {"data": first, "execution_count": count, "metadata": {}, "output_type": "execute_result"}
    return [result, *({"data": data, "metadata": {}, "output_type": "display_data"} for data in others)]


def lines(text: str) -> list[str]:
    """Return a text as notebooks keep it."""
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main(sys.argv[1:])
