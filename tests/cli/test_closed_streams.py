"""Commands whose standard streams are closed, as those of schedulers and of ``2>&-`` are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedscope

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.programs]

# what a command leaves at its standard descriptors, behind a command that shows progress
SCRIPT = """
import os, sys
from fedscope.cli.main import main
try:
    main()
finally:
    kinds = [os.path.realpath(f"/proc/self/fd/{i}") if os.path.exists("/proc/self/fd") else "" for i in range(3)]
    open("streams", "w").write("\\n".join(kinds))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed")
    with fedscope.Recorder(folder / "run", method="A", seed=0) as recorder:
        models = [{"w": np.full(3, k, np.float32)} for k in range(2)]
        recorder.round(clients=models, metrics={"test_error": 0.5})
    return folder


def status(folder: Path, words: str, closed: str) -> int:
    line = f'exec "$0" -P -c "$1" {words} {closed}'
    return subprocess.run(["sh", "-c", line, sys.executable, SCRIPT], cwd=folder, timeout=300, check=False).returncode


@pytest.mark.parametrize(("closed", "which"), [("2>&-", [2]), (">&-", [1]), ("<&-", [0]), ("<&- >&- 2>&-", [0, 1, 2])])
def test_a_command_does_its_work(recorded: Path, closed: str, which: list[int]) -> None:
    name = f"{'-'.join(map(str, which))}.csv"
    assert status(recorded, f"export run --to csv {name}", closed) == 0
    assert (recorded / name).read_text().splitlines()[1:] == ["1,0.5,0.5,2.0"]
    streams = (recorded / "streams").read_text().split("\n")
    assert [streams[i] for i in which] in ([""] * len(which), ["/dev/null"] * len(which)), "and no file of a run's"


# what a program without standard streams does, whose sweep sends jobs as processes
SENDING = """
import os, sys
from fedscope.training.jobs.launchers import _left_alone
def kinds():
    return [os.path.exists(f"/dev/fd/{i}") and os.fstat(i).st_rdev == os.stat(os.devnull).st_rdev for i in range(3)]
sys.stdin = sys.stdout = sys.stderr = None
with _left_alone():
    within = kinds()
open("sent", "w").write(f"{within} {kinds()}")
"""


def test_jobs_are_sent_from_a_program_without_streams(tmp_path: Path) -> None:
    line = 'exec "$0" -P -c "$1" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", line, sys.executable, SENDING], cwd=tmp_path, timeout=300).returncode == 0
    assert (tmp_path / "sent").read_text() == "[True, True, True] [False, False, False]"


def test_a_mistake_has_its_status(recorded: Path) -> None:
    assert status(recorded, "export run@9 x.pt", "2>&-") == 2
