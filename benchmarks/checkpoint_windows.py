"""How long all means of a folder of checkpoints take, beside reading their bytes, and in how much memory.

A round whose clients are 40 checkpoints is written to a temporary folder. Every window (2, 4, 8, 16, 32, 40) with every
weighting is formed: 31 means with the newest itself, from one pass over the bytes, put aside in another temporary file.
Beside it, in turn: the same bytes read and verified through the same reader, computing nothing. Once the file lies in
the system's cache, and once it does not; means of few windows are told apart, because what is written grows with them.

    python benchmarks/checkpoint_windows.py [million parameters] [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import Line, forget, in_fresh_process, memory_from_now, peak_memory, spread, table

CHECKPOINTS, MEMORY, RATIO, LAYERS = 40, 4.0, 1.5, 16


def layout_of(size: int) -> Any:
    """Layers of equal size."""
    from fedscope.checkpoints import Layout, TensorEntry

    return Layout(tuple(TensorEntry(f"layer{i}", (size // LAYERS,), "float32", "parameter") for i in range(LAYERS)))


def write(folder: Path, size: int) -> Path:
    """A round of checkpoints on a straight way with noise, written row by row."""
    import numpy as np

    from fedscope.checkpoints import RoundRecord, TemporaryMatrix, Weights, as_array, write_round

    layout, draw = layout_of(size), np.random.default_rng(0)
    rows = TemporaryMatrix(folder, (CHECKPOINTS, layout.size), layout.dtype)
    for k in range(CHECKPOINTS):
        rows[k] = draw.standard_normal(layout.size, dtype=np.float32) + np.float32(k)
    numbers, p = np.arange(CHECKPOINTS), np.full(CHECKPOINTS, 1 / CHECKPOINTS)
    path = folder / "00001.h5"
    write_round(path, RoundRecord(1, None, Weights(layout, as_array(rows), {}), None, None, *[numbers] * 4, p), "none")
    return path


def opened(path: Path, size: int) -> Any:
    """The round, not verified yet."""
    from fedscope.checkpoints import Round

    return Round(path, layout_of(size), "checkpoints")


def read(path: Path, size: int) -> tuple[float, float]:
    """Seconds of reading all checkpoints, and of processor time."""
    from fedscope.checkpoints import as_disk_matrix, recorded_matrix

    began, worked = time.perf_counter(), time.process_time()
    rows = as_disk_matrix(recorded_matrix(opened(path, size)).parameters)
    assert rows is not None
    for _ in rows.blocks():
        pass
    return time.perf_counter() - began, time.process_time() - worked


def form(path: Path, size: int, windows: tuple[int, ...]) -> tuple[float, float]:
    """Seconds of forming all means, and of processor time."""
    import numpy as np

    from fedscope.decomposition.windows.checkpoint_means import averages_of, mean_models
    from fedscope.decomposition.windows.weightings import weightings_of

    began, worked = time.perf_counter(), time.process_time()
    averages = averages_of(np.full(CHECKPOINTS, 1 / CHECKPOINTS), windows, weightings_of(None))
    mean_models(opened(path, size), averages)
    return time.perf_counter() - began, time.process_time() - worked


def taken(path: Path, size: int, windows: tuple[int, ...]) -> int:
    """Bytes at the peak beyond those of a process that has imported everything."""
    import fedscope.decomposition.windows.checkpoint_means  # noqa: F401

    before = memory_from_now()
    form(path, size, windows)
    return peak_memory() - before


def main(million: float, repetitions: int) -> None:
    """Measure and print."""
    size = int(million * 1e6) // LAYERS * LAYERS
    every, few = (2, 4, 8, 16, 32, 40), (10, 40)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), size)
        for cached in (True, False):
            ratios: dict[tuple[int, ...], list[float]] = {every: [], few: []}
            processor: dict[tuple[int, ...], list[float]] = {every: [], few: []}
            reading, busy = [], []
            for _ in range(repetitions):
                for windows, found in ratios.items():
                    own = []
                    for work in (lambda: read(path, size), lambda w=windows: form(path, size, w)):  # type: ignore[misc]
                        if not cached:
                            forget(path)
                        own.append(work())
                    reading.append(own[0][0])
                    busy.append(own[0][1])
                    found.append(own[1][0] / own[0][0])
                    processor[windows].append(own[1][1])
            where = "in the cache" if cached else "not in the cache"
            lines.append(Line(f"{where}: reading, s", spread(reading)))
            lines.append(Line("  its processor time, s", spread(busy)))
            for windows, found in ratios.items():
                holds = statistics.median(found) <= RATIO
                what = f"{where}: forming {5 * len(windows) + 1} means / reading"
                lines.append(Line(what, spread(found), f"<= {RATIO:g}", holds))
                lines.append(Line("  its processor time, s", spread(processor[windows])))
        memory = in_fresh_process(taken, path, size, every)
        lines.append(Line("peak memory, GB", f"{memory / 1e9:.2f}", f"<= {MEMORY:g}", memory <= MEMORY * 1e9))
    table(f"Means of {CHECKPOINTS} checkpoints of {size / 1e6:.0f} million parameters", lines)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 25,
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
    )
