"""One writer at a time, also where the file system has no locks: by a file that names the machine and the process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Run, RunWriter, TensorEntry, WriterLock
from fedscope.checkpoints.io import atomic, locks
from fedscope.checkpoints.io.locks import NO_LOCKS
from fedscope.checkpoints.io.processes import Process, start_ticks
from fedscope.results.resume import lock_result

LOCK = ".writer.lock"
HOST = socket.gethostname()


def refusing(number: int) -> Callable[..., None]:
    """A ``flock`` of a file system that answers with this."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))


def left_by(process: Process, folder: Path, name: str = LOCK) -> str:
    """A lock's file of another process."""
    text = json.dumps({**asdict(process), "token": "0"}) + "\n"
    (folder / name).write_text(text)
    return text


def ended() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


@pytest.mark.parametrize("number", sorted(NO_LOCKS), ids=errno.errorcode.get)
def test_without_locks_a_file_keeps_others_away_and_is_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(number))
    said = (
        f"{tmp_path} lies on a file system without locks ({os.strerror(number)}); while this process writes, the file "
        ".writer.lock there keeps others away"
    )
    with pytest.warns(FedscopeWarning, match=f"^{re.escape(said)}$"):
        lock = WriterLock(tmp_path)
    held = json.loads((tmp_path / LOCK).read_text())
    assert (held["host"], held["pid"]) == (HOST, os.getpid())
    by = (
        f"{tmp_path} is being written by process {os.getpid()} of {HOST} (the file system has no locks, and "
        f"{tmp_path / LOCK} says so); wait until it ends or stop it, or, if it does not run any more, remove "
        f"{tmp_path / LOCK}"
    )
    with monkeypatch.context() as other:
        other.setattr(atomic, "_HELD", frozenset())  # as of another process
        with pytest.raises(FedscopeError, match=f"^{re.escape(by)}$"):
            WriterLock(tmp_path)
    with pytest.raises(FedscopeError, match="is being written by this program itself"):
        WriterLock(tmp_path)
    lock.release()
    lock.release()
    assert [path.name for path in tmp_path.iterdir()] == [".writer"]
    with warnings.catch_warnings():  # it is said once
        warnings.simplefilter("error")
        WriterLock(tmp_path).release()


