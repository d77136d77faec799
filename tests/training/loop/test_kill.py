"""Runs that are killed, stopped and read at any moment: what is visible is whole, and going on changes no bit.

Kills are of real `fedscope` processes. Some come at seeded random moments, some exactly where a file is being made.
"""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Run, WriterLock, mean, stack, weighted_mean
from fedscope.results.arrays import read_netcdf
from fedscope.training import resume

pytestmark = pytest.mark.slow

ROUNDS = 40
# Small, but some 20 ms a round, so that a kill can be timed to fall between two of them.
SETTINGS = (
    "--data=digits",
    "--clients=8",
    "--participation=0.5",
    "--epochs=3",
    f"--rounds={ROUNDS}",
    "--set=model.hidden=[16]",
    "--set=average.window=3",
    "--set=average.start=12",
    "--set=run.evaluate_clients=100",
)
POLICIES: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "delta": ("--set=record.compression=delta",),
    "no-globals": ("--set=record.globals=none", "--set=record.clients=every:2"),
    "sampled": ("--set=record.clients=sample:2", "--set=record.sketch=64", "--set=record.compression=delta"),
    # what the server sends and what clients keep must be found again, too
    "stateful": ("--client=scaffold", "--set=record.globals=none", "--set=record.clients=every:2"),
}
KILLS_EACH = 8

COMMAND = (sys.executable, "-P", "-c", "from fedscope.cli.main import main; main()")


