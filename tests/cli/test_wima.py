"""``fedscope wima`` as a user gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.decomposition.windows.result import WindowMeans

COMMAND = "wima"
pytestmark = pytest.mark.usefixtures("few_digits")

TINY = "--clients 6 --participation 0.5 --rounds 12 --set model.hidden=[8] --set run.evaluate_clients=0"
RUNS = {
    "fma": f"{TINY} --method fma --set record.clients=none",
    "wima": f"{TINY} --method wima --set average.window=5 --set record.clients=none",
    "late": f"{TINY} --method fma --set record.clients=none --set record.globals=last:7",
}


def test_a_run_is_its_windows_over_its_last_rounds(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma")
    base = "runs/fma/figures/wima-test-last-10"
    steps = (
        "fma@12, the mean of a window as the server's steps with a rate that falls from 1 to 1/W (the paper's equation "
    )
    assert words.splitlines()[1].startswith(f"{steps}7): the same to ")
    assert words.splitlines()[1].endswith(" (W = 5, 10)")
    assert words.splitlines()[2:] == [f"  {base}.{end}" for end in ("wima.csv", "wima.json", "pdf", "png")]
    found = WindowMeans.load(base)
    assert [one.round for one in found.rounds] == list(range(3, 13))
    assert [row.window for row in found.rounds[0].rows] == [1, 5, 10]
    measured = Run.open("runs/wima").metrics()
    assert [one.rows[1].error for one in found.rounds] == measured["averaged_test_error"][2:].tolist()
    assert words.startswith("fma, mean ± deviation over 10 rounds from 3 to 12: test error of the mean of the last W ")
    # a run that was trained with it holds the same globals
    assert said("runs/wima", "--out", "w").replace("wima,", "fma,", 1).splitlines()[0] == words.splitlines()[0]
    with pytest.raises(FedscopeError, match=r"holds another result, of --windows 5, 10 \(not 2, 5\)"):
        said("runs/fma", "--windows", "2,5", "--out", base)
    with pytest.raises(FedscopeError, match=r"holds another result, of --rounds 3-12 \(not 4\);"):
        said("runs/fma", "--rounds", "4", "--out", base)  # which is too short for a window of 10
    with pytest.raises(FedscopeError, match=r"holds another result, of --parts all \(not features\)"):
        said("runs/fma", "--parts", "features", "--out", base)


def test_a_seed_of_nothing_that_is_drawn_makes_no_other_question(
    runs: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    said("runs/fma", "--windows", "2", "--out", "w")
    assert run(["wima", "runs/fma", "--windows", "2", "--seed", "3", "--out", "w"]) == 0
    assert "already holds this result" in capsys.readouterr().err
    said("runs/fma", "--windows", "2", "--limit", "9", "--out", "l")
    with pytest.raises(FedscopeError, match=r"holds another result, of --seed 0 \(not 3\)"):
        said("runs/fma", "--windows", "2", "--limit", "9", "--seed", "3", "--out", "l")


def test_several_runs_and_a_name_for_each_question(runs: Path, said: Callable[..., str]) -> None:
    out = json.loads(said("runs/fma", "runs/wima", "--windows", "3", "--rounds", "4,last", "--json"))
    assert [(one["run"], one["round"]) for one in out["rounds"]] == [
        ("fma", 4), ("fma", 12), ("wima", 4), ("wima", 12)
    ]  # fmt: skip
    assert out["rounds"][1]["rows"] == out["rounds"][3]["rows"]
    assert [one["window"] for one in out["means"]] == [1, 3, 1, 3]
    assert Path(out["files"][0]) == Path("runs/fma/figures/wima-test-wima-3-4-last.wima.csv")


def test_the_last_globals_are_enough_for_the_last_rounds(runs: Path, said: Callable[..., str]) -> None:
    with pytest.raises(
        FedscopeError,
        match=r"runs/late does not hold the global model of round 1, which the mean of the last 5 in round 3 needs; "
        r"give --rounds from 10 on, or train with record\.globals = 'all'",
    ):
        said("runs/late", "--windows", "2,5")
    late, whole = (
        json.loads(said(f"runs/{run}", "--windows", "2,5", "--rounds", "last:3", "--json", "--out", run))
        for run in ("late", "fma")
    )
    assert [one["rows"] for one in late["rounds"]] == [one["rows"] for one in whole["rounds"]]
