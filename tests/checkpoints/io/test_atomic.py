"""Durability: what is visible is whole, one writer, full disks, kills."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import (
    FedscopeError,
    Layout,
    Partition,
    Run,
    RunWriter,
    TensorEntry,
    WriterLock,
    write_durably,
)
from fedscope.checkpoints.io import atomic
from fedscope.checkpoints.io import hdf5 as hdf5_files
from fedscope.checkpoints.io.atomic import shorten_name

WRITER = """
import sys, numpy as np
from fedscope.checkpoints import *

layout = Layout((TensorEntry("w", (100, 100), "float32", "parameter"), TensorEntry("n", (), "int64", "buffer")))

def rows(t, *lead):
    return Weights(layout, np.random.default_rng(t).random((*lead, layout.size), np.float32), {"n": np.full(lead, t)})

path, mode = sys.argv[1:3]
info = {"layout": layout.to_json()}
config = {"record": {"compression": mode}}
writer = RunWriter.open(path) if mode == "open" else RunWriter.create(path, info, config, None)
print("ready", flush=True)
ids = np.arange(8)
for t in range(writer.last + 1, int(sys.argv[3]) + 1):
    metrics = {"lr": 0.1, "train_loss": 1 / t}
    writer.keep(RoundRecord(t, None, None, rows(t), None, ids, ids, ids, ids / 1, ids / 28), "globals")
    writer.write(RoundRecord(t, rows(t), rows(t, 8), None, None, ids, ids, ids, ids / 1, ids / 28, metrics=metrics))
    writer.forget("globals", {t - 1, t})
