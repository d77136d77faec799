"""No run's file makes fedscope import a module, wherever the module lies; what is refused says the whole command."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from few import few

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run

pytestmark = pytest.mark.same_elsewhere

EVIL = """
from pathlib import Path

Path("mark").touch()  # of an import

import numpy as np
from torch import nn


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def load():
    draw = np.random.default_rng(0)
    return draw.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 3


def task(outputs, y):
    return nn.functional.cross_entropy(outputs, y, reduction="none")
"""

#: that measure; with whichever of --model and --data the run names
MEASURES = {
    "plane": "plane run@2 --clients --grid 3",
    "plane-alone": "plane run --grid 3",
    "plane-trajectory": "plane run --trajectory --grid 3",
    "planes": "plane run --rounds 1,2 --grid 3",
    "line": "line run@1/global run@2/global --points 3",
    "line-clients": "line run@2 --clients --points 3",
    "sharpness": "sharpness run@2 --no-hessian --draws 2 --split test",
    "cka": "cka run --rounds last",
    "cka-models": "cka run@1/global run@2/global",
    "subsets": "subsets run --rounds last",
    "consensus": "consensus run --rounds last",
    "wima": "wima run --windows 2 --rounds 2",
    "decompose": "decompose run --rounds last --draws none --split test",
    "explain": "explain run --rounds last --draws none --split test",
    "forgetting": "forgetting run --rounds last --split test",
    "matrix": "matrix run --split test",
    "theory": "theory run --draws none --kernel none --split test",
    "reaggregate": "reaggregate run@2 --server fedavgm",
}
#: that only read
OTHERS = (
    "line run --points 3",
    "ls run",
    "ls --check run",
    "curves run",
    "table run",
    "updates run",
    "disperse run --rounds 2",
    "disperse run --embed pca",
    "parameters run --round 2",
    "synergy run@2",
    "export run@2 out.pt",
    "report run --out page",
    "report run --compute --out page2",
    "data run",
    "train --resume run",
    "train --from run@2 --out branch",
)
#: what a file may say: entries of run.json, and lines of config.toml
FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": "evil:net", "data": {"name": "digits"}}, ""),
    "data": ({"model": "mlp", "data": {"name": "evil:load"}}, ""),
    "both": ({"model": "evil:net", "data": {"name": "evil:load"}}, ""),
    "called": ({"model": "evil:net()", "data": {"name": "evil:load()"}}, ""),
    "below": ({"model": "inside.evil:net", "data": {"name": "inside.evil:load"}}, ""),
    "file": ({"model": "evil.py:net", "data": {"name": "evil.py:load"}}, '[model]\ntask = "evil.py:task"\n'),
    "file below": ({"model": "inside/evil.py:net", "data": {"name": "./inside/evil.py:load"}}, ""),
    "sum": ({"model": "evil:net", "data": {"name": "evil:load", "sha256": "0" * 64}}, ""),
    "kept": ({"model": "evil:net", "data": {"name": "arrays", "file": "evil.py"}}, ""),
    "trained": (
        {"data": {"name": "evil:load", "sha256": "0" * 64, "shape": [4]}, "model": "evil:net", "classes": 3},
        '[model]\nname = "evil:net"\n',
    ),
    "task": (
        {"data": {"name": "digits", "sha256": "0" * 64}, "classes": 3},
        '[model]\nname = "mlp"\ntask = "evil:task"\n',
    ),
    "settings": (
        {"model": "evil:net", "data": {"name": "digits"}},
        '[data]\nname = "evil:load"\n[server]\nmethod = "evil:S"\n',
    ),
    "partition": ({"model": "evil:net", "data": {"name": "evil:load"}}, '[data]\npartition = "evil:P"\n'),
}


#: fields that every ordinary run of the tests tries
OFTEN = ("both", "file", "kept", "settings")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A bundle: a run, and code in the folder that one stands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as in a notebook
    Path("inside").mkdir()
    for file in (Path("evil.py"), Path("inside/evil.py"), Path("inside/__init__.py")):
        file.write_text(EVIL)
    draw = np.random.default_rng(0)
    with Recorder("run", partition={0: [0, 2], 1: [1, 3], 2: [4, 5]}, labels=[0, 1, 2, 0, 1, 2]) as recorder:
        for _ in range(3):
            clients = [
                {"1.weight": draw.normal(size=(3, 4)).astype(np.float32), "1.bias": np.zeros(3, np.float32)}
                for _ in range(3)
            ]
            w = {name: np.mean([one[name] for one in clients], 0) for name in clients[0]}
            recorder.round(start=w, clients=clients, global_=w, samples=[2, 2, 2], metrics={"test_error": 0.5})
    Path("run/metrics.csv").unlink()  # the numbers are none of these models'
    yield tmp_path
    for name in ("evil", "inside.evil", "inside"):
        sys.modules.pop(name, None)


def forge(entries: dict[str, Any], settings: str) -> None:
    """What somebody else may have written."""
    file = Path("run/run.json")
    info = {key: value for key, value in json.loads(file.read_text()).items() if key != "files"}
    file.write_text(json.dumps({**info, **entries}))
    if settings:
        Path("run/config.toml").write_text(settings)


def imported() -> bool:
    """Whether the code was."""
    return Path("mark").exists() or "evil" in sys.modules or "inside.evil" in sys.modules


@pytest.mark.parametrize("field", few(FIELDS, lambda field: field in OFTEN))
def test_no_question_imports_what_a_runs_file_names(here: Path, capsys: pytest.CaptureFixture[str], field: str) -> None:
    forge(*FIELDS[field])
    others = OTHERS if field in ("both", "file", "trained", "settings") else ()
    for words in (*MEASURES.values(), *others):
        status = run(words.split())
        assert not imported(), words
        assert status in (0, 2)
        if words in MEASURES.values():
            assert status == 2, words
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", MEASURES)
def test_the_refusal_has_the_command_that_asks_the_same(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    forge(*FIELDS["both"])
    words = MEASURES[name].split()
    assert run(words) == 2
    *notes, line = capsys.readouterr().err.splitlines()
    assert len(notes) == name.endswith("-alone")
    what = "run names model evil:net and data evil:load, and no code is called as a run's file says it; if you know it"
    assert line == f"fedscope: {what}, give --model evil:net --data evil:load: {(asked := line.rpartition(': ')[2])}"
    assert shlex.split(asked) == ["fedscope", *words, "--model", "evil:net", "--data", "evil:load"]
    assert not imported()
    assert run([*shlex.split(asked)[1:], "--out", "found"]) == 0, capsys.readouterr().err
    assert imported()


def test_what_is_given_is_not_asked_for_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge(*FIELDS["called"])
    assert run(["subsets", "run", "--model", "evil:net"]) == 2
    assert "run names data evil:load(), and no code" in (said := capsys.readouterr().err)
    assert said.endswith(": fedscope subsets run --model evil:net --data 'evil:load()'\n")
    with pytest.raises(FedscopeError, match=r"run names model evil:net\(\), and no .*, give model='evil:net\(\)': "):
        fedscope.line(["run@1/global", "run@2/global"], data=(np.zeros((3, 4), np.float32), [0, 1, 2]))
    assert not imported()


def test_in_python_it_is_a_call(here: Path) -> None:
    forge(*FIELDS["both"])
    asked = "fedscope.subsets('run', rounds=2, sizes=[1, 2], model='evil:net', data='evil:load')"
    with pytest.raises(FedscopeError) as refused:
        fedscope.subsets("run", rounds=2, sizes=[1, 2])
    assert str(refused.value).endswith(f"give model='evil:net', data='evil:load': {asked}")
    assert not imported()
    assert len(eval(asked).rounds) == 1
    with pytest.raises(FedscopeError, match=r"fedscope.cka\(\['run'\], rounds='last', model='evil:net', data="):
        fedscope.cka([fedscope.Run.open("run")], rounds="last")
    with pytest.raises(FedscopeError, match=r"if you know it, give --model evil:net --data evil:load$"):
        fedscope.subsets.prepare("run").answer()


def test_a_recorder_prints_the_command_at_its_end(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w = {"w": np.zeros(3, np.float32)}
    for about, end in (
        ({"model": "nets:net", "data": "mine:load(2)"}, "--model nets:net --data 'mine:load(2)'\n"),
        ({"model": "nets:net"}, "--model nets:net --data NAME\n"),
        ({"data": "mine:load"}, "--data mine:load --model NAME\n"),
        ({"model": "mlp", "data": "digits"}, ""),
        ({}, ""),
    ):
        with Recorder("printed", force=True, **about) as recorder:  # type: ignore[arg-type]
            recorder.round(clients=[w], global_=w)
        recorder.close()  # once
        said = capsys.readouterr().out
        assert said.endswith(end)
        assert said.count("fedscope subsets") == bool(end)
        assert (f"{here}/printed names your own code" in said) == bool(end)
    with Recorder("empty", model="nets:net"):
        pass
    assert capsys.readouterr().out == ""
