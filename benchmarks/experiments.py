"""How soon a recipe's first round starts, what a sweep costs beside its runs, and how long a table of 100 runs takes.

The recipe: `ima/fig1` on noise in CIFAR-10's size, as an .npz. Its first round starts once `partition.h5` is there,
which is the last thing that is written before clients train. "First" decodes and caches the data; "again" finds them.

The sweep: 20 runs of a round as `fedscope sweep`, and as one Python process that trains them one after the other, in
turn. Both start Python and import torch once. What the sweep takes beyond the program does not depend on how long its
runs are, so runs of a round show it best; its share is that of 20 runs of 30 rounds, measured beside it. Processor
time counts, which other programs hardly change, with one thread a process.

    python benchmarks/experiments.py [repetitions]
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _common import Line, fedscope_command, spread, table

FIRST, OVERHEAD, TABLE = 5.0, 0.02, 2.0
#: runs of a sweep, the rounds of a run that is no test, and runs of a table
RUNS, ROUNDS, ROWS = 20, 30, 100
SETTINGS = {"data.clients": 10, "model.hidden": [64], "run.participation": 1.0, "run.evaluate_clients": 0}
SCRIPT = """
import sys
from pathlib import Path
from fedscope.training import Setup, read_assignments, train
settings, out = sys.argv[1].split(";"), Path(sys.argv[2])
for seed in range(int(sys.argv[3])):
    above = read_assignments([*settings, f"run.seed={seed}", f"data.seed={seed}"])
    train(Setup().config("fma", above), out / str(seed))
"""


def seconds(words: Sequence[str | Path], **environment: str) -> tuple[float, float]:
    """Of the clock, and of the processor, of a command and its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    quiet = subprocess.DEVNULL
    subprocess.run(words, check=True, stdout=quiet, stderr=quiet, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used


def until_first_round(folder: Path, data: Path, cache: Path) -> float:
    """Seconds from the command to the first round's first client; the run is stopped then."""
    run = folder / "run"
    words = [fedscope_command(), "train", "--recipe", "ima/fig1", "--data", f"npz:{data}", "--out", run]
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, stdout=quiet, stderr=quiet, env={**os.environ, "FEDSCOPE_CACHE": str(cache)})
    while not (run / "partition.h5").exists() and process.poll() is None:
        time.sleep(0.005)
    took = time.perf_counter() - began
    process.send_signal(signal.SIGINT)
    process.wait()
    if not (run / "partition.h5").exists():
        sys.exit(f"{' '.join(map(str, words))} ended before its first round")
    shutil.rmtree(run)
    return took


def recipe(folder: Path, repetitions: int) -> list[Line]:
    """The first time, with nothing in the cache, and later ones."""
    import numpy as np

    draw, data = np.random.default_rng(0), folder / "noise.npz"
    images = {"train": 50_000, "test": 10_000}
    np.savez(
        data,
        **{f"x_{split}": draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for split, n in images.items()},
        **{f"y_{split}": np.arange(n) % 10 for split, n in images.items()},
    )
    caches = [folder / f"cache-{i}" for i in range(repetitions)]
    first = [until_first_round(folder, data, cache) for cache in caches]
    again = [until_first_round(folder, data, caches[0]) for _ in caches]
    return [
        Line(
            f"a recipe's first round, {name}: seconds", spread(took), f"<= {FIRST:g}", statistics.median(took) <= FIRST
        )
        for name, took in (("first", first), ("again", again))
    ]


def sweep(folder: Path, repetitions: int) -> list[Line]:
    """What a sweep takes beside a program that trains the same runs."""
    from fedscope.training.settings.values import format_value

    def settings(rounds: int) -> list[str]:
        return [f"{key}={format_value(value)}" for key, value in (SETTINGS | {"run.rounds": rounds}).items()]

    def plain(rounds: int, runs: int, name: str) -> float:
        words = [sys.executable, "-P", "-c", SCRIPT, ";".join(settings(rounds)), folder / name, str(runs)]
        return seconds(words, OMP_NUM_THREADS="1")[1]

    more = [word for setting in settings(1) for word in ("--set", setting)]
    beyond, longer = [], []
    for i in range(repetitions):
        words = [fedscope_command(), "sweep", "method=fma", "--seeds", f"0..{RUNS - 1}", *more]
        swept = seconds([*words, "--out", folder / f"sweep-{i}"], OMP_NUM_THREADS="1")[1]
        short = plain(1, RUNS, f"script-{i}")
        beyond.append(swept - short)
        longer.append(plain(ROUNDS, 2, f"long-{i}") - plain(1, 2, f"short-{i}"))
    whole = RUNS * statistics.median(longer) / 2
    share = statistics.median(beyond) / whole
    return [
        Line(f"a sweep of {RUNS} runs: seconds beyond theirs", spread(beyond)),
        Line(f"  seconds of {RUNS} runs of {ROUNDS} rounds", f"{whole:.0f}"),
        Line("  ratio", f"{share:.1%}", f"<= {OVERHEAD:.0%}", share <= OVERHEAD),
    ]


def rows(folder: Path, repetitions: int) -> list[Line]:
    """A table of 100 runs, and of a sweep of as many."""
    words = [
        fedscope_command(),
        "sweep",
        "method=fma,fedprox",
        "--seeds",
        f"0..{ROWS // 2 - 1}",
        "--out",
        folder / "many",
    ]
    small = [
        "--set",
        "data.clients=2",
        "--set",
        "run.rounds=2",
        "--set",
        "model.hidden=[2]",
        "--set",
        "client.epochs=1",
    ]
    seconds([*words, *small])
    runs = sorted((folder / "many" / "runs").iterdir())
    lines = []
    for what, given in (("runs", runs), ("runs of a sweep", [folder / "many"])):
        took = [seconds([fedscope_command(), "table", *given])[0] for _ in range(repetitions + 1)][1:]
        middle = statistics.median(took)
        lines.append(Line(f"a table of {ROWS} {what}: seconds", spread(took), f"<= {TABLE:g}", middle <= TABLE))
    return lines


def main(repetitions: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [line for part in (recipe, sweep, rows) for line in part(folder, repetitions)]
    table(f"Experiments: {repetitions} times", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
