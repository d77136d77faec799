"""The ordinary tests on a machine with a device: ``auto`` is the processor there, in programs that they start, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.evaluation.device import Compute

pytestmark = pytest.mark.device

TESTS = Path(__file__).resolve().parents[1]
#: tests that a device beside the processor has made fail
ORDINARY = (
    "training/local/test_vectorized_training.py::test_auto_is_a_fixed_rule",
    "training/local/test_vectorized_training.py::test_engines_agree[moon]",
    "cli/test_planes.py::test_a_result_of_before_there_were_budgets_is_taken_as_one_of_15_percent",
    "training/sweeps/test_sweeps.py",
)


def ended(*words: str, **said: str) -> str:
    """What pytest prints where the device is visible."""
    known = {
        name: value for name, value in os.environ.items() if name not in ("FEDSCOPE_DEVICE", "PYTEST_XDIST_WORKER")
    }
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "device.visible", *words]
    environment = {**known, "PYTHONPATH": str(TESTS), **said}
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=170)
    return done.stdout + done.stderr


def test_they_compute_on_the_processor() -> None:
    said = ended(*(f"tests/{name}" for name in ORDINARY))
    assert " passed" in said.splitlines()[-1], said
    assert "failed" not in said.splitlines()[-1], said


def test_the_device_is_visible_to_them(tmp_path: Path) -> None:
    """Or the test above would say nothing."""
    program = (
        "import torch; from fedscope.evaluation.device import Compute; "
        "print(torch.accelerator.is_available(), Compute('auto').device)"
    )
    own = tmp_path / "test_seen.py"
    own.write_text(
        "import subprocess, sys\n"
        f"PROGRAM = {program!r}\n"
        "def test_seen():\n"
        "    exec(PROGRAM)\n"
        "    print(subprocess.run([sys.executable, '-P', '-c', PROGRAM], capture_output=True, text=True).stdout)\n",
        encoding="utf-8",
    )
    assert ended("-s", str(own)).count("True pretend") == 2
    assert ended("-s", str(own), FEDSCOPE_DEVICE="cpu").count("True cpu") == 2


def test_whoever_asks_for_a_device_has_it(pretend: str) -> None:
    assert Compute("auto").device == os.environ["FEDSCOPE_DEVICE"]
