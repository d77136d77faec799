"""Curves that were asked for while a run trained, asked for again later."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedscope import load
from fedscope.cli.main import run

WORDS = ["train", "--method", "fma", "--clients", "3", "--epochs", "1", "--set", "model.hidden=[4]", "--rounds", "3"]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    return run(["curves", "r", *words]), capsys.readouterr().err


def rounds() -> int:
    return len(load("r/figures/curves-r").runs[0].deployed("test_error"))


def test_curves_of_an_earlier_state_of_the_run_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those under the default name alone, and nothing else that lies there."""
    monkeypatch.chdir(tmp_path)
    assert run([*WORDS, "--out", "r", "--until", "1"]) == 0
    for words in ((), ("--out", "mine")):
        assert asked(capsys, *words)[0] == 0
    assert run(["train", "--resume", "r", "--until", "2"]) == 0
    assert asked(capsys, "--out", "mine") == (
        2,
        "fedscope: mine.curves.json holds another result, of r up to round 1; give another --out, or --force to "
        "replace it\n",
    )
    status, said = asked(capsys)
    assert status == 0
    assert "r/figures/curves-r.curves.json held this result of r up to round 1; it is replaced\n" in said
    assert rounds() == 2
    status, said = asked(capsys)
    assert "already holds this result" in said
    # another run that took the folder's name
    Path("r").rename("before")
    assert run([*WORDS, "--out", "r"]) == 0
    Path("before/figures").rename("r/figures")
    status, said = asked(capsys)
    assert status == 2
    assert "holds another result, of r before it was made again; give another --out" in said
    assert rounds() == 2
