"""The demo: what a new user sees first decides something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedscope.cli.commands.demo import EXPLAINED, SEEDS, STEPS
from fedscope.cli.main import run

pytestmark = pytest.mark.same_elsewhere


def test_its_explained_rounds_are_the_early_ones_and_the_later_ones_evenly() -> None:
    """No round is picked for its verdict."""
    from fedscope.analysis.rounds import parse_rounds
    from fedscope.decomposition.explanation.phases import last_early
    from fedscope.training import Config, preset

    length = Config.read(preset("ima")).run.rounds
    early = last_early(length)
    later = range(early + 3, length + 1, 3)
    assert parse_rounds(EXPLAINED, tuple(range(1, length + 1)), "") == [*range(1, early + 1), *later]


@pytest.mark.slow
def test_its_explanation_decides_three_statements_of_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 of 13 where it was measured. One may be undecided on another processor, whose runs differ in their last bits
    and so, after sixty rounds, in every number by some share of its interval; two are a change of something else."""
    monkeypatch.chdir(tmp_path)
    (words,) = [step for step in STEPS if step[0] == "explain"]
    explained = [word.format(out=".") for word in words if word.startswith("{out}/ima")]
    trained = [[word.format(out=".") for word in step] for step in STEPS if step[0] == "train" and step[2] == "ima"]
    assert [step[-1] for step in trained] == explained
    assert len(explained) == 1 + len(SEEDS)
    for step in trained:
        assert run(step) == 0
    assert run([word.format(out=".") for word in words]) == 0
    statements = json.loads(Path("explain.explain.json").read_text())["statements"]
    decided = {one["claim"] for one in statements if one["verdict"] != "undecided"}
    assert len(statements) >= 13
    assert len(decided) >= 0.6 * len(statements) - 1, decided
    # what runs as draws are for
    assert "covariance-is-small" in decided
