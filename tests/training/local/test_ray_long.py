"""Runs whose clients are trained by Ray's workers, with the real Ray, in an environment of its own: the same bits as by
threads, whoever dies in the meantime."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from filelock import FileLock

from fedscope.checkpoints import Run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "howto" / "cluster.md"
CLUSTER = Path(__file__).with_name("ray_cluster.py")
#: rounds of about 0.1 s, one by one
WORDS = ["--rounds", "30", "--participation", "0.2", "--epochs", "8", "--set", "run.engine=threads"]
#: a loss that ends its process on the batch of one client
DEADLY = """
import os

from torch import is_grad_enabled, nn


def loss():
    return mean


def mean(outputs, y):
    if os.environ.get("DEADLY") == f"{len(y)} {int(y.sum())}" and is_grad_enabled():
        os.kill(os.getpid(), 9)
    return nn.functional.cross_entropy(outputs, y, reduction="none")
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """That of an environment with Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import ray_engine

        folder = ROOT / "benchmarks" / ".peers"
        folder.mkdir(exist_ok=True)
        with FileLock(folder / "lock"):
            try:
                return ray_engine.environment(folder)
            except OSError as why:
                pytest.skip(f"{ray_engine.RAY} cannot be installed: {why}")


@pytest.fixture
def start(python: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command of fedscope in Ray's environment, in a folder of the test's own."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **environment: str) -> subprocess.Popen[str]:
        command = [str(python), "-P", "-m", "fedscope.cli", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        known = {**os.environ, "PYTHONPATH": "", **environment}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=known, **pipes))
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.fixture
def cluster(python: Path) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts a cluster of so many nodes with a core each; its address is ``.address``."""
    started: list[subprocess.Popen[str]] = []

    def begin(nodes: int) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen([str(python), str(CLUSTER), str(nodes)], text=True, **pipes))
        out = started[-1].stdout
        assert out is not None
        for line in out:
            if re.fullmatch(r"[\d.]+:\d+", line.strip()):
                started[-1].address = line.strip()  # type: ignore[attr-defined]
                return started[-1]
        raise AssertionError("no cluster")

    yield begin
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


def done(process: subprocess.Popen[str], status: int = 0) -> str:
    """What a command said, once it has ended as it should."""
    out, err = process.communicate(timeout=280)
    assert process.returncode == status, f"{process.args} ended with {process.returncode}:\n{out[-2000:]}{err[-4000:]}"
    assert "Traceback" not in err
    return out + err


def contents(run: Path) -> dict[str, bytes]:
    """Every number of every round, but for the seconds."""
    found = {}
    for path in sorted((run / "rounds").glob("*.h5")):
        with h5py.File(path) as file:

            def take(name: str, item: Any, path: Path = path) -> None:
                if isinstance(item, h5py.Dataset) and name != "checksums":
                    found[f"{path.name}:{name}"] = np.asarray(item[()]).tobytes()

            file.visititems(take)
    return found


def rounds(run: Path) -> int:
    """How many are on the disk."""
    return len(list((run / "rounds").glob("*.h5"))) if run.exists() else 0


