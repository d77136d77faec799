"""``--redraw`` draws the result that lies there, and no other one than the command names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedscope.cli.main import run

pytestmark = pytest.mark.usefixtures("few_digits")

TINY = "--method fma --clients 4 --participation 1 --rounds 3 --epochs 1 --set model.hidden=[6]"
RUNS = {"fma": TINY, "ima": f"{TINY} --method ima --set average.start=2", "part": f"{TINY} --rounds 5 --until 3"}
REMEDY = "leave --redraw out with another --out, or ask for what it holds"
#: by the command that made a result: another one, and what the file holds instead
OTHERS = {
    "decompose runs/fma runs/ima --draws none --rounds last": {
        "runs/ima runs/fma --draws none": ("m.factors.json", "the runs runs/fma, runs/ima"),
        "runs/fma --draws none": ("m.factors.json", "the runs runs/fma, runs/ima"),
        "runs/fma runs/ima --rounds 2": ("m.factors.json", "round 3"),
        "runs/fma runs/ima --draws local:2": ("m.factors.json", "--draws none (not local:2)"),
        "runs/fma runs/ima --limit 9": ("m.factors.json", "--limit none (not 9)"),
        "runs/fma runs/ima --split test": ("m.factors.json", "--split train (not test)"),
        "runs/fma runs/ima --normalization re-estimate": (
            "m.factors.json",
            "--normalization none (not re-estimate)",
        ),
    },
    "line runs/fma@last runs/ima@1 --points 4 --limit 50": {
        "runs/ima@1 runs/fma@last": ("m.nc", "the models runs/fma@last, runs/ima@1"),
        "runs/fma@last runs/ima@2": ("m.nc", "the models runs/fma@last, runs/ima@1"),
        "runs/fma@last runs/ima@1 --points 5": ("m.nc", "--points 4 (not 5)"),
        "runs/fma@last runs/ima@1 --range 0 1": ("m.nc", "--range -0.5,1.5 (not 0,1)"),
        "runs/fma@last runs/ima@1 --limit 60": ("m.nc", "--limit 50 (not 60)"),
        "runs/fma@last runs/ima@1 --seed 1": ("m.nc", "--seed 0 (not 1)"),
        "runs/fma@last runs/ima@1 --align weights": ("m.nc", "--align none (not weights)"),
        "runs/fma@last runs/ima@1 --data-of 3": ("m.nc", "--data-of none (not 3)"),
        "runs/fma@last runs/ima@1 --task regression": ("m.nc", "--task classification (not regression)"),
        "runs/fma@last runs/ima@1 --task mine:make": ("m.nc", "--task classification (not mine:make)"),
    },
    "plane runs/fma@1 runs/fma@2 runs/ima@3 --grid 5": {
        "runs/ima@3 runs/fma@2 runs/fma@1": ("m.nc", "the models runs/fma@1, runs/fma@2, runs/ima@3"),
        "runs/fma": ("m.nc", "the models runs/fma@1, runs/fma@2, runs/ima@3"),
        "runs/fma@1 runs/fma@2 runs/ima@3 --grid 9": ("m.nc", "--grid 5 (not 9)"),
        "runs/fma@1 runs/fma@2 runs/ima@3 --split train": ("m.nc", "--split test (not train)"),
    },
    "plane runs/fma@2 --random --grid 5 --seed 2": {
        "runs/fma@2 --random --seed 3": ("m.nc", "--seed 2 (not 3)"),
    },
    "cka runs/fma --rounds last": {
        "runs/fma --estimator biased": ("m.nc", "--estimator unbiased (not biased)"),
        "runs/fma --rounds 1,2": ("m.nc", "round 3"),
        "runs/fma --layer fc1": ("m.nc", "--layer output (not fc1)"),
    },
    "subsets runs/fma runs/ima@2 --sizes 1,2": {
        "runs/ima@2 runs/fma": ("m.subsets.json", "the runs runs/fma, runs/ima"),
        "runs/fma runs/ima@3": ("m.subsets.json", "round 2"),
        "runs/fma runs/ima@2 --sizes 1,2,3": ("m.subsets.json", "--sizes 1-2 (not 1,2,3)"),
    },
    "wima runs/fma runs/ima --windows 2": {
        "runs/ima runs/fma": ("m.wima.json", "the runs runs/fma, runs/ima"),
        "runs/fma runs/ima --windows 3": ("m.wima.json", "--windows 2 (not 3)"),
    },
    "disperse runs/fma --rounds 2": {
        "runs/fma --fdr 0.5": ("m.dispersion.json", "--fdr 0.05 (not 0.5)"),
        "runs/fma@1": ("m.dispersion.json", "round 2"),
    },
    "curves runs/fma runs/ima": {"runs/ima runs/fma": ("m.curves.json", "the runs runs/fma, runs/ima")},
    "updates runs/fma runs/ima --rounds 1": {"runs/fma runs/ima@2": ("m.ima.nc", "round 1")},
    "explain runs/fma --draws none --rounds 1,last": {
        "runs/ima": ("m.factors.json", "the run runs/fma"),
        "runs/fma --rounds 2": ("m.factors.json", "rounds 1, 3"),
    },
    "reaggregate runs/fma@2 --server fedavgm": {
        "runs/fma@2 --server fedavgm --set server.momentum=0.5": (
            "m.reaggregate.json",
            "--set server.momentum=0.9 (not server.momentum=0.5)",
        ),
    },
    "synergy runs/fma@2": {"runs/fma@2 --classes 3": ("m.nc", "--classes 4 (not 3)")},
}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert run(list(words)) == 2, words
    return capsys.readouterr().err


@pytest.mark.parametrize("made", OTHERS)
def test_another_result_than_the_one_that_lies_there_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], made: str
) -> None:
    command, *words = made.split()
    assert run([command, *words, "--out", "m"]) == 0
    assert run([command, *words, "--out", "m", "--redraw"]) == 0
    for other, (file, holds) in OTHERS[made].items():
        more = ["--server", "fedavgm"] if command == "reaggregate" and "--server" not in other else []
        said = refused(capsys, command, *other.split(), *more, "--out", "m", "--redraw")
        assert said.splitlines()[-1] == f"fedscope: {file} holds another result, of {holds}; {REMEDY}"


def test_labels_never_land_on_another_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ("--label", "Ours", "--label", "FedAvg", "--out", "m", "--redraw")
    assert run(["line", "runs/fma@last", "runs/ima@last", "--points", "4", "--out", "m"]) == 0
    holds = f"m.nc holds another result, of the models runs/fma@last, runs/ima@last; {REMEDY}"
    assert refused(capsys, "line", "runs/ima@last", "runs/fma@last", *labels) == f"fedscope: {holds}\n"
    shutil.rmtree("runs")  # the names alone tell it
    assert refused(capsys, "line", "runs/ima@last", "runs/fma@last", *labels) == f"fedscope: {holds}\n"
    capsys.readouterr()
    assert run(["line", "runs/fma@last", "runs/ima@last", *labels]) == 0
    assert "(Ours - FedAvg)" in capsys.readouterr().out


def test_runs_of_one_name_are_told_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By when they were made; by their folders where they are gone."""
    shutil.copytree("runs/ima", "other/fma")
    assert run(["curves", "runs/fma", "--out", "m"]) == 0
    said = refused(capsys, "curves", "other/fma", "--out", "m", "--redraw")
    assert said == f"fedscope: m.curves.json holds another result, of the run runs/fma; {REMEDY}\n"
    assert run(["line", "runs/fma@3", "other/fma@3", "--points", "4", "--out", "l"]) == 0
    shutil.rmtree("runs")
    shutil.rmtree("other")
    assert run(["line", "runs/fma@3", "other/fma@3", "--points", "4", "--out", "l", "--redraw"]) == 0
    said = refused(capsys, "line", "other/fma@3", "runs/fma@3", "--out", "l", "--redraw")
    assert said == f"fedscope: l.nc holds another result, of the models runs/fma@3, other/fma@3; {REMEDY}\n"


