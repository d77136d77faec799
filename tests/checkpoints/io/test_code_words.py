"""What a sentence says of how a run goes on names the run's own code, and sends nobody to train what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints.io.code_words import code_words_at, is_recorded_at
from fedscope.checkpoints.io.hdf5_validation import remedy
from fedscope.checkpoints.recorder.recorder import Recorder
from fedscope.cli.main import run

pytestmark = pytest.mark.same_elsewhere

CODE = [{"kind": "server", "name": "mine:FedX"}, {"kind": "client", "name": "mine:Old"}]


def trained(folder: Path) -> Path:
    """What stands in a run's folder: a branch whose rounds before it used a client's code of their own."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"code": CODE}))
    (folder / "config.toml").write_text('[server]\nmethod = "mine:FedX"\n[model]\ntask = "mine:ordered"\n')
    return folder


def test_the_code_of_a_run_and_of_a_branch(tmp_path: Path) -> None:
    run_ = trained(tmp_path / "own")
    server, task = ("--code", "server=mine:FedX"), ("--task", "mine:ordered")
    assert code_words_at(run_) == (*server, "--code", "client=mine:Old", *task)
    assert code_words_at(run_, branch=True) == (*server, *task)
    assert code_words_at(tmp_path / "nowhere", branch=True) == ()
    assert not is_recorded_at(run_)
    assert not is_recorded_at(tmp_path / "nowhere")


def test_a_damaged_round_of_a_run_with_own_code_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rounds = trained(Path("own")) / "rounds"
    line = "fedscope train --from own@4 --code server=mine:FedX --task mine:ordered"
    assert remedy(rounds / "00005.h5") == f"restore it from a copy, or train again from the round before: {line}"
    assert remedy(rounds / "00001.h5") == "restore it from a copy, or train again"
    assert remedy(Path("own/kept/00005.h5")) == "restore it from a copy"


@pytest.mark.parametrize(
    "info",
    [
        [],
        3,
        None,
        "source",
        {"code": 3},
        {"code": [3]},
        {"code": "server=mine:FedX"},
        {"code": {"kind": "server", "name": "mine:FedX"}},
        {"code": [{"kind": "server", "name": ["mine:FedX"]}]},
        {"code": [{"kind": "server", "name": None}, {"name": "mine:FedX"}, {"kind": 3, "name": "mine:FedX"}]},
        {"code": [{"kind": "--out", "name": "mine:FedX"}, {"kind": "server", "name": "mine:Fed\x1b[2JX"}]},
    ],
)
@pytest.mark.parametrize("branch", [True, False])
def test_odd_files_of_a_damaged_run_add_nothing(tmp_path: Path, info: object, branch: bool) -> None:
    run_ = trained(tmp_path / "own")
    (run_ / "run.json").write_text(json.dumps(info))
    line = f"fedscope train --from {run_}@4"
    for config in ('[model]\ntask = ["a:b"]\n', "[model]\ntask = 3\n", "model = 3\n", '[model]\ntask = "a:\\u001bb"\n'):
        (run_ / "config.toml").write_text(config + '[server]\nmethod = ["mine:FedX"]\n')
        assert code_words_at(run_, branch=branch) == ()
        assert not is_recorded_at(run_)
        told = remedy(run_ / "rounds" / "00005.h5")
        assert told == f"restore it from a copy, or train again from the round before: {line}"


def test_a_damaged_run_of_another_program_is_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``fedscope train --from`` was named, which refuses such a run."""
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "other"):
        with Recorder(name) as recorder:
            for _ in range(3):
                model = {"w": np.ones(2, np.float32)}
                recorder.round(start=model, clients=[model, model], global_=model, samples=[5, 5])
    file = Path("loop/rounds/00003.h5")
    file.write_bytes(file.read_bytes()[:900])
    capsys.readouterr()
    assert is_recorded_at(Path("loop"))
    assert remedy(file) == "restore it from a copy, or record its training again"
    assert run(["ls", "--check", "loop"]) == 2
    said = "is damaged; restore what is named from a copy, or record its training again"
    assert capsys.readouterr().err == f"fedscope: loop {said}\n"
    Path("other/rounds/00002.h5").write_bytes(b"")
    assert run(["ls", "--check", "."]) == 2
    said = "2 of 2 runs are damaged; restore what is named from a copy, or record their training again"
    assert capsys.readouterr().err == f"fedscope: {said}\n"