def test_a_lock_names_its_process_and_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of earlier versions have the number alone, which these read up to the 32nd byte."""
    lock = WriterLock(tmp_path)
    file = tmp_path / ".writer"
    assert file.read_bytes()[:32].decode().strip() == str(os.getpid())
    mine = file.read_bytes()
    others = {mine: "", b"4711\n": "", mine.replace(HOST.encode(), b"node-7"): " of node-7"}
    with monkeypatch.context() as other:
        other.setattr(atomic, "_HELD", frozenset())  # as of another process
        for content, host in others.items():
            file.write_bytes(content)
            by = f"process {content[:32].decode().strip()}{host}"
            said = f"{tmp_path} is being written by {by}; wait until it ends or stop it, or give another --out"
            with pytest.raises(FedscopeError, match=f"^{re.escape(said)}$"):
                WriterLock(tmp_path)
        file.write_bytes(b"")
        said = f"{tmp_path} is being written by another process; wait until it ends, or stop it"
        with pytest.raises(FedscopeError, match=f"^{re.escape(said)}$"):
            WriterLock(tmp_path, atomic.NO_OTHER_OUT)
    lock.release()


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM, errno.ESTALE])
def test_another_answer_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(number))
    said = f"{tmp_path}/.writer cannot be locked for writing ({os.strerror(number)}); ask who runs the file system"
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}"):
        WriterLock(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".writer"]


@pytest.mark.parametrize("has_locks", [False, True])
def test_what_a_dead_process_left_is_taken_over_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool
) -> None:
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    dead = ended()
    again = replace(Process.here(), began=Process.here().began - 1)  # this number, of a process before
    for process in (replace(Process.here(), pid=dead), again):
        left_by(process, tmp_path)
        said = f"{tmp_path / LOCK} was left by process {process.pid}, which has ended; it is taken over"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with WriterLock(tmp_path):
                assert (tmp_path / LOCK).exists() == (not has_locks)
        assert said in [str(warning.message) for warning in told]
        assert [path.name for path in tmp_path.iterdir()] == [".writer"]


@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
@pytest.mark.parametrize("has_locks", [False, True])
@pytest.mark.parametrize("other", [{"host": "node-7"}, {"system": "an earlier start of this machine"}])
def test_of_a_process_elsewhere_the_user_has_the_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str], has_locks: bool
) -> None:
    """Whether it runs is not known here, even where a process of its number has ended."""
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOTSUP))
    process = replace(Process.here(), pid=ended(), **other)
    text = left_by(process, tmp_path)
    said = (
        f"{tmp_path} is being written by process {process.pid} of {process.host} (the file system has no locks, and "
        f"{tmp_path / LOCK} says so); wait until it ends or stop it, or, if it does not run any more, remove "
    )
    with pytest.raises(FedscopeError, match=f"^{re.escape(said)}{re.escape(str(tmp_path / LOCK))}$"):
        WriterLock(tmp_path)
    assert (tmp_path / LOCK).read_text() == text
    (tmp_path / LOCK).unlink()  # which is what the sentence says
    WriterLock(tmp_path).release()


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "x", "pid": 0, "began": 1, "system": ""}', "\0" * 9000])
def test_a_file_that_names_nobody_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("fedscope.checkpoints.io.locks._FILLED", 0.05)
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(
        FedscopeError, match=rf"by a process that {tmp_path / LOCK} does not name .*remove {tmp_path / LOCK}$"
    ):
        WriterLock(tmp_path)
    assert (tmp_path / LOCK).read_text() == text


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_a_takeover_that_was_killed_says_which_file_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscope.checkpoints.io.locks._FILLED", 0.05)
    left_by(replace(Process.here(), pid=ended()), tmp_path)
    (tmp_path / f"{LOCK}.taking").touch()
    with pytest.raises(FedscopeError, match=rf"if none runs any more, remove {tmp_path / LOCK}\.taking$"):
        WriterLock(tmp_path)
    (tmp_path / f"{LOCK}.taking").unlink()
    WriterLock(tmp_path).release()


def test_of_two_that_find_a_dead_process_the_second_does_not_remove_the_firsts_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has taken over between the second's look and its removing."""
    stale = left_by(replace(Process.here(), pid=ended()), tmp_path).encode()
    real, taken = locks._take_over, []

    def late(path: Path, content: bytes) -> bool:
        if not taken:
            taken.append(left_by(replace(Process.here(), pid=os.getppid(), began=0), tmp_path))
        return real(path, content)

    monkeypatch.setattr(locks, "_take_over", late)
    with pytest.raises(FedscopeError, match=f"is being written by process {os.getppid()} of {HOST}"):
        WriterLock(tmp_path)
    assert (tmp_path / LOCK).read_text() == taken[0] != stale.decode()
    assert not (tmp_path / f"{LOCK}.taking").exists()


