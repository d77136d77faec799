"""Sweeps that are killed at any moment: no child survives, what is visible is whole, and going on gives the same table.

Kills are of real `fedscope` processes, at seeded random moments, by every signal that ends one.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import contents

from fedscope.checkpoints import Run, WriterLock
from fedscope.training import Sweep

pytestmark = pytest.mark.slow

ROUNDS = 40
#: small, but with all that a resume has to find: what is recorded is little, the rest is kept beside it
AXES = ("client.method=sgd,scaffold", "average.method=none,ima,swa")
SETTINGS = {
    "data.clients": 8,
    "run.participation": 0.5,
    "run.rounds": ROUNDS,
    "client.epochs": 2,
    "model.hidden": "[16]",
    "run.evaluate_clients": 100,
    "record.clients": "none",
    "record.globals": "last:3",
}
WORDS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS = 10


def start(*words: str | Path) -> subprocess.Popen[str]:
    """A `fedscope` command in a process of its own, which Ctrl-C reaches even where the tests run in the background."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from fedscope.cli.main import main; main()", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def do(*words: str | Path, status: int = 0) -> str:
    process = start(*words)
    out, err = process.communicate(timeout=600)
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    return out


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rounds(folder: Path) -> int:
    return len(list(folder.glob("runs/*/rounds/[0-9]*.h5")))


def until(what: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if process.poll() is not None or time.monotonic() > end:
            return bool(what())
        time.sleep(0.002)
    return True


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "sweep"
    do("sweep", *AXES, *WORDS, "--out", folder)
    return folder


def whole(folder: Path, reference: Path, *, complete: bool = False) -> None:
    """Every visible round is what an uninterrupted sweep has there."""
    for there in Sweep.open(folder).plan.runs:
        path, other = (at / "runs" / there.name for at in (folder, reference))
        if not complete and not (path / "run.json").exists():
            continue
        run, expected = Run.open(path), Run.open(other)
        assert run.rounds == tuple(range(1, len(run.rounds) + 1))
        assert not complete or run.rounds == expected.rounds
        for t in run.rounds:
            name = f"rounds/{t:05d}.h5"
            assert contents(path / name) == contents(other / name), f"{there.name} {t}"
        ours, theirs = run.metrics(), expected.metrics()
        for column in theirs.keys() - {"seconds"}:
            np.testing.assert_array_equal(ours[column], theirs[column][: len(run.rounds)], err_msg=column)


def test_a_sweep_killed_ten_times_gives_the_same_table(reference: Path, tmp_path: Path) -> None:
    folder, draw = tmp_path / "sweep", np.random.default_rng(17)
    asked: tuple[str | Path, ...] = (*AXES, *WORDS, "--out", folder)
    amid = 0
    for kill in range(KILLS):
        how = SIGNALS[kill % len(SIGNALS)]
        known = (folder / "sweep.json").exists()
        process = start("sweep", *(("--resume", folder) if known and kill % 2 else asked))
        before = rounds(folder)
        if kill % 4 == 0:  # at any moment from its start on, which is amid the imports, the plan, the first rounds
            time.sleep(draw.uniform(0, 4))
        else:  # amid training
            assert until(lambda before=before: rounds(folder) > before, process)
            time.sleep(draw.uniform(0, 0.6))
        own = children(process.pid)
        process.send_signal(how)
        out, err = process.communicate(timeout=120)
        ended = {-signal.SIGKILL} if how == signal.SIGKILL else {128 + how}
        if how == signal.SIGTERM and kill % 4 == 0:  # before the command has begun to listen
            ended.add(-how)
        assert process.returncode in ended, f"kill {kill} came too late\n{out}\n{err}"
        assert "Traceback" not in err
        if process.returncode > 0 and own:
            assert f"go on with: fedscope sweep --resume {folder}" in err
            assert not any(lives(pid) for pid in own), "Ctrl-C and SIGTERM wait for the child"
        end = time.monotonic() + 20
        while any(lives(pid) for pid in own) and time.monotonic() < end:
            time.sleep(0.02)
        assert not [pid for pid in own if lives(pid)], "a child has survived its sweep"
        amid += bool(own)
        if (folder / "sweep.json").exists():
            whole(folder, reference)
    assert amid >= KILLS - 3
    assert 0 < rounds(folder) < rounds(reference), "the kills came too early or too late; the timing needs a look"
    do("sweep", "--resume", folder)
    whole(folder, reference, complete=True)
    tables = [json.loads(do("table", at, "--json")) for at in (folder, reference)]
    assert tables[0] == tables[1]
    assert len(tables[0]["cells"]) == 6
    for run in Sweep.open(folder).runs:
        with WriterLock(run.path):
            pass
    assert not [path for path in folder.rglob("*.tmp") if "rounds" not in str(path)]


def test_a_child_that_is_killed_is_named_and_the_others_complete(reference: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    process = start("sweep", *AXES, *WORDS, "--out", folder)
    assert until(lambda: rounds(folder) > 5, process)
    (child,) = children(process.pid)
    (first,) = [path.parent.parent.name for path in folder.glob("runs/*/rounds/00001.h5")]
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2, err
    assert f"{first}: failed: killed by signal 9" in err
    assert f"fedscope: 1 of 6 runs failed: {first}; see {folder / 'logs'}" in err
    assert list(Sweep.open(folder).failures) == [first]
    do("sweep", "--resume", folder)
    whole(folder, reference, complete=True)
    assert dict(Sweep.open(folder).failures) == {}


@pytest.mark.parametrize("file", [False, True], ids=["keys", "configuration"])
def test_the_commands_of_a_dry_run_give_the_same_runs(file: bool, reference: Path, tmp_path: Path) -> None:
    """Executed one by one, in their order, without a sweep."""
    given, words = (), WORDS
    if file:
        import tomli_w

        tables: dict[str, dict[str, Any]] = {}
        for text in WORDS[1::2]:
            key, _, value = text.partition("=")
            section, _, last = key.partition(".")
            tables.setdefault(section, {})[last] = json.loads(value) if value[0] in "[0123456789" else value
        (tmp_path / "own.toml").write_text(tomli_w.dumps(tables))
        given, words = (tmp_path / "own.toml",), []
    out = tmp_path / "sweep"
    said = json.loads(do("sweep", *given, *AXES, *words, "--out", out, "--dry-run", "--json"))
    assert not out.exists(), "a dry run makes nothing"
    assert (said["runs"], said["rounds"]) == (6, 2 * (40 + 11 + 12)), "none branches after round 29, SWA after 28"
    assert said["seconds"] > 0
    commands = [shlex.split(text) for text in said["commands"]]
    assert [words[0] for words in commands] == ["fedscope"] * len(commands)
    for words in commands:
        do(*words[1:])
    for name in (path.name for path in (reference / "runs").iterdir()):
        run, expected = (Run.open(at / "runs" / name) for at in (out, reference))
        assert run.rounds == expected.rounds
        for t in run.rounds:
            assert contents(run.path / f"rounds/{t:05d}.h5") == contents(expected.path / f"rounds/{t:05d}.h5")
    size = sum(path.stat().st_size for path in out.rglob("rounds/*.h5"))
    assert 0.3 * size < said["bytes"] < 3 * size
