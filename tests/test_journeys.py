"""What a new user does in the first hour, as scripts: nothing fails at the first attempt, and each ends with a picture.

Journey 4, a Flower server, is played where Flower is installed: ``tests/checkpoints/recorder/test_flower_long.py``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.same_elsewhere

FOLDER = Path(__file__).with_name("journeys")
SCRIPTS = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".sh", ".py"))
#: what each leaves to look at
PICTURES = {
    "1-reviewer.sh": ["demo/planes.png"],
    "2-own-loop.py": ["mine.png"],
    "3-checkpoints.sh": ["three.png", "three.pdf", "three.html"],
    "6-sweep.sh": ["curves.png", "curves.pdf"],
}
NETWORK = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def commands(name: str) -> list[list[str]]:
    """What is typed: a Python file as a whole, or command by command."""
    if name.endswith(".py"):
        return [[sys.executable, "-P", str(FOLDER / name)]]
    fedscope = str(Path(sys.executable).with_name("fedscope"))
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [[fedscope, *shlex.split(line)[1:]] for line in lines]


def test_each_is_short() -> None:
    assert set(SCRIPTS) == set(PICTURES)
    for name in SCRIPTS:
        text = (FOLDER / name).read_text(encoding="utf-8")
        own = [line for line in text.splitlines() if "fedscope" in line or "recorder." in line or "plane." in line]
        assert len(commands(name)) <= 4
        assert len(own) <= 10, name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_journey_ends_with_its_picture(name: str, tmp_path: Path) -> None:
    import torch

    if name == "3-checkpoints.sh":
        (tmp_path / "arch.py").write_text(NETWORK, encoding="utf-8")
        for seed, file in enumerate("abc"):
            torch.manual_seed(seed)
            net = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
            )
            torch.save(net.state_dict(), tmp_path / f"{file}.pt")
        draw = np.random.default_rng(0)
        images = draw.random((200, 1, 8, 8), dtype=np.float32)
        np.savez(tmp_path / "test.npz", x_test=images, y_test=draw.integers(0, 10, 200))
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    for words in commands(name):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    assert [picture for picture in PICTURES[name] if not (tmp_path / picture).is_file()] == []