"""
LAYOUT = Layout((TensorEntry("w", (100, 100), "float32", "parameter"), TensorEntry("n", (), "int64", "buffer")))


def run_writer(path, mode, rounds, **kwargs):
    command = [sys.executable, "-P", "-c", WRITER, str(path), mode, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def check_whole(path, after=0):
    """Every visible round (after one) is whole and what was written; returns how many there are."""
    run = Run.open(path)
    assert run.rounds == tuple(range(1, len(run.rounds) + 1))
    for t in run.rounds[after:]:
        expected = np.random.default_rng(t).random((8, LAYOUT.size), np.float32)
        assert run.round(t).clients().parameters.tobytes() == expected.tobytes()
    assert run.metrics()["train_loss"].tolist() == [1 / t for t in run.rounds]
    return len(run.rounds)


def test_write_durably_shows_nothing_before_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with write_durably(path) as temporary:
        temporary.write_text("new")
        assert re.fullmatch(r"\.a\.txt\.[0-9a-f]{8}\.tmp", temporary.name)
        assert temporary.parent == tmp_path
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]  # noqa: PTH208


def test_write_durably_leaves_the_old_file_on_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted():
        with write_durably(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_write_durably_syncs_the_file_then_renames_then_syncs_the_folder(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(str(Path(f"/proc/self/fd/{fd}").readlink())), sync(fd)))
    monkeypatch.setattr(type(tmp_path), "replace", lambda a, b: (done.append("rename"), replace(a, b))[1])
    with write_durably(tmp_path / "a") as temporary:
        temporary.write_text("x")
    assert re.fullmatch(r".*/\.a\.[0-9a-f]{8}\.tmp", done[0])
    assert done[1:] == ["rename", str(tmp_path)]


def test_folders_that_cannot_be_synced_are_done_without_and_files_are_not(tmp_path, monkeypatch):
    """As of some network file systems."""

    def refuse(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}") == folders:  # noqa: PTH112
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    folders = True
    with write_durably(tmp_path / "a") as temporary:
        temporary.write_text("whole")
    assert (tmp_path / "a").read_text() == "whole"
    folders = False
    with pytest.raises(OSError, match="Invalid argument"), write_durably(tmp_path / "b"):
        pass
    assert not (tmp_path / "b").exists()


def test_an_error_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    """And not the temporary one, which is gone by then."""

    def refuse(temporary, path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(temporary), None, str(path))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError) as refused, write_durably(tmp_path / "a"):
        pass
    assert (refused.value.filename, refused.value.filename2) == (str(tmp_path / "a"), None)


def test_a_second_writer_is_refused_by_name(tmp_path, monkeypatch):
    with WriterLock(tmp_path):
        with pytest.raises(FedscopeError, match="is being written by this program itself: close the recorder"):
            WriterLock(tmp_path)
        with monkeypatch.context() as other:
            other.setattr(atomic, "_HELD", frozenset())  # as of another process
            named = rf"is being written by process {os.getpid()}; wait until it ends or stop"
            with pytest.raises(FedscopeError, match=named):
                WriterLock(tmp_path)
    WriterLock(tmp_path).release()


def test_a_writer_of_a_run_refuses_a_second_and_a_replacement(tmp_path):
    info = {"layout": LAYOUT.to_json()}
    with RunWriter.create(tmp_path / "ima", info, {}, None):
        for second in (
            lambda: RunWriter.open(tmp_path / "ima"),
            lambda: RunWriter.create(tmp_path / "ima", info, {}, None, force=True),
        ):
            with pytest.raises(FedscopeError, match=r"ima is being written by this program itself"):
                second()
    RunWriter.open(tmp_path / "ima").close()


def test_a_lock_is_inherited_neither_by_forks_nor_by_programs(tmp_path):
    lock = WriterLock(tmp_path)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    program = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with pytest.raises(FedscopeError):
            WriterLock(tmp_path)
        lock.release()
        deadline = time.monotonic() + 10
        while True:  # the fork closes its copy as soon as it runs
            try:
                WriterLock(tmp_path).release()
                break
            except FedscopeError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        program.kill()
        program.wait()


def test_a_killed_writer_leaves_no_lock_and_whole_rounds(tmp_path):
    path = tmp_path / "ima"
    writer = run_writer(path, "none", 10_000)
    assert writer.stdout.readline() == "ready\n"
    while not (path / "rounds/00003.h5").exists():
        time.sleep(0.005)
    with pytest.raises(FedscopeError, match=f"is being written by process {writer.pid};"):
        RunWriter.open(path)
    check_whole(path)  # while it is being written
    writer.kill()
    writer.communicate()
    RunWriter.open(path).close()
    assert check_whole(path) >= 3
    assert not list(path.rglob(".*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "delta"])
def test_kills_at_random_moments_lose_no_visible_round(tmp_path, mode):
    path, dice = tmp_path / "ima", random.Random(0)
    before = 0
    for attempt in range(20):
        writer = run_writer(path, mode if attempt == 0 else "open", 100_000)
        assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        time.sleep(dice.uniform(0.01, 0.3))
        writer.kill()
        writer.communicate()
        rounds = check_whole(path, before)
        assert rounds >= before
        with RunWriter.open(path) as again:
            kept = {t: again.run.files_of(t)[1] for t in range(max(1, rounds - 1), rounds + 1) if rounds}
        if rounds:  # what a resume from here needs: the last two globals
            expected = np.random.default_rng(rounds).random(LAYOUT.size, np.float32)
            np.testing.assert_array_equal(kept[rounds].read("global").parameters, expected)
        before = rounds
    assert before > 20


@pytest.mark.parametrize("mode", ["none", "delta"])
def test_a_full_disk_leaves_the_run_readable(tmp_path, mode):
    # a limit on the size of files stands for the disk: writes fail inside HDF5, at a real descriptor
    source = WRITER.replace(
        "ids = np.arange(8)",
        "ids = np.arange(8)\nimport resource\n"
        "def tight(t):\n    if t == 3: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))",
    ).replace("    writer.keep", "    tight(t)\n    if t != 3: writer.keep")
    command = [sys.executable, "-P", "-c", source, str(tmp_path / "ima"), mode, "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    path = tmp_path / "ima"
    assert last.endswith(
        f"{path}: the disk is full; it is readable up to round 2; make room, then go on: fedscope train --resume {path}"
    )
    assert "Exception ignored" not in done.stderr
    assert check_whole(path) == 2
    assert not list(path.rglob(".*.tmp"))
    with run_writer(path, "open", 4) as writer:
        writer.communicate()
    assert check_whole(path) == 4


@pytest.mark.parametrize("letter", ["a", "ü", "€", "𝄞"])
def test_a_temporary_name_ends_at_a_letter(letter):
    for before in range(4):
        name = "a" * before + letter * 250
        short = shorten_name(name)
        assert name.startswith(short)
        assert 197 <= len(short.encode()) <= 200
    assert shorten_name(letter) == letter


def test_a_name_is_written_where_the_file_system_is_said_to_be_ascii(tmp_path):
    """A whole computation ended at it in a traceback."""
    code = """
        import pathlib, sys
        from fedscope.checkpoints.io.atomic import write_durably
        assert sys.getfilesystemencoding() == "ascii"
        with write_durably(pathlib.Path(sys.argv[1])) as temporary:
            temporary.write_text("whole")
    """
    locale = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    for name in ("ü5.nc", f"{'ü' * 110}.nc"):
        subprocess.run([*command, tmp_path / name], check=True, env={**os.environ, **locale})
        assert (tmp_path / name).read_text() == "whole"


def test_a_full_disk_at_fsync_is_said_too(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    partition = Partition((np.arange(3),), None, np.array([[3]]))
    with pytest.raises(FedscopeError, match=r"partition.h5 cannot be written: the disk is full; make room"):
        partition.save(tmp_path / "partition.h5")
    assert list(tmp_path.iterdir()) == []


class Interrupted:
    """A raw file whose second write is met by Ctrl-C."""

    def __init__(self, raw):
        self.raw, self.writes = raw, 0

    def write(self, data):
        self.writes += 1
        if self.writes == 2:
            raise KeyboardInterrupt
        return self.raw.write(data)

    def __getattr__(self, name):
        return getattr(self.raw, name)


def test_ctrl_c_while_hdf5_writes_comes_through(tmp_path, monkeypatch):
    opened = []

    def init(self, path, init=hdf5_files._Sink.__init__):
        init(self, path)
        self.raw = Interrupted(self.raw)
        opened.append(self)

    def write():
        with hdf5_files.write_hdf5(tmp_path / "a.h5") as file:
            for i in range(9):
                file[f"x{i}"] = np.zeros(100_000)

    monkeypatch.setattr(hdf5_files._Sink, "__init__", init)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert opened[0].closed
    assert list(tmp_path.iterdir()) == []
