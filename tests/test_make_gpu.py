"""`make gpu` before anything runs: what a Python lacks, and sentences where it cannot go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.programs, pytest.mark.same_elsewhere]

ROOT = Path(__file__).parents[1]
MAKE = ROOT / "tests" / "gpu" / "make.py"


def test_its_examples_hold() -> None:
    done = subprocess.run([sys.executable, "-m", "doctest", str(MAKE)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that has the module as ``make``, with another place for what it writes."""
    load = (
        "import importlib.util, sys; from pathlib import Path\n"
        f"spec = importlib.util.spec_from_file_location('make', {str(MAKE)!r})\n"
        "make = importlib.util.module_from_spec(spec); spec.loader.exec_module(make)\n"
        f"make.PLACE, make.WHEELS = Path({str(folder)!r}, '.gpu'), Path({str(folder)!r}, 'wheels')\n"
    )
    return subprocess.run([sys.executable, "-c", load + code], check=False, capture_output=True, text=True)


def test_the_package_is_laid_out_as_it_is_installed(tmp_path: Path) -> None:
    code = (
        "make.lay_out(); make.lay_out()\n"
        "sys.path.insert(0, str(make.PLACE)); import fedscope.landscape.planes, fedscope.cli.main\n"
        "print(fedscope.__file__); print(fedscope.landscape.planes.__file__)\n"
    )
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    package = tmp_path / ".gpu" / "fedscope"
    assert done.stdout.split() == [str(package / "__init__.py"), str(package / "landscape" / "planes" / "__init__.py")]


def test_a_wheel_that_is_nowhere_is_named(tmp_path: Path) -> None:
    assert python("make.provide(['pytest>=1'])", tmp_path).returncode == 0, "nothing is lacking"
    done = python("make.provide(['pytest>=1', 'no_such-package>=1'])", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"make gpu: {sys.executable} lacks no_such-package, and wheels/ has none of it; run "
        "`make gpu-wheels NAMES='no_such-package'` where there is a network, and bring that folder\n"
    )


def test_data_that_cannot_be_used_are_refused_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", **dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.zeros(4)))
    np.savez(tmp_path / "other.npz", x_train=np.zeros(4))
    for name, said in (
        ("none.npz", r"cannot be read \(.*\); give an \.npz, or leave it out"),
        ("other.npz", "lacks y_train, x_test, y_test; give CIFAR-10's arrays, or leave it out"),
        ("small.npz", "has fewer than 5,000 training samples; give CIFAR-10's arrays, or leave it out"),
    ):
        done = python(f"make.refuse_data(Path({str(tmp_path / name)!r}))", tmp_path)
        assert done.returncode == 1
        assert re.fullmatch(f"make gpu: DATA={re.escape(str(tmp_path / name))} {said}\n", done.stderr), done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_how_to_try_it() -> None:
    done = subprocess.run([sys.executable, str(MAKE)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("make gpu: torch ")
    assert done.stderr.endswith(" sees no CUDA device; `make gpu DEVICE=cpu` tries it without one\n")


def test_the_environment_alone_is_laid_out(tmp_path: Path) -> None:
    path = python("print(make.environment(()))", tmp_path).stdout.strip().splitlines()[-1]
    code = "import fedscope; print(fedscope.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(tmp_path / ".gpu" / "fedscope" / "__init__.py")
