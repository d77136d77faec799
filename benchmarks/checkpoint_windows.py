"""How long all means of a folder of checkpoints take, beside reading their bytes, and in how much memory.

A round whose clients are 40 checkpoints is written to a temporary folder. Every window (2, 4, 8, 16, 32, 40) with every
weighting is formed: 31 means with the newest itself, from one pass over the bytes. Beside it, in turn: the same bytes
read by the same reader, each once and compared with its checksum, with nothing computed. Once the file lies in the
system's cache, and once it does not. Means that are formed and dropped are told apart from those that are put aside in
another temporary file, because what is written grows with them. With ``folder`` the checkpoints are 40 files in
``.safetensors``, which have no checksums: each is hashed while it is read.

    python benchmarks/checkpoint_windows.py [million parameters] [repetitions] [folder]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import Line, forget, in_fresh_process, memory_from_now, peak_memory, spread, table

CHECKPOINTS, MEMORY, RATIO, LAYERS = 40, 4.0, 1.5, 16


def layout_of(size: int) -> Any:
    """Layers of equal size."""
    from fedscope.checkpoints import Layout, TensorEntry

    return Layout(tuple(TensorEntry(f"layer{i}", (size // LAYERS,), "float32", "parameter") for i in range(LAYERS)))


def write(folder: Path, size: int) -> Path:
    """A round of checkpoints on a straight way with noise, drawn as they are written."""
    import numpy as np

    from fedscope.checkpoints import DiskMatrix, RoundRecord, Weights, as_array, write_round

    class Drawn(DiskMatrix):
        def read(self, k: int, where: slice) -> Any:
            draw = np.random.default_rng((k, where.start))
            return draw.standard_normal(where.stop - where.start, dtype=np.float32) + np.float32(k)

    layout = layout_of(size)
    rows = as_array(Drawn((CHECKPOINTS, layout.size), layout.dtype))
    numbers, p = np.arange(CHECKPOINTS), np.full(CHECKPOINTS, 1 / CHECKPOINTS)
    path = folder / "00001.h5"
    write_round(path, RoundRecord(1, None, Weights(layout, rows, {}), None, None, *[numbers] * 4, p), "none")
    return path


def write_files(folder: Path, size: int) -> Path:
    """The same in files of one checkpoint each."""
    import numpy as np
    from safetensors.numpy import save_file

    layout = layout_of(size)
    for k in range(CHECKPOINTS):
        draw = np.random.default_rng(k)
        one = {e.name: draw.standard_normal(e.shape, dtype=np.float32) + np.float32(k) for e in layout.entries}
        save_file(one, folder / f"step-{k:02}.safetensors")
    return folder


def files_in(path: Path) -> list[Path]:
    """The files that the checkpoints lie in."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


def opened(path: Path, size: int) -> Any:
    """The round, not verified yet."""
    from fedscope.checkpoints import Round

    return Round(path, layout_of(size), "checkpoints")