def test_a_run_that_was_made_again_is_another_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        "m.nc": ["line", "runs/fma@1", "runs/fma@2", "--points", "4", "--out", "m"],
        "c.curves.json": ["curves", "runs/fma", "--out", "c"],
    }
    for words in asked.values():
        assert run(words) == 0
    assert run(["train", *TINY.split(), "--out", "runs/fma", "--force"]) == 0
    for file, words in asked.items():
        said = refused(capsys, *words, "--redraw")
        assert said == f"fedscope: {file} holds another result, of runs/fma before it was made again; {REMEDY}\n"


def test_a_result_is_drawn_again_after_its_run_has_gone_on_or_away(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words such as ``last`` are what they were, and what was not typed is not asked for."""
    assert run(["decompose", "runs/part", "--draws", "none", "--rounds", "1,last", "--limit", "60", "--out", "d"]) == 0
    assert run(["curves", "runs/part", "--out", "c"]) == 0
    assert run(["plane", "runs/part@last", "--clients", "--grid", "5", "--out", "p"]) == 0
    assert run(["train", "--resume", "runs/part"]) == 0
    capsys.readouterr()
    for words in (
        ["decompose", "runs/part", "--rounds", "1,last", "--out", "d"],
        ["decompose", "runs/part", "--out", "d", "--rounds", "last:2"],
        ["curves", "runs/part", "--measure", "test_loss", "--smooth", "0", "--out", "c"],
        ["plane", "runs/part@last", "--clients", "--out", "p"],
        ["plane", "runs/part@3", "--clients", "--out", "p", "--title", "again"],
    ):
        assert run([*words, "--redraw"]) == 0, capsys.readouterr().err
    Path("runs").rename("moved")
    assert run(["plane", "moved/part@last", "--clients", "--out", "p", "--redraw"]) == 0
    monkeypatch.chdir("moved")
    assert run(["plane", "part@last", "--clients", "--out", "../p", "--redraw"]) == 0


def test_a_surface_of_another_file_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, split in (("a", "test"), ("b", "train")):
        words = ["plane", "runs/fma@1", "runs/fma@2", "runs/fma@3", "--grid", "3", "--split", split, "--out", name]
        assert run(words) == 0
        assert run(["export", f"{name}.nc", f"{name}.h5"]) == 0
    assert run(["import", "a.h5", "--out", "s"]) == 0
    said = refused(capsys, "import", "b.h5", "--out", "s", "--redraw")
    assert said == f"fedscope: s.nc holds another result, of another surface; {REMEDY}\n"
    Path("a.h5").rename("moved.h5")
    assert run(["import", "moved.h5", "--out", "s", "--redraw"]) == 0