def contender(folder: Path, times: int, dies: bool) -> int:
    """A process that adds 1 to a number in a file so many times, with the lock; one that dies does so with the lock."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        done = 0
        while done < times:
            try:
                lock = WriterLock(folder)
            except FedscopeError:
                time.sleep(0.001)
                continue
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            (folder / "number").write_text(str(number + 1))
            done += 1
            if dies and done == times:
                os.kill(os.getpid(), signal.SIGKILL)
            lock.release()
        status = 0
    finally:
        os._exit(status)


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_two_never_write_at_once_even_where_some_are_killed(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    children = [contender(tmp_path, 20, dies=i % 2 == 0) for i in range(6)]
    for child in children:
        os.waitpid(child, 0)
    assert (tmp_path / "number").read_text() == str(6 * 20)
    WriterLock(tmp_path).release()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writer", "number"]


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_a_fork_gives_nothing_back(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / LOCK).exists()
    lock.release()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_what_another_holds_by_now_stays(tmp_path: Path) -> None:
    """As where a user has removed the file of a process that still ran, and another one has begun."""
    lock = WriterLock(tmp_path)
    (tmp_path / LOCK).unlink()
    text = left_by(replace(Process.here(), host="node-7"), tmp_path)
    lock.release()
    assert (tmp_path / LOCK).read_text() == text


PROGRAM = """
import errno, fcntl, os, sys, time, warnings
warnings.simplefilter("ignore")
def flock(*_): raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
from fedscope.checkpoints import WriterLock
lock = WriterLock(sys.argv[1])
print("held", flush=True)
if len(sys.argv) > 2: time.sleep(60)
"""


def test_a_program_that_ends_leaves_nothing_and_one_that_is_killed_what_is_taken_over(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "held\n"
    assert [path.name for path in tmp_path.iterdir()] == [".writer"]
    with subprocess.Popen([*words, "wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        # this process has locks where that one had none, as two mounts of one disk may
        with pytest.raises(FedscopeError, match=f"is being written by process {process.pid} of {HOST}"):
            WriterLock(tmp_path)
        process.kill()
        time.sleep(0.1)  # nobody has waited for it: its number is still taken
        with pytest.warns(FedscopeWarning, match=f"left by process {process.pid}, which has ended"):
            WriterLock(tmp_path).release()


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_a_result_is_claimed_by_one_command(tmp_path: Path) -> None:
    partial = tmp_path / "figures" / "a.nc.partial"
    with lock_result(partial, []):
        said = rf"^another command \(process {os.getpid()} of {HOST} .*\) is writing a\.nc in .*figures; wait until"
        with pytest.raises(FedscopeError, match=said), lock_result(partial, []):
            pass
    assert list(partial.parent.iterdir()) == []
    shutil.rmtree(partial.parent)
    with pytest.raises(KeyboardInterrupt), lock_result(partial, []):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == [], "nothing was begun, so its folder goes too"
    with suppress(KeyboardInterrupt), lock_result(partial, []) as claim:
        claim.saving = True
        raise KeyboardInterrupt
    assert [path.name for path in partial.parent.iterdir()] == ["a.nc.partial"]


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_tensorboard_does_not_see_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscope.training.curves import tensorboard as curve_events

    monkeypatch.setattr(curve_events, "PATIENCE", 0.1)
    with curve_events._open_events(tmp_path / "ima"):
        assert [path.name for path in (tmp_path / "ima").iterdir() if "tfevents" in path.name] == [curve_events.FILE]
        with pytest.raises(FedscopeError, match=f"is being written by process {os.getpid()} of {HOST}"):
            curve_events._open_events(tmp_path / "ima").__enter__()
    assert [path.name for path in (tmp_path / "ima").iterdir()] == [curve_events.FILE]


@pytest.mark.usefixtures("no_locks")
@pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning")
def test_a_new_run_takes_a_folder_in_which_a_beginning_was_killed(tmp_path: Path) -> None:
    info = {"layout": Layout((TensorEntry("w", (2,), "float32", "parameter"),)).to_json()}
    for name in (".writer", f"{LOCK}.taking"):
        (tmp_path / name).touch()
    (tmp_path / f"{LOCK}.taking").unlink()
    left_by(replace(Process.here(), pid=ended()), tmp_path)
    RunWriter.create(tmp_path, info, {}, None).close()
    assert Run.open(tmp_path).rounds == ()


def test_a_process_is_known_by_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Process.here()
    assert not here.has_ended()
    assert replace(here, began=here.began + 1).has_ended()
    assert not replace(here, began=0).has_ended(), "of a system that does not say when it began"
    assert replace(here, pid=2**40).has_ended()
    assert start_ticks(os.getppid())
    real = Path.read_text

    def hidden(path: Path, *words: str, **named: str) -> str:
        if str(path).endswith("/stat"):
            raise FileNotFoundError
        return real(path, *words, **named)

    monkeypatch.setattr(Path, "read_text", hidden)  # /proc may hide the processes of others
    assert start_ticks(os.getpid()) == 0
    assert not here.has_ended()
    monkeypatch.setattr(os, "kill", refusing(errno.EPERM))
    assert not here.has_ended()
    monkeypatch.setattr(os, "kill", refusing(errno.ESRCH))
    assert here.has_ended()


# --- the real thing: the answer of such a mount comes from a library that is loaded before the C library ---

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
int flock(int file, int how) { errno = ENOLCK; return -1; }
static int other(const char *name, int file, int what, void *more) {
    if (what == F_SETLK || what == F_SETLKW || what == F_OFD_SETLK) { errno = ENOLCK; return -1; }
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, name))(file, what, more);
}
#define TAKE(name) int name(int file, int what, ...) { \\
    va_list all; va_start(all, what); void *more = va_arg(all, void *); va_end(all); \\
    return other(#name, file, what, more); }
TAKE(fcntl)
TAKE(fcntl64)
"""


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose files lie on a file system without locks; HDF5 asks for its own, too."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("there is no C compiler, so no file system without locks can be played")
    folder = tmp_path_factory.mktemp("library")
    (folder / "nolock.c").write_text(SOURCE)
    made = subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "nolock.so", folder / "nolock.c", "-ldl"])
    if made.returncode:
        pytest.skip("the C compiler makes no library, so no file system without locks can be played")
    return {**os.environ, "LD_PRELOAD": str(folder / "nolock.so"), "HDF5_USE_FILE_LOCKING": "TRUE"}


