"""``until``: a run that waits after a round; resumed or branched from, it is the run that would have been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import contents

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run as fedscope
from fedscope.training import Config, branch, merge, preset, resume, train

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = {
    "data": {"clients": 5},
    "model": {"hidden": [8]},
    "client": {"epochs": 1},
    "run": {"rounds": 6, "participation": 0.6, "evaluate_clients": 0},
}
#: what is recorded of each round; what a resume needs of the rest is kept beside it
THIN = {"record": {"clients": "none", "globals": "last:1"}}
OWN = {
    "ima": {"average": {"window": 3, "start": 3}},
    "swa": {"average": {"start": 3, "cycle": 2}},
    "wima": {"average": {"window": 3}},
}


def config(method: str, **sections: Any) -> Config:
    return Config.read(merge(preset(method), SMALL, OWN.get(method, {}), sections))


def same(one: Run, other: Run) -> None:
    """All rounds' files and the table, bit for bit, ``seconds`` apart."""
    assert one.rounds == other.rounds
    for t in one.rounds:
        assert contents(one.path / f"rounds/{t:05d}.h5") == contents(other.path / f"rounds/{t:05d}.h5"), t
    tables = [run.metrics() for run in (one, other)]
    assert tables[0].keys() == tables[1].keys()
    for name in tables[0].keys() - {"seconds"}:
        np.testing.assert_array_equal(tables[0][name], tables[1][name], err_msg=name)


@pytest.mark.parametrize("method", ["fma", "ima", "swa", "wima", "scaffold", "fedadam"])
# A whole record holds all that a thin one holds, and more.
@pytest.mark.parametrize("record", [pytest.param({}, marks=pytest.mark.slow), THIN], ids=["all", "thin"])
def test_a_run_that_waited_equals_one_that_did_not(method: str, record: dict[str, Any], tmp_path: Path) -> None:
    straight = train(config(method, **record), tmp_path / "straight")
    waiting = train(config(method, **record), tmp_path / "waiting", until=2)
    assert waiting.rounds == (1, 2)
    assert waiting.config is not None
    assert waiting.config["run"]["rounds"] == 6
    assert resume(waiting.path, until=4).rounds == (1, 2, 3, 4)
    same(resume(waiting.path), straight)


def test_a_round_beyond_the_last_is_the_last(tmp_path: Path) -> None:
    assert train(config("fma"), tmp_path / "run", until=99).rounds[-1] == 6


@pytest.mark.parametrize("method", ["fma", "swa", "wima"])
def test_a_branch_from_a_run_that_waits_is_the_run_trained_alone(method: str, tmp_path: Path) -> None:
    """Also where the run it branches from records next to nothing: what is kept for its own resume is enough."""
    late = {"average": {"method": "ima", "window": 3, "start": 5}}
    waiting = train(config("fma", **late, **THIN), tmp_path / "ima", until=1)
    changes = merge({"average": {"method": "none"}}, preset(method), OWN.get(method, {}))
    made, alone = branch(waiting, 1, changes, tmp_path / "branch"), train(config(method, **THIN), tmp_path / "alone")
    if method == "wima":  # which has an average of round 1 alone, and the history has none
        for t in alone.rounds[1:]:
            assert contents(made.path / f"rounds/{t:05d}.h5") == contents(alone.path / f"rounds/{t:05d}.h5"), t
    else:
        same(made, alone)
    same(resume(waiting.path), train(config("fma", **late, **THIN), tmp_path / "whole"))


def test_a_branch_waits_too(tmp_path: Path) -> None:
    run = train(config("fma"), tmp_path / "run")
    made = branch(run, 2, {}, tmp_path / "branch", until=4)
    assert made.rounds == (1, 2, 3, 4)
    same(resume(made.path), run)


def test_a_round_that_is_there_is_no_round_to_stop_after(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"^until=0 is not a round; they are counted from 1$"):
        train(config("fma"), tmp_path / "run", until=0)
    assert not (tmp_path / "run").exists()
    run = train(config("fma"), tmp_path / "run", until=3)
    sentence = "^until={} is to stop after a round that is there: {} are recorded; give a later one$"
    with pytest.raises(FedscopeError, match=sentence.format(3, 3)):
        resume(run.path, until=3)
    with pytest.raises(FedscopeError, match=sentence.format(1, 2)):
        branch(run, 2, {}, tmp_path / "branch", until=1)
    resume(run.path)
    with pytest.raises(FedscopeError, match="is complete: all of its 6 rounds are recorded"):
        resume(run.path, until=6)


def test_the_command_stops_says_so_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    words = "--method fma --clients 5 --rounds 4 --epochs 1 --set model.hidden=[6]"
    assert fedscope(["train", *words.split(), "--until", "2", "--out", out]) == 0
    assert ": 2 of 4 rounds; " in capsys.readouterr().out
    assert fedscope(["train", "--resume", out, "--until", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 3
    assert fedscope(["train", "--from", f"{out}@1", "--until", "2", "--out", f"{out}-branch"]) == 0
    assert Run.open(f"{out}-branch").rounds == (1, 2)
    assert fedscope(["train", "--resume", out, "--until", "2"]) == 2
    assert "--until 2 is to stop after a round that is there: 3 are recorded" in capsys.readouterr().err
