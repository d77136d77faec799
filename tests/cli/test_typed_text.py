"""Text of figures, as a command line has it whose encoding Python takes for ASCII: a job's, with ``LC_ALL=C``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.cli.main import run
from fedscope.cli.option_types import Words

pytestmark = pytest.mark.usefixtures("few_digits", "here")

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def told(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fedscope.cli", *words], env={**os.environ, **ASCII}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_titles_and_labels_are_drawn_under_an_ascii_locale() -> None:
    """matplotlib ended in a traceback at the escapes of ``ü``, and the colour of a label too."""
    told("curves", "runs/fma", "--label", "für ü", "--title", "Verluste: ü", "--format", "svg", "--out", "c")
    drawn = Path("c.svg").read_text(encoding="utf-8")
    assert "für ü" in drawn
    assert "Verluste: ü" in drawn


def test_a_tables_row_is_called_as_it_was_typed() -> None:
    cells = json.loads(told("table", "runs/fma", "--label", "µ = 0,1", "--json"))["cells"]
    assert [cell["row"] for cell in cells] == ["µ = 0,1"]


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("ours", "ours"),
        ("für 平均", "für 平均"),
        (os.fsdecode(b"f\xfcr"), r"f\udcfcr"),  # Latin-1
        ("\ud800", r"\ud800"),
    ],
)
def test_text_can_be_written_whatever_its_bytes_are(typed: str, taken: str) -> None:
    assert Words().convert(typed, None, None) == taken


def test_own_code_is_refused_with_the_option_that_named_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy said ``--code mine:Mine``, which is refused."""
    for words, place in (
        ("client=mine_missing:Mine", "--code client=mine_missing:Mine"),
        ("server=old:Old=mine_missing:Mine", "--code server=old:Old=mine_missing:Mine"),
    ):
        assert run(["train", "--resume", "runs/fma", "--code", words]) == 2
        assert capsys.readouterr().err.startswith(f"fedscope: {place}: ")
