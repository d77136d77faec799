"""What checksums cost: the first reading of a round in a process, later ones, and writing.

Two files hold the same clients of ResNet-18 (11.2 million parameters each), one with checksums, one without; both are
in the system's cache. They are read in turn, as whole matrices and as pieces of columns, with what the process has
verified forgotten before each first reading. A small round (the default network, ten clients) shows what a file costs
in which there is hardly anything to read. Processor time, best of several: all work is done in one thread.

    python benchmarks/checksums.py [repetitions]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from _common import Line, resnet18, table

from fedscope.checkpoints import Layout, Round, RoundRecord, Weights, read_chunks, write_round
from fedscope.checkpoints.io import checksums
from fedscope.training import build_module, model_settings

FIRST, LATER = 2.0, 1.02
CLIENTS = {"ResNet-18": 5, "mlp": 10}
#: times that a round is read in one measurement
READS = {("ResNet-18", "clients"): 1, ("ResNet-18", "pieces"): 1}
MANY = 40


def seconds(work: Callable[[], object]) -> float:
    """Processor time of a piece of work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def forget() -> None:
    """Let this process verify everything anew."""
    checksums.VERIFIED = checksums.Verified(files=4096, tables=16)
    from fedscope.checkpoints.rounds import reader as round_reading

    round_reading.VERIFIED = checksums.VERIFIED


def recorded(layout: Layout, count: int) -> RoundRecord:
    """A round of random clients."""
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((count, layout.size), dtype=np.float32)
    one, numbers = Weights(layout, rows[0], {}), np.arange(count)
    return RoundRecord(1, one, Weights(layout, rows, {}), one, None, *[numbers] * 4, np.full(count, 1 / count))


def whole(round_: Round) -> None:
    """All clients as a matrix."""
    round_.clients()


def in_pieces(round_: Round) -> None:
    """All clients in blocks of columns, each read into the same room."""
    room = np.empty(4 * 2**20, np.float32)
    for piece in read_chunks(round_, len(room) // len(round_.client_ids)):
        piece.read(room)


def head(round_: Round) -> None:
    """Who took part."""
    _ = round_.client_ids


def measure(name: str, layout: Layout, folder: Path, repetitions: int) -> list[Line]:
    """The lines of one network."""
    record = recorded(layout, CLIENTS[name])
    paths = [folder / kind / "00001.h5" for kind in ("with", "without")]
    writing: list[list[float]] = [[], []]
    real = checksums.checksum
    for path in paths:
        path.parent.mkdir(parents=True)
    for _ in range(repetitions):
        writing[0].append(seconds(lambda: write_round(paths[0], record)))
        try:  # all but the sums themselves
            checksums.checksum = lambda *_: 0
            writing[1].append(seconds(lambda: write_round(paths[1], replace(record))))
        finally:
            checksums.checksum = real
    with h5py.File(paths[1], "r+") as file:
        del file["checksums"], file.attrs["checksums"]
    lines = [Line(f"{name}: writing, with / without the sums", f"{min(writing[0]) / min(writing[1]):.2f}")]
    for what, read in (("clients", whole), ("pieces", in_pieces), ("head", head)):
        count = READS.get((name, what), MANY)
        first: list[float] = []
        later: list[list[float]] = [[], []]

        def read_all(path: Path, read: Callable[[Round], None] = read, times: int = count) -> None:
            for _ in range(times):
                read(Round(path, layout, "r"))

        def read_anew(path: Path, read: Callable[[Round], None] = read, times: int = count) -> None:
            for _ in range(times):
                forget()
                read(Round(path, layout, "r"))

        for _ in range(repetitions):
            first.append(seconds(lambda: read_anew(paths[0])))
            read_all(paths[0])
            for path, times in zip(paths, later, strict=True):
                times.append(seconds(lambda path=path: read_all(path)))  # type: ignore[misc]
        base = min(later[1])
        ratios = min(first) / base, min(later[0]) / base
        lines += [
            Line(f"{name}: {what}, without checksums, ms", f"{1e3 * base / count:.2f}"),
            Line(f"{name}: {what}, first reading / without", f"{ratios[0]:.2f}", f"<= {FIRST:g}", ratios[0] <= FIRST),
            Line(f"{name}: {what}, later ones / without", f"{ratios[1]:.3f}", f"<= {LATER:g}", ratios[1] <= LATER),
        ]
    return lines


def main(repetitions: int) -> None:
    """Measure both networks."""
    mlp = Layout.of(build_module(model_settings("mlp"), (1, 8, 8), 10))
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, layout in (("ResNet-18", resnet18()), ("mlp", mlp)):
            lines += measure(name, layout, Path(folder) / name, repetitions)
    table("Checksums of rounds", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
