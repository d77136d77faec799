"""What `fedscope ls` costs a run, beside walking the same folders and reading every run.json; the median of the ratios.

python benchmarks/ls.py [runs] [rounds] [repetitions]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _common import Line, spread, table

TARGET, RATIO = 0.02, 5.0


def walk(folder: Path) -> int:
    """The least that a listing could do: every file's size, and every run.json."""
    size = 0
    for place, _, files in os.walk(folder):
        size += sum(Path(place, file).stat().st_size for file in files)
        if "run.json" in files:
            json.loads(Path(place, "run.json").read_text())
    return size


def copies(run: Path, folder: Path, count: int) -> None:
    """As many runs, whose rounds are links to those of one."""
    for i in range(count):
        for file in run.rglob("*"):
            if file.is_file():
                target = folder / f"run-{i}" / file.relative_to(run)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)


def main(runs: int, rounds: int, repetitions: int) -> None:
    """Measure in processor time, in turn."""
    from fedscope.checkpoints import find_runs
    from fedscope.cli.commands.ls import describe_run
    from fedscope.training import Config, train

    def seconds(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    with tempfile.TemporaryDirectory() as place:
        config = {"data": {"clients": 4}, "client": {"epochs": 1}, "run": {"rounds": rounds, "participation": 0.5}}
        run, folder = Path(place, "one"), Path(place, "all")
        train(Config.read(config), run)
        copies(run, folder, runs)
        listing, walking = [], []
        for _ in range(repetitions + 1):  # the first one fills the caches
            walking.append(seconds(lambda: walk(folder)) / runs)
            listing.append(seconds(lambda: [describe_run(run) for run in find_runs(folder)]) / runs)
    del listing[0], walking[0]
    ratio = statistics.median(a / b for a, b in zip(listing, walking, strict=True))
    table(
        f"ls: {runs} runs of {rounds} rounds, {repetitions} times, seconds of processor time a run",
        [
            Line("fedscope ls", spread(listing, "{:.4f}"), f"< {TARGET}", statistics.median(listing) < TARGET),
            Line("os.walk, stat and json.loads", spread(walking, "{:.4f}")),
            Line("ratio", f"{ratio:.1f}", f"< {RATIO:g}", ratio < RATIO),
        ],
    )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [41, 60, 7][len(given) :]))
