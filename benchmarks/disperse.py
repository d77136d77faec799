"""How fast the statistics of a recorded round's clients are computed, and in how much memory.

A round of 20 clients of ResNet-18 (3 x 3 stem, GroupNorm, 10 classes; 11.2 million parameters, 62 layers) is written to
a temporary folder: 0.9 GB of random rows about one model. `fedscope.decomposition.dispersion.dispersion.disperse_round`
reads each number once and computes mean, deviation, cv, skewness, kurtosis, D'Agostino's test with its false discovery
rate, the shares of high dispersion and the medians of every layer and of the model. Beside it, in turn and in the same
run: how fast one thread reads the same file from its beginning to its end, computing nothing. The file lies in the
system's cache for both, and then for neither. GB a second of processor time say what it would be with the cores to
itself.

The peak memory is a new process's, beyond what it had with everything imported; of one round and of three, and of a
round recorded with record.compression = "delta", whose layers can only be read whole.

    python benchmarks/disperse.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import (
    Line,
    cold_lines,
    cores,
    in_fresh_process,
    memory_from_now,
    peak_memory,
    read_seconds,
    resnet18,
    spread,
    table,
    write_clients,
)

CLIENTS, SPEED, MEMORY = 20, 1.5, 1.0


def measured(path: Path) -> tuple[float, float]:
    """Seconds of a round's statistics by the clock, and of processor time."""
    from fedscope.checkpoints import Round
    from fedscope.decomposition.dispersion.dispersion import disperse_round

    began, worked = time.perf_counter(), time.process_time()
    disperse_round(Round(path, resnet18(), "resnet18"), run="resnet18")
    return time.perf_counter() - began, time.process_time() - worked


def taken(path: Path, rounds: int) -> int:
    """Bytes at the peak beyond those of a process that has imported everything."""
    from fedscope.checkpoints import Round
    from fedscope.decomposition.dispersion.dispersion import disperse_round

    before = memory_from_now()
    for _ in range(rounds):
        disperse_round(Round(path, resnet18(), "resnet18"), run="resnet18")
    return peak_memory() - before


def main(repetitions: int) -> None:
    """Measure and print."""
    layout = resnet18()
    size = CLIENTS * layout.size * 4
    with tempfile.TemporaryDirectory() as folder:
        plain, coded = (Path(folder) / compression / "00001.h5" for compression in ("none", "delta"))
        for path in (plain, coded):
            write_clients(path, CLIENTS, path.parent.name)
        read_seconds(plain)
        measured(plain)
        reading, times = [], []
        for _ in range(repetitions):
            reading.append(read_seconds(plain))
            times.append(measured(plain))
        cold = cold_lines(plain, lambda: measured(plain), size, SPEED, repetitions)
        memory = {
            "one round": in_fresh_process(taken, plain, 1),
            "three rounds, one after the other": in_fresh_process(taken, plain, 3),
            "one round of compression = delta": in_fresh_process(taken, coded, 1),
        }
        rates = [plain.stat().st_size / seconds / 1e9 for seconds in reading]
    speeds = [size / seconds / 1e9 for seconds, _ in times]
    worked = [size / seconds / 1e9 for _, seconds in times]
    speed = statistics.median(speeds)
    lines = [
        Line("reading the file in one thread, GB/s", spread(rates)),
        Line("all statistics and the test, GB/s", spread(speeds), f">= {SPEED:g}", speed >= SPEED),
        Line("as a share of reading", spread([a / b for a, b in zip(speeds, rates, strict=True)])),
        Line("GB a second of processor time", spread(worked)),
        Line(
            f"so on {cores()} cores with nothing beside it at most, GB/s", f"{cores() * statistics.median(worked):.2f}"
        ),
    ]
    lines += cold
    lines += [
        Line(f"peak memory of {what}, GB", f"{own / 1e9:.2f}", f"<= {MEMORY:g}", own <= MEMORY * 1e9)
        for what, own in memory.items()
    ]
    table(
        f"Dispersion: {CLIENTS} clients x {layout.size / 1e6:.1f} million parameters, {len(layout.slices)} layers",
        lines,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