def clients(path: Path, size: int) -> Any:
    """The checkpoints, [C, P], on the disk and not verified yet."""
    from fedscope.checkpoints import recorded_matrix
    from fedscope.checkpoints.models.expected import ExpectedModel
    from fedscope.checkpoints.rounds.file_rows import rows_of_files

    if path.is_dir():
        return rows_of_files(list(map(str, files_in(path))), ExpectedModel(layout_of(size)))
    return recorded_matrix(opened(path, size))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a piece of work, and of processor time."""
    began, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - worked


def read(path: Path, size: int) -> None:
    """Read all checkpoints, verified."""
    import numpy as np

    from fedscope.checkpoints import as_disk_matrix
    from fedscope.decomposition.windows.checkpoint_means import BLOCK

    rows = as_disk_matrix(clients(path, size).parameters)
    assert rows is not None
    room, look = np.empty(BLOCK, np.float32), hashed(path)
    for _, values in rows.once(BLOCK // CHECKPOINTS, lambda count: room[:count]):
        if look is not None:
            look(values)


def hashed(path: Path) -> Callable[[Any], None] | None:
    """What makes the digests of files; None of a round, which has them in it."""
    from fedscope.decomposition.windows.checkpoint_files import RowDigests

    return RowDigests(CHECKPOINTS).add if path.is_dir() else None


def asked(windows: tuple[int, ...]) -> Any:
    """The means."""
    import numpy as np

    from fedscope.decomposition.windows.checkpoint_means import averages_of
    from fedscope.decomposition.windows.weightings import weightings_of

    return averages_of(np.full(CHECKPOINTS, 1 / CHECKPOINTS), windows, weightings_of(None))


def form(path: Path, size: int, windows: tuple[int, ...]) -> None:
    """Form all means and drop them."""
    import numpy as np

    from fedscope.decomposition.windows.checkpoint_means import form_means

    shares = np.stack([one.shares for one in asked(windows)])
    form_means(clients(path, size), shares, lambda where, means: None, look=hashed(path))


def keep(path: Path, size: int, windows: tuple[int, ...]) -> None:
    """Form all means and put them aside."""
    from fedscope.decomposition.windows.checkpoint_means import mean_models

    mean_models(clients(path, size), asked(windows), look=hashed(path))


def taken(path: Path, size: int, windows: tuple[int, ...]) -> int:
    """Bytes at the peak beyond those of a process that has imported everything."""
    import fedscope.decomposition.windows.checkpoint_means  # noqa: F401

    before = memory_from_now()
    keep(path, size, windows)
    return peak_memory() - before


def lines_of(path: Path, size: int, every: tuple[int, ...], few: tuple[int, ...], repetitions: int) -> list[Line]:
    """Measure reading, forming and keeping in turn, with the file in the cache and not in it."""
    works: dict[str, Callable[[], None]] = {"reading": lambda: read(path, size)}
    for windows in (every, few):
        count = 5 * len(windows) + 1
        works[f"forming {count} means"] = lambda windows=windows: form(path, size, windows)  # type: ignore[misc]
        works[f"forming and writing {count}"] = lambda windows=windows: keep(path, size, windows)  # type: ignore[misc]
    lines = []
    keep(path, size, few)  # what is imported on the way
    for cached in (True, False):
        found: dict[str, list[tuple[float, float]]] = {what: [] for what in works}
        for _ in range(repetitions):
            for what, work in works.items():
                if not cached:
                    for file in files_in(path):
                        forget(file)
                forget_checksums()
                found[what].append(timed(work))
        where = "in the cache" if cached else "not in the cache"
        for what, each in found.items():
            ratio = [own[0] / beside[0] for own, beside in zip(each, found["reading"], strict=True)]
            lines.append(Line(f"{where}: {what}, s", spread([own[0] for own in each])))
            if what != "reading":
                least = min(own[0] for own in each) / min(own[0] for own in found["reading"])
                bar = (f"<= {RATIO:g}", statistics.median(ratio) <= RATIO) if what.endswith("means") else ("", None)
                lines.append(Line("  / reading", f"{spread(ratio)}, least / least {least:.2f}", *bar))
            lines.append(Line("  processor time, s", spread([own[1] for own in each])))
    return lines


def forget_checksums() -> None:
    """Have the next reader verify anew what this process has verified."""
    from fedscope.checkpoints.io import checksums
    from fedscope.checkpoints.rounds import reader

    checksums.VERIFIED = reader.VERIFIED = checksums.Verified(files=4096, tables=16)


def main(million: float, repetitions: int, kind: str) -> None:
    """Measure and print."""
    size = int(million * 1e6) // LAYERS * LAYERS
    every, few = (2, 4, 8, 16, 32, 40), (10, 40)
    with tempfile.TemporaryDirectory() as folder:
        path = (write_files if kind == "folder" else write)(Path(folder), size)
        lines = lines_of(path, size, every, few, repetitions)
        memory = in_fresh_process(taken, path, size, every)
        lines.append(Line("peak memory, GB", f"{memory / 1e9:.2f}", f"<= {MEMORY:g}", memory <= MEMORY * 1e9))
    table(f"Means of {CHECKPOINTS} checkpoints of {size / 1e6:.0f} million parameters in a {kind}", lines)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 25,
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        sys.argv[3] if len(sys.argv) > 3 else "round",
    )
