"""The demo: what a new user sees first decides something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedscope.cli.commands.demo import EXPLAINED, STEPS
from fedscope.cli.main import run

pytestmark = pytest.mark.same_elsewhere


@pytest.mark.slow
def test_its_explanation_decides_three_statements_of_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "--method", "ima", "--out", "ima"]) == 0
    (words,) = [step for step in STEPS if step[0] == "explain"]
    assert EXPLAINED in words
    assert run([word.format(out=".") for word in words]) == 0
    statements = json.loads(Path("explain.explain.json").read_text())["statements"]
    decided = [one for one in statements if one["verdict"] != "undecided"]
    assert len(statements) >= 13
    assert len(decided) >= 0.6 * len(statements), [one["title"] for one in statements if one not in decided]
