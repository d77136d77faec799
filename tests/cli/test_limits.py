"""What this user may not do on this machine: start threads, or write into a folder. One sentence, before any work."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from fedscope.cli.main import error_line, run

pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("here")]

NO_THREADS = (
    "fedscope: no more threads or processes can be started here; end some of your programs, or raise their limit "
    "(ulimit -u, or that of the container or the job)"
)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--rounds", "1", "--clients", "3", "--participation", "1", "--set", "model.hidden=[4]"),
        ("decompose", "runs/fma", "--draws", "none"),
        ("cka", "runs/fma", "--rounds", "last"),
        ("plane", "runs/fma@last", "--clients", "--grid", "3"),
    ],
)
def test_a_limit_on_threads_is_one_sentence(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert run([*words, "--out", "out"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == NO_THREADS


def test_a_limit_on_processes_is_the_same_sentence() -> None:
    assert f"fedscope: {error_line(BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable'))}" == NO_THREADS


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["curves", "x"], "check the path, or give another --out"),
        (["train"], "check the path, or give another --out"),
        (["train", "--resume=x"], "check the path and who may use it"),
        (["sweep", "--resume", "x"], "check the path and who may use it"),
        (["bench"], "check the path, or give another --folder"),
        (["watch", "x"], "check the path and who may use it"),
        (["ls"], "check the path and who may use it"),
        (["measure", "x"], "check the path and who may use it"),
        (["layers", "x"], "check the path and who may use it"),
    ],
)
def test_another_out_is_offered_where_there_is_one(words: list[str], remedy: str) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "x")
    assert error_line(error, words) == f"x cannot be read or written: Permission denied; {remedy}"


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of one round of two that somebody else may write to, and we not."""
    words = ("--method", "fma", "--clients", "3", "--participation", "1", "--set", "model.hidden=[4]")
    assert run(["train", *words, "--rounds", "2", "--until", "1", "--out", "theirs/fma"]) == 0
    may = os.access

    def ours(path: Path, mode: int) -> bool:
        return may(path, mode) and not (mode & os.W_OK and "theirs" in f"{path}")

    monkeypatch.setattr(os, "access", ours)
    return Path("theirs/fma")


def test_a_run_that_cannot_be_written_to_goes_on_elsewhere(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["train", "--resume", f"{foreign}"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "fedscope: theirs/fma cannot be written to; to go on in a folder of your own, branch: fedscope train --from "
        "theirs/fma@1 --out fma-longer\n"
    )
    assert run(said.rpartition("fedscope ")[2].split()) == 0
    assert Path("fma-longer/rounds/00002.h5").exists()
    shutil.rmtree(foreign / "rounds")
    (foreign / "metrics.csv").unlink()
    assert run(["train", "--resume", f"{foreign}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fedscope: theirs/fma cannot be written to; copy the run to a folder of your own, and resume the copy"
    )


def test_what_was_typed_of_a_run_that_goes_on_stays_where_it_goes_on_elsewhere(
    foreign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ("--data", "digits", "--until", "2", "--keep-going", "--device", "cpu")
    capsys.readouterr()
    assert run(["train", "--resume", f"{foreign}", *typed]) == 2
    said = capsys.readouterr().err
    assert said == (
        "fedscope: theirs/fma cannot be written to; to go on in a folder of your own, branch: fedscope train --from "
        "theirs/fma@1 --data digits --device cpu --until 2 --keep-going --out fma-longer\n"
    )
    assert run(said.rpartition("fedscope ")[2].split()) == 0, capsys.readouterr().err
    assert Path("fma-longer/rounds/00002.h5").exists()


def test_a_report_on_what_is_no_run_says_that_and_not_where_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "runs/fma/run.json"]) == 2
    assert capsys.readouterr().err == (
        "fedscope: runs/fma/run.json is a file, not a run; a run is a folder with a run.json\n"
    )


def test_a_report_says_at_once_that_it_cannot_be_written(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("fedscope.reporting.report.report", lambda *_, **__: pytest.fail("it was made"))
        assert run(["report", f"{foreign}"]) == 2
    assert capsys.readouterr().err == (
        f"fedscope: theirs/fma/figures/report.html cannot be written, because {foreign.absolute()} cannot be written "
        "to; give another --out\n"
    )
    assert run(["report", f"{foreign}", "--compute", "--limit", "20", "--out", "mine"]) == 0
    lost = [line for line in capsys.readouterr().err.splitlines() if "not answered" in line]
    assert lost
    for line in lost:
        assert line.endswith("/theirs/fma cannot be written to; copy the run to a folder of your own")
