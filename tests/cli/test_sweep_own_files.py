"""Sweeps of code in files that lie elsewhere, and of files that are edited while a sweep trains."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from own_code import MODULE

from fedscope import Run
from fedscope.cli.main import run
from fedscope.training import Setup, Sweep
from fedscope.training.jobs.worker import Worker
from fedscope.training.sweeps.by_jobs import RunOfSweep
from fedscope.training.sweeps.own_code import given_with, with_given_code, without_code
from fedscope.training.sweeps.plan import Plan, plan_sweep
from fedscope.training.sweeps.printed_commands import resuming
from fedscope.training.sweeps.schedule import commands_of
from fedscope.training.user_code.provided_code import code_of_options

SMALL = "--set data.clients=4 --set run.rounds=1 --set run.participation=1 --set client.epochs=1"
#: of two files of one name, each with a method of one name
ONE, TWO = "one/mine.py:Heavy", "two/mine.py:Heavy"


def words(text: str) -> list[str]:
    return text.split()


def forget() -> None:
    """As a new process."""
    for name in [name for name in sys.modules if name == "mine" or name.startswith("mine_")]:
        del sys.modules[name]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two others, each with a module of one's own; the second one counts on half a step."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(
            MODULE if name == "one" else MODULE.replace("self.beta * state", "0 * state")
        )
    forget()
    yield tmp_path
    forget()


def planned(*files: str) -> Plan:
    """FMA beside each; an average would have the runs begin from one another."""
    axes = [[{"server.method": name, "average.method": "none"} for name in ("fma", *files)]]
    settings: dict[str, dict[str, Any]] = {"data": {"clients": 4}, "run": {"rounds": 1}}
    return plan_sweep(Setup(), axes, (), settings)


def commands(capsys: pytest.CaptureFixture[str], typed: str) -> list[list[str]]:
    capsys.readouterr()
    assert run(words(f"{typed} --dry-run --json")) == 0
    return [shlex.split(text)[1:] for text in json.loads(capsys.readouterr().out)["commands"]]


def test_code_in_files_elsewhere_is_trained_under_the_names_of_the_plan(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two files of one name, and a network, data and a partition of one of them."""
    typed = (
        f"sweep server.method={ONE},{TWO} --set model.name=one/mine.py:net(5) --set data.name=one/mine.py:load "
        f"--set data.partition=one/mine.py:split --set average.method=none {SMALL}"
    )
    assert run(words(f"{typed} --out s")) == 0, capsys.readouterr().err
    called = {path.name: (Run.open(path).config or {}) for path in Path("s/runs").iterdir()}
    plan = json.loads(Path("s/sweep.json").read_text())
    assert {entry["name"]: entry["config"]["server"]["method"] for entry in plan["runs"]} == {
        name: config["server"]["method"] for name, config in called.items()
    }
    assert called["heavy"]["server"]["method"] == "mine:Heavy"
    assert called["heavy-2"]["server"]["method"].startswith("mine_")
    assert called["heavy"]["model"]["name"] == "mine:net(5)"
    assert "mine.py" not in Path("s/sweep.json").read_text(), "a plan names no file that could be run"
    # what --dry-run prints does the same by hand
    forget()
    last = commands(capsys, f"{typed} --out t")[-1]
    forget()
    assert run(last) == 0, capsys.readouterr().err
    assert (Run.open("t/runs/heavy-2").config or {})["server"] == called["heavy-2"]["server"]


def given_words(folder: str, *codes: str) -> list[str]:
    """What the commands of a plan are given for its code, where a new process was given these."""
    forget()
    plan = with_given_code(Sweep.open(folder).plan, code_of_options(codes))
    rounds = dict.fromkeys(one.name for one in plan.runs)
    found = [list(map(str, command)) for command in commands_of(plan, Path(folder), rounds)]
    return [after for command in found for word, after in pairwise(command) if word == "--code"]


def test_a_plan_goes_on_with_code_from_wherever_it_is_given(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "s").mkdir()
    plan = planned(ONE, TWO)
    plan.write(here / "s")
    second = str(plan.runs[2].tables["server"]["method"])
    one, two = (f"{here.resolve()}/{name}/mine.py:Heavy" for name in ("one", "two"))
    expected = [f"server={one}", f"server={second}={two}"]
    assert given_words("s", f"server={ONE}", f"server={TWO}") == expected
    # by its source, in whichever order, and wherever the file lies by now
    assert given_words("s", f"server={TWO}", f"server={ONE}") == expected
    Path("two").rename("three")
    moved = [expected[0], expected[1].replace("/two/", "/three/")]
    assert given_words("s", f"server={ONE}", "server=three/mine.py:Heavy") == moved
    # a process that was given it so has it under the plan's name
    forget()
    assert code_of_options(moved[1:]).keys() == {"server", f"server={second}"}
    # as a module of the folder that one stands in, which is not the plan's
    monkeypatch.chdir("one")
    assert given_words("../s", "server=mine:Heavy", "server=../three/mine.py:Heavy") == moved


def test_code_of_the_plans_own_folder_is_given_as_a_module(here: Path) -> None:
    Path("one/mine.py").rename("mine.py")
    for typed in ("mine:Heavy", "mine.py:Heavy"):
        forget()
        assert [one.word for one in given_with(planned(typed)).values()] == ["server=mine:Heavy"]


