"""A recorder that nobody closed: a cell of a notebook that was interrupted, or has no ``with``, and runs again."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, Run
from fedscope.checkpoints.io.atomic import WriterLock
from fedscope.checkpoints.runs.writer import RunWriter

pytestmark = pytest.mark.same_elsewhere


def model(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full(3, value, np.float32)}


def record(recorder: Recorder, rounds: int = 1) -> None:
    for number in range(rounds):
        recorder.round(clients=[model(number), model(number + 1)])


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"force": True}, {"resume": True}])
def test_an_open_recorder_of_this_program_is_said_to_be_one(
    rounds: int, settings: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that a process was to be stopped: the user's own."""
    path = tmp_path / "run"
    recorder = Recorder(path)
    record(recorder, rounds)
    recorder.flush()
    monkeypatch.chdir(tmp_path)
    for way in (path, Path("run"), path / "." / ".." / "run"):
        with pytest.raises(FedscopeError) as refused:
            Recorder(way, **settings)
        if settings or not rounds:
            assert str(refused.value) == (
                f"{way.absolute()} is being written by this program itself: close the recorder that is still open "
                "there, as recorder.close(), or wait for the thread that writes it"
            )
        else:  # what lies there comes first
            assert "give force=True to replace it" in str(refused.value)
    recorder.close()
    with Recorder(path, **(settings or {"force": True})) as again:  # which the sentence says
        record(again)
    assert Run.open(path).rounds == ((1, 2, 3) if settings == {"resume": True} and rounds else (1,))


def given_back(path: Path) -> Recorder:
    """Go on once the thread that wrote the last round has given the folder back, which it does behind the round."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with suppress(FedscopeError):
            return Recorder(path, resume=True)
        time.sleep(0.01)
    return Recorder(path, resume=True)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_recorder_that_is_dropped_gives_the_folder_back(rounds: int, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    record(recorder, rounds)
    if rounds == 1:
        recorder.flush()
    own = [recorder]
    own.append(own)  # as of a class that holds its recorder, and itself
    del recorder, own
    again = Recorder(tmp_path / "run", resume=True)
    again.close()
    if rounds:
        assert Run.open(tmp_path / "run").rounds == tuple(range(1, rounds + 1))
    with Recorder(tmp_path / "run", resume=True) as again:
        record(again)
    assert Run.open(tmp_path / "run").rounds == tuple(range(1, rounds + 2))


def test_what_waits_to_be_written_is_whole_before_the_folder_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may, began, ended = threading.Event(), threading.Event(), threading.Event()
    write: Callable[..., None] = RunWriter.write_image

    def slow(self: RunWriter, number: int, *args: object) -> None:
        began.set()
        assert may.wait(30)
        write(self, number, *args)
        ended.set()

    monkeypatch.setattr(RunWriter, "write_image", slow)
    recorder = Recorder(tmp_path / "run")
    record(recorder)
    assert began.wait(30)
    del recorder
    gc.collect()
    with pytest.raises(FedscopeError, match="is being written by this program itself"):
        Recorder(tmp_path / "run", resume=True)
    may.set()
    assert ended.wait(30)
    again = given_back(tmp_path / "run")
    assert again.rounds == 1
    again.close()
    assert Run.open(tmp_path / "run").round(1).clients().parameters.shape == (2, 3)


def test_a_lock_that_is_dropped_closes_its_file_once(tmp_path: Path) -> None:
    """A number of a file that was closed twice may be another file's by then."""
    files = Path("/proc/self/fd")
    before = len([*files.iterdir()]) if files.is_dir() else None
    for _ in range(3):
        WriterLock(tmp_path)
        with WriterLock(tmp_path) as lock:
            lock.release()
    del lock
    gc.collect()
    if before is not None:
        assert len([*files.iterdir()]) == before


def test_a_cell_of_another_folder_is_not_refused(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one")
    with Recorder(tmp_path / "two") as two:
        record(two)
    one.close()
