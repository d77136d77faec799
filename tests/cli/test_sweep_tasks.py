"""Sweeps of tasks of one's own: trained where somebody typed them, never where only a plan's file names them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedscope
from fedscope import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.training import Sweep
from fedscope.training.sweeps.own_code import given_with, with_given_code, without_code
from fedscope.training.sweeps.own_task import tasks_of_options
from fedscope.training.sweeps.plan import Plan, plan_sweep, read_plan
from fedscope.training.sweeps.schedule import commands_of

SMALL = (
    "--set data.clients=4 --set run.rounds=1 --set run.participation=1 --set client.epochs=1 --set data.partition=iid"
)
#: with twice the loss a step is twice as long
LOSSES = """
from torch.nn import functional

def twice(factor=2.0):
    return lambda outputs, y: factor * functional.cross_entropy(outputs, y, reduction="none")
"""


def words(text: str) -> list[str]:
    return shlex.split(text)


def forget() -> None:
    """As a new process."""
    for name in [name for name in sys.modules if name == "losses" or name.startswith("losses_")]:
        del sys.modules[name]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.py").write_text(LOSSES)
    forget()
    yield tmp_path
    forget()


def losses_of(sweep: str) -> dict[str, float]:
    return {path.name: float(Run.open(path).round(1).metrics["test_loss"]) for path in Path(sweep, "runs").iterdir()}


def test_every_run_learns_the_task_that_was_typed_for_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the same runs by hand."""
    typed = f"sweep method=fma 'model.task=losses:twice,losses:twice(3.0),classification' {SMALL} --out s"
    assert run(words(typed)) == 0, capsys.readouterr().err
    alone = {"fma-tasktwice": "losses:twice", "fma-tasktwice-3.0": "losses:twice(3.0)", "fma-taskclassification": ""}
    for name, task in alone.items():
        own = ["--task", task] if task else []
        assert run(["train", "--method", "fma", *words(SMALL), *own, "--out", name]) == 0, capsys.readouterr().err
    found = losses_of("s")
    assert found == {name: Run.open(name).round(1).metrics["test_loss"] for name in alone}
    assert len(set(found.values())) == 3
    learnt = {name: (Run.open(f"s/runs/{name}").config or {})["model"].get("task") for name in alone}
    assert learnt == {name: task or "classification" for name, task in alone.items()}


def test_the_task_of_all_runs_may_be_in_a_file_elsewhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my code").mkdir()
    Path("losses.py").rename("my code/losses.py")
    typed = f"sweep method=fma,fedprox --task 'my code/losses.py:twice(3.0)' {SMALL}"
    assert run(words(f"{typed} --out t --dry-run --json")) == 0, capsys.readouterr().err
    commands = json.loads(capsys.readouterr().out)["commands"]
    file = str((here / "my code/losses.py").resolve())
    assert [words(one)[words(one).index("--task") + 1] for one in commands] == [f"{file}:twice(3.0)"] * 2
    assert run(words(f"{typed} --out s --launcher processes")) == 0, capsys.readouterr().err
    assert "my code" not in Path("s/sweep.json").read_text(), "a plan names no file that could be run"
    assert {(run.config or {})["model"]["task"] for run in Sweep.open("s").runs} == {"losses:twice(3.0)"}