def test_a_plan_that_names_a_file_runs_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither does code that was given for another name of its kind."""
    (here / "s").mkdir()
    planned(ONE).write(here / "s")
    (here / "one/mine.py").write_text(f"from pathlib import Path\nPath({str(here / 'mark')!r}).touch()\n{MODULE}")
    for name in (f"{here}/one/mine.py:Heavy", "other:Heavy"):
        text = (here / "s/sweep.json").read_text().replace("mine:Heavy", name)
        (here / "t").mkdir(exist_ok=True)
        (here / "t/sweep.json").write_text(text)
        forget()
        for given in ([], ["--code", f"server={TWO}"]):
            capsys.readouterr()
            assert run(["sweep", "--resume", "t", *given]) == 2
            assert given or "own code, which is never loaded from a file" in capsys.readouterr().err
    assert not (here / "mark").exists()


def test_words_that_go_on_with_a_sweep_give_its_code(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C, where another sweep lies there, and where its failures or its data have to be mended."""
    (here / "losses.py").write_text("def double():\n    return lambda outputs, y: 2 * outputs.sum(1)\n")
    typed = f"sweep server.method=fma,{ONE} --task losses:double --set average.method=none {SMALL}"
    typed += " --set data.partition=iid --out s"
    code = f"--code server={here.resolve()}/one/mine.py:Heavy"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr("fedscope.training.sweeps.sweep.train_sweep", stop)
        assert run(words(typed)) == 130
    again = f"fedscope sweep --resume s --task losses:double {code}"
    assert f"fedscope: go on with: {again}\n" in capsys.readouterr().err
    plan = Sweep.open("s").plan
    by_name = ("sweep", "--resume", "s", "--task", "losses:double", "--code", "server=mine:Heavy")
    assert resuming(plan, Path("s")) == by_name
    assert run(words(f"{typed} --set client.lr=0.3")) == 2
    assert capsys.readouterr().err.endswith(f"in fma, not 0.3; give another --out, or {again}\n")
    Path("s/failures.json").write_text("{")
    assert run(words("curves s")) == 2
    remedy = "remove it, and train again: fedscope sweep --resume s --task losses:double --code server=mine:Heavy\n"
    assert capsys.readouterr().err.endswith(remedy)
    Path("s/failures.json").unlink()
    assert run(words("curves s")) == 2
    remedy = "go on with it: fedscope sweep --resume s --task losses:double --code server=mine:Heavy\n"
    assert capsys.readouterr().err.endswith(remedy)
    assert run(words(f"sweep --resume s --task losses:double {code}")) == 0, capsys.readouterr().err
    # commands of a table have the words that single runs have
    capsys.readouterr()
    assert run(words("table s --commands --rows server.method --measure seconds")) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert commands[1].endswith(
        "--set model.task=losses:double --code server=mine:Heavy --task losses:double --out s/runs/heavy"
    ), commands


# --- a file that is edited meanwhile ---


def test_a_run_is_not_trained_in_vain_where_its_file_was_edited(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, begun = Worker.begin, list[Sequence[str]]()

    def edit(self: Worker, words: Sequence[str], log: Path) -> None:
        begun.append(words)
        (here / "one/mine.py").write_text(MODULE + "# a comment\n")
        begin(self, words, log)

    monkeypatch.setattr(Worker, "begin", edit)
    typed = f"sweep server.method=fma,{ONE},fedavgm --set average.method=none {SMALL} --out s"
    assert run(words(typed)) == 2
    said = capsys.readouterr().err
    file = f"{here.resolve()}/one/mine.py"
    assert f"heavy: failed: {file} says another source of server mine:Heavy than the sweep began with" in said
    assert "restore it, or begin another sweep with another --out" in said
    assert len(begun) == 2, "those of fedscope's own are trained"
    assert not Path("s/runs/heavy").exists()
    (here / "one/mine.py").write_text(MODULE)
    monkeypatch.setattr(Worker, "begin", begin)
    forget()
    assert run(words(f"sweep --resume s --code server={ONE}")) == 0, capsys.readouterr().err
    assert Run.open("s/runs/heavy").rounds == (1,)


def test_a_job_does_not_train_in_vain_either(here: Path) -> None:
    plan = planned(ONE)
    (here / "s").mkdir()
    plan.write(here / "s")
    asked: list[Sequence[str]] = []

    def do(words: Sequence[str], log: Path) -> int:
        asked.append(words)
        return 0

    job = RunOfSweep(here / "s", without_code(plan.runs[1]), None, given_with(plan))
    assert job.work(do) is None
    assert asked[0][asked[0].index("--code") + 1] == f"server={here.resolve()}/one/mine.py:Heavy"
    (here / "one/mine.py").write_text(MODULE + "# a comment\n")
    assert "says another source of server mine:Heavy" in str(job.work(do))
    Path("one/mine.py").unlink()
    assert "/one/mine.py is gone, with server mine:Heavy" in str(job.work(do))
    assert len(asked) == 1


def test_a_slip_in_a_file_of_a_method_is_said_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", "method=fma,one/mine.py:Heavi", *words(SMALL), "--out", "s"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedscope: method one/mine.py:Heavi: one/mine.py ")
    assert 'has no Heavi; did you mean "Heavy"?' in said