READ = """
import sys, warnings
warnings.simplefilter("error")
import fedscope
round_ = fedscope.Run.open(sys.argv[1]).round("last")
print(round_.clients().parameters.tobytes().hex())
print(round_.read("global").parameters.tobytes().hex())
"""


def test_reading_goes_on_without_a_word(mount: dict[str, str], two_rounds: Path) -> None:
    """Bit for bit, also where HDF5 is told to lock what it reads, which counts more than what a program asks for."""
    words = [sys.executable, "-P", "-c", READ, str(two_rounds / "runs/fma")]
    found = subprocess.run(words, env=mount, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    round_ = Run.open(two_rounds / "runs/fma").round("last")
    clients, after = (bytes.fromhex(line) for line in found.stdout.split())
    assert clients == round_.clients().parameters.tobytes()
    assert np.frombuffer(after, np.float32).tolist() == round_.read("global").parameters.tolist()


SMALL = ["--clients", "4", "--participation", "0.5", "--epochs", "1", "--rounds", "2", "--set", "model.hidden=[6]"]
#: commands, one after the other; of those that write, where the lock is
COMMANDS = (
    (("train", "--method", "fma", *SMALL, "--until", "1", "--out", "runs/fma"), "runs/fma"),
    (("train", "--resume", "runs/fma"), "runs/fma"),
    (("ls", "--check", "runs/fma"), ""),
    (("curves", "runs/fma"), "runs/fma/figures"),
    (("updates", "runs/fma", "--out", "u"), "."),
    (("line", "runs/fma@1", "runs/fma@2", "--points", "3", "--limit", "50", "--out", "l"), "."),
    (("plane", "runs/fma@2", "--random", "--grid", "3", "--limit", "50", "--out", "p"), "."),
    (("export", "runs/fma@2", "out.pt"), ""),
    (("import", "out.pt", "--out", "runs/imported"), "runs/imported"),
    (("sweep", "method=fma,fedavgm", "--set", "run.rounds=1", "--set", "data.clients=4", "--out", "s"), "s"),
    (("report", "runs/fma"), ""),
)


@pytest.mark.slow
def test_every_command_works_and_says_so(mount: dict[str, str], tmp_path: Path) -> None:
    for words, locked in COMMANDS:
        command = [sys.executable, "-P", "-m", "fedscope.cli", *words]
        found = subprocess.run(command, env=mount, cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == 0, (words, found.stderr)
        assert "Errno" not in found.stderr + found.stdout
        told = f"{locked} lies on a file system without locks (No locks available); "
        assert (told in found.stderr) == bool(locked), (words, found.stderr)
        assert not list(tmp_path.rglob("*.lock")), words
