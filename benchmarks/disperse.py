"""How fast the statistics of a recorded round's clients are computed, and in how much memory.

A round of 20 clients of ResNet-18 (3 x 3 stem, GroupNorm, 10 classes; 11.2 million parameters, 62 layers) is written to
a temporary folder: 0.9 GB of random rows about one model. `fedscope.decomposition.dispersion.disperse_round` reads each
number once and computes mean, deviation, cv, skewness, kurtosis, D'Agostino's test with its false discovery rate, the
shares of high dispersion and the medians of every layer and of the model. Beside it, in turn and in the same run: how
fast one thread reads the same file from its beginning to its end, computing nothing. The file lies in the system's
cache for both. GB a second of processor time say what it would be with the workers' cores to itself.

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
from typing import Any

from _common import Line, cores, in_fresh_process, memory_from_now, peak_memory, spread, table

CLIENTS, SPEED, MEMORY = 20, 1.5, 1.0


def resnet18() -> Any:
    """The layout of ResNet-18 as federated papers use it, in the order of torchvision's."""
    from fedscope.checkpoints import Entry, Layout

    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 3, 3)}

    def norm(name: str, width: int) -> None:
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    norm("bn1", 64)
    before = 64
    for layer, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            for i in (1, 2):
                shapes[f"{name}.conv{i}.weight"] = (width, before if i == 1 else width, 3, 3)
                norm(f"{name}.bn{i}", width)
            if before != width:
                shapes[f"{name}.downsample.0.weight"] = (width, before, 1, 1)
                norm(f"{name}.downsample.1", width)
            before = width
    shapes.update({"fc.weight": (10, 512), "fc.bias": (10,)})
    return Layout(tuple(Entry(name, shape, "float32", "parameter") for name, shape in shapes.items()))


def write(folder: Path, compression: str) -> Path:
    """A round of clients that scatter about one model, the last three times as far as the first."""
    import numpy as np

    from fedscope.checkpoints import RoundRecord, Weights, write_round

    layout, draw = resnet18(), np.random.default_rng(0)
    start = 0.03 * draw.standard_normal(layout.size, dtype=np.float32)
    rows = draw.standard_normal((CLIENTS, layout.size), dtype=np.float32)
    rows *= np.linspace(0.002, 0.006, CLIENTS, dtype=np.float32)[:, None]
    rows += start
    one, numbers = Weights(layout, start, {}), np.arange(CLIENTS)
    path = folder / compression / "00001.h5"
    path.parent.mkdir()
    record = RoundRecord(1, one, Weights(layout, rows, {}), None, None, *[numbers] * 4, np.full(CLIENTS, 1 / CLIENTS))
    write_round(path, record, compression)  # type: ignore[arg-type]
    return path


def read_seconds(path: Path) -> float:
    """Seconds of reading a file once, a MiB at a time."""
    buffer = bytearray(2**20)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def measured(path: Path) -> tuple[float, float]:
    """Seconds of a round's statistics by the clock, and of processor time."""
    from fedscope.checkpoints import Round
    from fedscope.decomposition.dispersion import disperse_round

    began, worked = time.perf_counter(), time.process_time()
    disperse_round(Round(path, resnet18(), "resnet18"), run="resnet18")
    return time.perf_counter() - began, time.process_time() - worked


def taken(path: Path, rounds: int) -> int:
    """Bytes at the peak beyond those of a process that has imported everything."""
    from fedscope.checkpoints import Round
    from fedscope.decomposition.dispersion import disperse_round

    before = memory_from_now()
    for _ in range(rounds):
        disperse_round(Round(path, resnet18(), "resnet18"), run="resnet18")
    return peak_memory() - before


def main(repetitions: int) -> None:
    """Measure and print."""
    layout = resnet18()
    size = CLIENTS * layout.size * 4
    with tempfile.TemporaryDirectory() as folder:
        plain, coded = (write(Path(folder), compression) for compression in ("none", "delta"))
        read_seconds(plain)
        measured(plain)
        reading, times = [], []
        for _ in range(repetitions):
            reading.append(read_seconds(plain))
            times.append(measured(plain))
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