def start(*words: str | Path, code: str = COMMAND[-1]) -> subprocess.Popen[str]:
    """A `fedscope` command in a process of its own, which Ctrl-C reaches even where the tests run in the background."""
    return subprocess.Popen(
        [*COMMAND[:-1], code, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the end; returns what was said on stderr."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    return err


def do(*words: str | Path, status: int = 0) -> str:
    return finish(start(*words), status)


def until(what: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Wait until something is so; False where the process ended before."""
    while not what():
        if process.poll() is not None:
            return what()
        time.sleep(0.0005)
    return True


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens in the block, no process is left."""
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def visible(run: Path) -> list[str]:
    try:
        return sorted(path.name for path in (run / "rounds").iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []


def temporaries(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*.tmp"))


# --- sameness ---


def contents(path: Path) -> dict[str, Any]:
    """Every dataset of an HDF5 file as type, shape and bytes, and every attribute, by its place."""
    found: dict[str, Any] = {}

    def look(name: str, item: Any) -> None:
        for key in set(item.attrs) - {"DIMENSION_LIST", "REFERENCE_LIST"}:  # addresses inside the file
            value = item.attrs[key]
            found[f"{name}@{key}"] = value if isinstance(value, str) else repr(np.asarray(value).tolist())
        if isinstance(item, h5py.Dataset):
            array = item[()]
            whole = array.tolist() if array.dtype == object else array.tobytes()
            found[name] = (str(array.dtype), array.shape, whole)

    with h5py.File(path, "r", locking=False) as file:
        look("/", file)
        file.visititems(look)
    return found


def without_seconds(found: dict[str, Any]) -> dict[str, Any]:
    """A round's contents but for the one number that the clock makes, and the checksums, among them that number's."""
    found = {name: value for name, value in found.items() if not name.startswith("checksums")}
    metrics = json.loads(found["/@metrics"])
    assert metrics.pop("seconds") > 0
    return {**found, "/@metrics": metrics}


def same_round(run: Path, reference: Path, name: str) -> None:
    one, other = (without_seconds(contents(path / "rounds" / name)) for path in (run, reference))
    assert one.keys() == other.keys()
    differ = [key for key in one if one[key] != other[key]]
    assert differ == [], f"{run / 'rounds' / name} differs from an uninterrupted run's in {differ}"


def table(path: Path) -> list[dict[str, str]]:
    with (path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [
            {key: value for key, value in row.items() if key not in ("seconds", "crc32")}
            for row in csv.DictReader(file)
        ]


def same_run(run: Path, reference: Path) -> None:
    """All datasets of all round files and `metrics.csv`, bit for bit, `seconds` apart; nothing is left over."""
    assert visible(run) == visible(reference) == [f"{t:05d}.h5" for t in range(1, ROUNDS + 1)]
    for name in visible(run):
        same_round(run, reference, name)
    assert table(run) == table(reference)
    assert contents(run / "partition.h5") == contents(reference / "partition.h5")
    assert (run / "config.toml").read_bytes() == (reference / "config.toml").read_bytes()
    assert temporaries(run) == []
    assert not list((run / "kept").rglob("*.h5")), "a complete run needs nothing beside its rounds"
    unlocked(run)


def unlocked(run: Path) -> None:
    """Nobody holds the run's lock."""
    with WriterLock(run):
        pass


def whole(path: Path, reference: Path) -> int:
    """Every visible round can be read, adds up, and is what an uninterrupted run has there. Returns how many there are.

    Nothing is mended before: this is what a reader meets after a kill.
    """
    if not (path / "run.json").exists():
        assert visible(path) == []
        return 0
    run = Run.open(path)
    assert run.rounds == tuple(range(1, len(run.rounds) + 1))
    assert run.config is not None
    assert run.partition is not None
    for t in run.rounds:
        same_round(path, reference, f"{t:05d}.h5")
        round_ = run.round(t)
        assert round_.number == round_.metrics["round"] == t
        if round_.has_clients and "global" in round_.models:
            expected = weighted_mean(round_.clients(), round_.weights).parameters
            assert round_.read("global").parameters.tobytes() == expected.tobytes()
        if "averaged" in round_.models and t > 3 and all("global" in run.round(s).models for s in (t - 2, t - 1, t)):
            window = stack([run.round(s).read("global") for s in (t - 2, t - 1, t)])
            assert round_.read("averaged").parameters.tobytes() == mean(window).parameters.tobytes()
    assert run.metrics()["round"].tolist() == list(run.rounds)
    assert not np.isnan(run.metrics()["test_error"]).any()
    unlocked(path)
    return len(run.rounds)


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Uninterrupted runs by policy, each trained when first asked for."""
    folder = tmp_path_factory.mktemp("references")

    def reference(policy: str) -> Path:
        path = folder / policy
        if not path.exists():
            do("train", *SETTINGS, *POLICIES[policy], "--out", path)
        return path

    return reference


# --- SIGKILL while rounds are played and recorded ---


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_killed_many_times_equals_an_uninterrupted_one(
    policy: str, references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference, run = references(policy), tmp_path / "run"
    pace = float(np.median([float(Run.open(reference).round(t).metrics["seconds"] or 0) for t in range(1, ROUNDS)]))
    draw = np.random.default_rng(sum(policy.encode()))
    landed, torn = [], 0
    for kill in range(KILLS_EACH):
        words = ("--resume", run) if (run / "run.json").exists() else (*SETTINGS, *POLICIES[policy], "--out", run)
        before = len(visible(run))
        process = start("train", *words)
        with killed(process):
            # From the first round that this process records on: a moment within the next three, or, every other time,
            # when a file is half written.
            assert until(lambda before=before: len(visible(run)) > before, process)
            time.sleep(draw.uniform(0, 3 * pace))
            if kill % 2:
                until(lambda: bool(temporaries(run)), process)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert process.returncode == -signal.SIGKILL, f"kill {kill} came too late: the run had ended"
        torn += bool(temporaries(run))
        landed.append(whole(run, reference))
        assert before < landed[-1] < ROUNDS
    assert len(landed) == KILLS_EACH
    assert torn >= 1, "no kill fell on a file that was being written; the test's timing needs a look"
    do("train", "--resume", run)
    same_run(run, reference)


def test_there_are_at_least_twenty_random_kills() -> None:
    assert KILLS_EACH * len(POLICIES) >= 20


# --- SIGKILL at each step of making a run, and of recording rounds ---

#: the command, with a SIGKILL of its own in place of the n-th fsync: files are synced before they are renamed and
#: folders after it, so this comes between any two steps of any durable write
AT_SYNC = """
import os, signal
left, sync = {n}, os.fsync
def counted(descriptor):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = counted
from fedscope.cli.main import main
main()
"""


def test_a_kill_at_any_step_of_creation_and_of_the_first_rounds_loses_nothing(
    references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference = references("no-globals")
    reached = []
    for n in range(1, 23):
        run = tmp_path / f"run-{n}"
        train = ("train", *SETTINGS, *POLICIES["no-globals"], "--out", run)
        finish(start(*train, code=AT_SYNC.format(n=n)), -signal.SIGKILL)
        made = (run / "run.json").exists()
        reached.append((made, whole(run, reference)))
        if made:
            resume(run)
        else:
            do(*train)
        same_run(run, reference)
    assert not reached[0][0], "the first kill came after the run was made"
    assert {(True, 0), (True, 1)} <= set(reached), "no kill fell on the first rounds; sync more often"


def test_kills_at_random_moments_of_creation_leave_what_the_same_command_can_use(
    references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference = references("plain")
    draw = np.random.default_rng(1)
    before_run_json = 0
    for kill in range(4):
        run = tmp_path / f"run-{kill}"
        train = ("train", *SETTINGS, "--out", run)
        process = start(*train)
        with killed(process):
            assert until(run.exists, process)
            time.sleep(draw.uniform(0, 0.005))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        made = (run / "run.json").exists()
        before_run_json += not made
        whole(run, reference)
        if made:  # a run: the same command is refused, and says the way on
            assert re.search(r"holds a run.*--force", do(*train, status=2))
        else:
            do(*train)
            same_run(run, reference)
    assert before_run_json >= 1, "no kill fell before run.json was there; the test's timing needs a look"


def test_a_replacement_that_is_killed_halfway_can_be_repeated(
    references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference, run = references("plain"), tmp_path / "run"
    do("train", *SETTINGS, "--rounds=2", "--set=average.start=1", "--out", run)
    again = ("train", *SETTINGS, "--out", run, "--force")
    for n in range(1, 6, 2):
        finish(start(*again, code=AT_SYNC.format(n=n, when="before")), -signal.SIGKILL)
        unlocked(run)
    do(*again)
    same_run(run, reference)


# --- Ctrl-C ---


@pytest.mark.parametrize("seed", range(3))
def test_ctrl_c_ends_with_130_and_says_how_to_go_on(
    seed: int, references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference, run = references("plain"), tmp_path / "run"
    process = start("train", *SETTINGS, "--out", run)
    with killed(process):
        assert until(lambda: len(visible(run)) >= 2, process)
        time.sleep(np.random.default_rng(seed).uniform(0, 0.1))
        process.send_signal(signal.SIGINT)
        said = finish(process, 130)
    assert f"fedscope train --resume {run}" in said
    assert "Traceback" not in said
    assert 2 <= whole(run, reference) < ROUNDS
    assert temporaries(run) == []
    do("train", "--resume", run)
    same_run(run, reference)


# --- readers and a second writer beside the one that trains ---


@pytest.mark.parametrize("policy", ["plain", "delta"])
def test_readers_of_a_run_that_trains_never_meet_a_bad_file(
    policy: str, references: Callable[[str], Path], tmp_path: Path
) -> None:
    reference, run = references(policy), tmp_path / "run"
    expected = Run.open(reference)
    process = start("train", *SETTINGS, *POLICIES[policy], "--out", run)
    looks, growing = 0, set()
    with killed(process):
        assert until((run / "run.json").exists, process)
        while process.poll() is None:
            now = Run.open(run)
            metrics = now.metrics()
            assert metrics["round"].tolist() == list(now.rounds)
            np.testing.assert_array_equal(metrics["test_loss"], expected.metrics()["test_loss"][: len(now.rounds)])
            if now.rounds:
                seen, stored = now.round("last"), expected.round(now.rounds[-1])
                assert seen.clients().parameters.tobytes() == stored.clients().parameters.tobytes()
                for which in seen.models:
                    assert seen.read(which).parameters.tobytes() == stored.read(which).parameters.tobytes()
                growing.add(now.rounds[-1])
            looks += 1
        finish(process)
    assert looks > len(growing) >= 5
    same_run(run, reference)


def test_a_second_writer_is_refused_by_name_while_the_first_lives(
    references: Callable[[str], Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start("train", *SETTINGS, "--out", run)
    with killed(process):
        assert until(lambda: len(visible(run)) >= 1, process)
        with pytest.raises(FedscopeError, match=f"is being written by process {process.pid};"):
            WriterLock(run)
        finish(process)
    same_run(run, references("plain"))


# --- an analysis ---

GRID = 81


def planes(*words: str | Path) -> tuple[str | Path, ...]:
    return ("plane", *words, "--split=train", f"--grid={GRID}")


def done_points(partial: Path) -> int:
    try:
        return max(0, partial.read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def same_netcdf(one: Path, other: Path) -> None:
    assert contents(one) == contents(other)
    assert read_netcdf(one)  # and it can be read


@pytest.mark.parametrize("how", [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["SIGINT", "SIGKILL"])
def test_an_interrupted_plane_goes_on_to_the_same_file(
    how: tuple[signal.Signals, int], references: Callable[[str], Path], tmp_path: Path
) -> None:
    run, draw = references("plain"), np.random.default_rng(3)
    models = tuple(f"{run}@{t}/global" for t in (1, 5, 20))
    uninterrupted, base = tmp_path / "uninterrupted", tmp_path / "plane"
    do(*planes(*models), "--out", uninterrupted)
    file, partial = Path(f"{base}.nc"), Path(f"{base}.nc.partial")
    for stop in range(3):
        before = done_points(partial)
        process = start(*planes(*models), "--out", base)
        with killed(process):
            assert until(lambda before=before: done_points(partial) > before, process)
            time.sleep(draw.uniform(0, 0.2))
            process.send_signal(how[0])
            said = finish(process, how[1])
        if how[0] == signal.SIGINT:
            assert "what was complete is kept" in said
            assert "Traceback" not in said
        assert not file.exists(), f"stop {stop} came too late: the plane was there"
        assert before < done_points(partial) < GRID**2
    do(*planes(*models), "--out", base)
    same_netcdf(file, Path(f"{uninterrupted}.nc"))
    assert not partial.exists()
    assert sorted(path.suffix for path in tmp_path.glob("plane*")) == [".csv", ".html", ".nc", ".pdf", ".png"]
    for suffix in ("pdf", "png"):
        assert Path(f"{base}.{suffix}").read_bytes() == Path(f"{uninterrupted}.{suffix}").read_bytes()


def test_points_of_an_interrupted_plane_are_not_those_of_another_question(
    references: Callable[[str], Path], tmp_path: Path
) -> None:
    run = references("plain")
    models = tuple(f"{run}@{t}/global" for t in (1, 5, 20))
    base = tmp_path / "plane"
    process = start(*planes(*models), "--out", base)
    with killed(process):
        assert until(lambda: done_points(Path(f"{base}.nc.partial")) > 10, process)
        process.send_signal(signal.SIGKILL)
    others = tuple(f"{run}@{t}/global" for t in (2, 6, 21))
    small: Sequence[str | Path] = ("plane", *others, "--split=train", "--grid=5")
    do(*small, "--out", base)
    do(*small, "--out", tmp_path / "alone")
    same_netcdf(Path(f"{base}.nc"), tmp_path / "alone.nc")
