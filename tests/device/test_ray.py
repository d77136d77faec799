"""A round's clients on Ray's workers, each of which has a device, or a share of one: the numbers of one device."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from device.asked import OTHERS
from device.pretend import everywhere

from fedscope.checkpoints import Run
from fedscope.cli.main import run

pytestmark = pytest.mark.device

ROOT = Path(__file__).resolve().parents[2]
#: an environment with Ray, which its own slow tests make
BESIDE = ROOT / "benchmarks" / ".peers" / "ray" / "bin" / "python"


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with Ray."""
    if importlib.util.find_spec("ray") is not None:
        return sys.executable
    if BESIDE.exists():
        return str(BESIDE)
    pytest.skip(
        "Ray is not installed here, nor in benchmarks/.peers, where `pytest -m slow tests/training/local` puts it"
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["device", "cohort"])
def test_rays_workers_give_one_devices_numbers(
    engine: str, python: str, few_digits: None, pretend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND_DEVICE", str(Path(sys.prefix) / "pretend-device"))
    environment = {**everywhere(tmp_path / "everywhere"), "FEDSCOPE_DEVICE": "cpu"}
    words = f"train --clients 8 --participation 1 --rounds 2 --epochs 1 --set run.engine={engine} --device {pretend}"

    def ended(*more: str) -> None:
        command = [python, "-P", "-m", "fedscope.cli", *more]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stderr

    ended(*words.split(), "--engine", "ray:3", "--out", "spread")
    ended(*words.split(), "--out", "one")
    spread, one = Run.open(tmp_path / "spread"), Run.open(tmp_path / "one")
    about = spread.info["cluster"]
    assert about["workers"].endswith(" on 1 machine")  # those that are there at the start
    assert about["devices"] == "a pretend accelerator"
    for number in (1, 2):
        assert np.array_equal(spread.round(number).clients().parameters, one.round(number).clients().parameters)
    if engine == "device":
        points = ["plane", "spread@2/global", "spread@1/global", "spread@1/client-0", "--grid", "7", "--limit", "100"]
        ended(*points, "--device", pretend, "--engine", "ray@0.5", "--out", "workers")
        ended(*points, "--device", pretend, "--out", "here")
        with h5py.File(tmp_path / "workers.nc") as there, h5py.File(tmp_path / "here.nc") as here:
            assert there.attrs["device"] == pretend
            assert (there["loss"][()] == here["loss"][()]).all()


def test_a_device_of_this_machines_alone_is_refused(
    pretend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*OTHERS["train"].split(), "--engine", "ray", "--out", str(tmp_path / "r")]
    assert run([*words, "--device", f"{pretend}:1"]) == 2
    assert capsys.readouterr().err == (
        f"fedscope: --device {pretend}:1 is one of this machine's, and --engine ray gives each worker its own; give "
        f"--device {pretend}, and tell Ray which it may use (CUDA_VISIBLE_DEVICES)\n"
    )
    assert not (tmp_path / "r").exists()
