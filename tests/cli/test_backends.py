"""A backend of matplotlib that a notebook names, and that is not in fedscope's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.cli.main import run


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_of_a_cell", "nonsense"])
def test_figures_are_drawn_whatever_backend_the_environment_names(backend: str, tmp_path: Path) -> None:
    small = ["--rounds", "1", "--clients", "3", "--participation", "1", "--set", "model.hidden=[4]"]
    assert run(["train", *small, "--out", str(tmp_path / "run")]) == 0
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fedscope.cli", "curves", str(tmp_path / "run"), "--out", str(tmp_path / "c")],
        env={**os.environ, "MPLBACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c.pdf").exists()
