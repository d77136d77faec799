"""Programs that a command starts compute on the device that it was given, and so does a command as a whole program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import pytest
from device.pretend import everywhere

from fedscope.checkpoints import Run
from fedscope.cli.main import run

pytestmark = pytest.mark.device

SMALL = ["--clients", "4", "--participation", "1", "--rounds", "2", "--epochs", "1", "--set", "model.hidden=[6]"]


@pytest.fixture
def children(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which programs have the device; this process hands it on to its own."""
    found = everywhere(tmp_path_factory.mktemp("everywhere") / "folder")
    for name in ("PYTHONPATH", "PRETEND_BYTES", "PRETEND_WITHOUT_FLOAT64"):
        monkeypatch.setenv(name, found[name])
    return found


def ended(*words: str, environment: dict[str, str], status: int = 0) -> str:
    """What a program of fedscope's says, once it has ended as it should."""
    command = [sys.executable, "-P", "-m", "fedscope", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_program_has_the_device(pretend: str, children: dict[str, str], tmp_path: Path) -> None:
    ended("train", *SMALL, "--device", pretend, "--out", str(tmp_path / "there"), environment=children)
    assert run(["train", *SMALL, "--device", "cpu", "--out", str(tmp_path / "cpu")]) == 0
    there, here = Run.open(tmp_path / "there"), Run.open(tmp_path / "cpu")
    assert (there.info["device"], here.info["device"]) == (pretend, "cpu")
    assert there.round(2).read("global").parameters.tobytes() == here.round(2).read("global").parameters.tobytes()


@pytest.mark.parametrize(
    ("how", "word"), [({"most": 1000}, "out of memory"), ({"without_float64": True}, "float64")], ids=["memory", "kind"]
)
def test_a_program_has_as_much_of_it_as_is_said(how: dict[str, Any], word: str, tmp_path: Path) -> None:
    code = "import torch; torch.zeros(1000, dtype=torch.float64, device='pretend')"
    environment = everywhere(tmp_path / "folder", **how)
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    assert word in done.stderr.splitlines()[-1]


def test_jobs_of_a_sweep_train_on_it(pretend: str, children: dict[str, str], tmp_path: Path) -> None:
    settings = ["--set", "data.clients=4", "--set", "run.rounds=2", "--set", "model.hidden=[6]"]
    words = ["sweep", "method=fma,fedavgm", *settings, "--set", f"run.device={pretend}:1"]
    assert run([*words, "--launcher", "processes", "--job", "array_parallelism=1", "--out", str(tmp_path / "s")]) == 0
    for name in ("fma", "fedavgm"):
        one = Run.open(tmp_path / "s" / "runs" / name)
        assert one.info["device"] == f"{pretend}:1"
        assert one.rounds == (1, 2)


def test_jobs_of_a_plane_measure_on_it(
    pretend: str, children: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", *SMALL, "--device", "cpu", "--out", "r"]) == 0
    words = ["plane", "r@2", "--clients", "--grid", "5", "--limit", "100", "--device", pretend]
    assert run([*words, "--out", "here"]) == 0
    assert run([*words, "--launcher", "processes", "--blocks", "2", "--out", "jobs"]) == 0
    with h5py.File("here.nc") as here, h5py.File("jobs.nc") as jobs:
        assert here.attrs["device"] == jobs.attrs["device"] == pretend
        assert (here["loss"][()] == jobs["loss"][()]).all()