def wait_for(run: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many rounds are there."""
    late = time.monotonic() + 120
    while rounds(run) < count and process.poll() is None and time.monotonic() < late:
        time.sleep(0.02)
    assert rounds(run) >= count


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The actors below a process or in its cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if b"ray::_Actor" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    "words",
    [
        WORDS,
        ["--rounds", "4"],
        ["--rounds", "3", "--participation", "0.1", "--model", "cnn", "--client", "scaffold"],
        ["--rounds", "3", "--set", "run.engine=threads", "--method", "moon"],
    ],
    ids=["threads", "groups", "convolutions", "states"],
)
def test_the_bits_are_those_of_threads_with_any_number_of_workers(words: list[str], start: Any, tmp_path: Path) -> None:
    done(start("train", *words, "--out", "here"))
    expected = contents(tmp_path / "here")
    for workers in (1, 2, 3):
        done(start("train", *words, "--out", f"ray{workers}", "--engine", f"ray:{workers}"))
        assert contents(tmp_path / f"ray{workers}") == expected
        info = Run.open(tmp_path / f"ray{workers}").info
        # of those asked for: one that begins late, on a busy machine, finds no work left
        assert re.fullmatch(f"[1-{workers}] on 1 machine", info["cluster"]["workers"])


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_worker_changes_no_bit(seed: int, start: Any, tmp_path: Path) -> None:
    draw = random.Random(seed)
    done(start("train", *WORDS, "--out", "here"))
    process = start("train", *WORDS, "--out", "there", "--engine", "ray:2")
    for upto in sorted(draw.sample(range(1, 25), 2)):
        wait_for(tmp_path / "there", upto, process)
        time.sleep(draw.uniform(0, 0.1))
        os.kill(draw.choice(workers_of(process)), signal.SIGKILL)
    done(process)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_driver_goes_on_with_other_workers(seed: int, start: Any, tmp_path: Path) -> None:
    draw = random.Random(seed)
    done(start("train", *WORDS, "--out", "here"))
    process = start("train", *WORDS, "--out", "there", "--engine", "ray:2")
    wait_for(tmp_path / "there", draw.randint(1, 20), process)
    time.sleep(draw.uniform(0, 0.1))
    process.kill()
    process.communicate()
    done(start("train", "--resume", "there", "--engine", ["ray:1", "ray:3", "ray"][seed], "--until", "26"))
    done(start("train", "--resume", "there"))  # and to the end without
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_raylet_changes_no_bit(seed: int, start: Any, cluster: Any, tmp_path: Path) -> None:
    draw = random.Random(seed)
    nodes = cluster(3)
    done(start("train", *WORDS, "--out", "here"))
    process = start("train", *WORDS, "--out", "there", "--engine", f"ray:{nodes.address}")
    wait_for(tmp_path / "there", draw.randint(2, 15), process)
    nodes.stdin.write(f"kill {draw.randrange(3)}\n")
    nodes.stdin.flush()
    done(process)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert re.match("[1-3] on", json.loads((tmp_path / "there/run.json").read_text())["cluster"]["workers"])


def test_a_surface_goes_on_where_a_node_leaves(start: Any, cluster: Any, tmp_path: Path) -> None:
    nodes = cluster(2)
    done(start("train", "--rounds", "3", "--model", "cnn", "--participation", "0.1", "--out", "run"))
    words = ["plane", "run@1/global", "run@2/global", "run@3/global", "--grid", "41"]
    done(start(*words, "--out", "here"))
    process = start(*words, "--out", "there", "--engine", f"ray:{nodes.address}")
    time.sleep(8)
    nodes.stdin.write("kill 1\n")
    nodes.stdin.flush()
    done(process)
    with h5py.File(tmp_path / "here.nc") as here, h5py.File(tmp_path / "there.nc") as there:
        for name in ("loss", "error"):
            np.testing.assert_array_equal(here[name][()], there[name][()])


def test_replays_are_the_same(start: Any) -> None:
    done(start("train", "--rounds", "3", "--set", "run.engine=threads", "--out", "run"))
    words = ["decompose", "run", "--rounds", "last", "--draws", "local:3", "--json"]
    found = []
    for engine in ("threads", "ray:2"):
        process = start(*words, "--engine", engine, "--out", f"by-{engine.partition(':')[0]}")
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        found.append(json.loads(out)["rounds"])
    assert found[0] == found[1]


def test_a_client_that_always_ends_its_worker_is_named(start: Any, tmp_path: Path) -> None:
    from fedscope.training import load_data

    (tmp_path / "deadly.py").write_text(DEADLY)
    words = ["train", "--task", "deadly:loss", "--rounds", "3", "--clients", "10", "--batch", "1000", "--epochs", "1"]
    words += ["--partition", "iid", "--participation", "0.3", "--set", "run.engine=threads"]
    done(start(*words, "--out", "sound"))
    run = Run.open(tmp_path / "sound")
    client = int(run.round(2).client_ids[-1])
    which = min(t for t in run.rounds if client in run.round(t).client_ids)
    assert run.partition is not None
    own = load_data("digits").samples("train").y[run.partition.clients[client]]
    said = done(start(*words, "--out", "run", "--engine", "ray:2", DEADLY=f"{len(own)} {int(own.sum())}"), 2)
    assert f"round {which}, client {client} has ended its worker 4 times, and no other work has" in said
    assert rounds(tmp_path / "run") == which - 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_leaves_whole_rounds_and_no_process(number: int, start: Any, tmp_path: Path) -> None:
    done(start("train", *WORDS, "--out", "here"))
    process = start("train", *WORDS, "--out", "there", "--engine", "ray:2")
    wait_for(tmp_path / "there", 3, process)
    process.send_signal(number)
    said = done(process, 128 + number)
    assert "fedscope: go on with: fedscope train --resume there" in said
    late = time.monotonic() + 20
    while workers_of(process) and time.monotonic() < late:
        time.sleep(0.2)
    assert not workers_of(process)
    done(start("train", "--resume", "there"))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_without_a_cluster_there_is_one_sentence(start: Any) -> None:
    said = done(start("train", "--rounds", "2", "--out", "run", "--engine", "ray:127.0.0.1:6399"), 2)
    assert said.startswith("fedscope: there is no Ray cluster at 127.0.0.1:6399")
    assert "start one with ray start --head" in said


def test_the_engine_is_refused_where_it_makes_no_sense(start: Any) -> None:
    said = done(start("train", "--rounds", "2", "--out", "run", "--engine", "dask"), 2)
    assert (
        "--engine dask is unknown; give auto, threads, device, cohort, or for the workers of a cluster ray, ray" in said
    )


def test_the_commands_of_the_page_run(start: Any, cluster: Any) -> None:
    address = cluster(2).address
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks if not block.startswith("#!") for line in block.splitlines()]
    played = [line for line in commands if line.startswith("fedscope ")]
    assert len(played) == 3
    for line in played:
        done(start(*line.replace("FIRST:6379", address).split()[1:]))