def test_a_file_whose_name_is_no_module_s_is_trained_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By ``train``, which then goes on with it, and by a sweep."""
    Path("losses.py").rename("my-losses.py")
    task = ["--task", "my-losses.py:twice"]
    assert run([*words(f"train --method fma {SMALL} --until 1 --set run.rounds=2 --out r"), *task]) == 0
    assert run(["train", "--resume", "r", *task]) == 0, capsys.readouterr().err
    assert run([*words(f"sweep method=fma,fedprox {SMALL} --out s"), *task]) == 0, capsys.readouterr().err
    assert losses_of("s")["fma"] == Run.open("r").round(1).metrics["test_loss"]


def test_a_plan_goes_on_with_a_task_that_is_given_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_sweep_of("losses:twice")
    (here / "s").mkdir()
    plan.write(here / "s")
    capsys.readouterr()
    assert run(words("sweep --resume s")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fedscope: s: the plan's run fma is trained with task losses:twice, your own code, which is never loaded from "
        "a file; if you know it, give --task losses:twice"
    )
    forget()
    (here / "losses.py").write_text(f"{LOSSES}\nCHANGED = True\n")
    assert run(words("sweep --resume s --task losses:twice")) == 2
    assert "task losses:twice has another source than the sweep began with" in capsys.readouterr().err
    forget()
    (here / "losses.py").write_text(LOSSES)
    assert run(words("sweep --resume s --task losses:twice --seeds 0..1")) == 2
    assert "give it alone, or with --code and --task" in capsys.readouterr().err
    assert run(words("sweep --resume s --task losses:twice")) == 0, capsys.readouterr().err


def plan_sweep_of(task: str) -> Plan:
    settings: dict[str, dict[str, Any]] = {
        "data": {"clients": 4, "partition": "iid"},
        "run": {"rounds": 1, "participation": 1.0},
        "model": {"task": task},
    }
    return plan_sweep(fedscope.training.Setup(), [[{"method": "fma"}]], (), settings)


def test_a_file_that_a_plan_names_is_never_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_sweep_of("losses:twice").write(here)
    mark = here / "mark"
    (here / "losses.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n{LOSSES}")
    forget()
    for name in ("losses:twice", f"{here}/losses.py:twice"):
        folder = here / name.partition(":")[0].replace("/", "")
        folder.mkdir()
        (folder / "sweep.json").write_text((here / "sweep.json").read_text().replace("losses:twice", name))
        for more in ("", " --task torch.nn:HuberLoss", " --dry-run"):
            assert run([*words(f"sweep --resume {folder.name}{more}")]) == 2
            assert capsys.readouterr().err.count("fedscope: ") == 1
    assert not mark.exists()


def test_jobs_are_given_it_by_name(here: Path) -> None:
    plan = plan_sweep_of("losses.py:twice")
    sent = without_code(plan.runs[0])
    assert type(sent.tables["model"]["task"]) is str
    assert [one.word for one in given_with(plan).values()] == ["task=losses:twice"]
    plan.write(here)
    again = with_given_code(read_plan(here), tasks_of_options(["losses:twice"]))
    (command,) = commands_of(again, here, {"fma": None})
    assert command[command.index("--task") :][:2] == ["--task", "losses:twice"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--task losses:twise", 'losses has no twise; did you mean "twice"?'.removeprefix("losses ")),
        ("--task losess.py:twice", 'there is no file losess.py; did you mean "losses.py"?'),
        ("--task regresion", 'did you mean "regression"?'),
        (
            "--task losses:twice --set data.partition=shards:2",
            "data.partition = 'shards:2' divides the samples by class",
        ),
        ("--task regression --set model.task=sequences", "are two tasks of all runs; leave one out"),
        ("--task regression --task sequences", "are two tasks of all runs; leave one out, or vary model.task=A,B"),
        ("--task regression model.task=sequences,classification", ": --task sets what the sweep varies; leave one out"),
    ],
)
def test_slips(here: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str) -> None:
    small = SMALL.rpartition(" --set ")[0] if "partition" in typed else SMALL
    assert run(words(f"sweep method=fma {typed} {small} --out s")) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("s").exists()


def test_python_gives_it_by_its_name(here: Path) -> None:
    small = {"data.clients": 4, "run.participation": 1.0, "data.partition": "iid"}
    settings = {"data": {"clients": 4, "partition": "iid"}, "run": {"participation": 1.0}}
    for task in ("losses:twice", nn.CrossEntropyLoss(label_smoothing=0.5)):
        out = f"s-{type(task).__name__}"
        made = fedscope.sweep({"method": ["fma"]}, rounds=1, task=task, settings=settings, out=out)
        alone = fedscope.train({**small, "method": "fma"}, f"{out}-alone", rounds=1, task=task)
        assert made.runs[0].round(1).metrics["test_loss"] == alone.round(1).metrics["test_loss"]
    smooth = nn.CrossEntropyLoss(label_smoothing=0.5)
    made = fedscope.sweep({"model.task": [None, smooth]}, rounds=1, settings=settings, out="axis")
    learnt = [(run.config or {})["model"].get("task") for run in made.runs]
    assert learnt == ["classification", "torch.nn:CrossEntropyLoss(label_smoothing=0.5)"], "with its arguments"
    with pytest.raises(FedscopeError, match=r"give the name of a function that makes it, as in task='mytask:make'"):
        fedscope.sweep({"method": ["fma"]}, task=lambda outputs, y: outputs.sum(1), out="t")
