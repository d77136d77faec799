"""What a map of large models costs: its distances beside reading the same files, and t-SNE beside its target.

Rounds of 20 clients of 11.2 million parameters, laid out as ResNet-18 is (0.9 GB of clients a round), are written with
random numbers. `fedscope.decomposition.embedding.gram.gram` multiplies all of them with each other in float64, straight
from disk; beside it `read_columns` reads the same clients and does nothing else, in the same run, one after the other.
The files have just been written, so both find them in the system's memory where it is large enough. GB are those of the
clients. Memory is measured in a process of its own, with one round and with several: it must not grow with them.

t-SNE is of 400 models in 20 clusters.

    python benchmarks/embedding.py [repetitions] [rounds]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from _common import (
    Line,
    cold_lines,
    in_fresh_process,
    memory_from_now,
    peak_memory,
    resnet18,
    spread,
    table,
    write_clients,
)

CLIENTS, MODELS = 20, 400
RATE, SECONDS, GROWTH = 1.5, 20.0, 1.1


def write_run(folder: Path, rounds: int) -> Path:
    """A run of one written round; the others are links to it, because only reading is measured."""
    path = folder / "resnet"
    first = path / "rounds" / "00001.h5"
    write_clients(first, CLIENTS)
    info = {"format": "fedscope-run", "version": 1, "layout": resnet18().to_json()}
    (path / "run.json").write_text(json.dumps(info), encoding="utf-8")
    for t in range(2, rounds + 1):
        os.link(first, path / "rounds" / f"{t:05d}.h5")
    return path


def believe_links() -> None:
    """A round says its number, and is refused under another one: here that is meant."""
    from fedscope.checkpoints.rounds import metadata as round_head

    round_head._refuse_another_round = lambda file, number: None


def rates(path: Path, rounds: int) -> tuple[float, float]:
    """GB/s of reading alone, and of the Gram matrix."""
    from fedscope.checkpoints import Run, read_columns
    from fedscope.decomposition.embedding.gram import gram

    believe_links()
    run = Run.open(path)
    asked = [(run, t) for t in range(1, rounds + 1)]
    size = rounds * CLIENTS * run.layout.size * 4 / 1e9
    began = time.perf_counter()
    for _, t in asked:
        for _ in read_columns(run.round(t)):
            pass
    read = time.perf_counter()
    gram(asked)
    return size / (read - began), size / (time.perf_counter() - read)


def cold_of(path: Path, repetitions: int) -> list[Line]:
    """A round that is not in the system's cache."""
    from fedscope.checkpoints import Run
    from fedscope.decomposition.embedding.gram import gram

    run = Run.open(path)
    size = CLIENTS * run.layout.size * 4
    return cold_lines(run.round(1).path, lambda: gram([(run, 1)]), size, RATE, repetitions)


def memory(path: Path, rounds: int) -> float:
    """MB that the Gram matrix takes beside what is there before."""
    from fedscope.checkpoints import Run
    from fedscope.decomposition.embedding.gram import gram

    believe_links()
    run = Run.open(path)
    gram([(run, 1)], layers=["conv1.weight"])  # so that what is imported is there
    before = memory_from_now()
    gram([(run, t) for t in range(1, rounds + 1)])
    return (peak_memory() - before) / 1e6


def tsne_seconds() -> float:
    """Seconds of a map of 400 models, once their Gram matrix is there."""
    import numpy as np

    from fedscope.decomposition.embedding.gram import Gram
    from fedscope.decomposition.embedding.pca_and_tsne import project
    from fedscope.decomposition.embedding.shown_models import Point

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(MODELS, 1000)) + 2 * draw.normal(size=(MODELS // 20, 1000)).repeat(20, axis=0)
    points = tuple(Point("noise", 1 + k // 20, f"client-{k % 20}") for k in range(MODELS))
    made = Gram(points, rows @ rows.T, ("all",))
    began = time.perf_counter()
    project(made, "tsne")
    return time.perf_counter() - began


def main(repetitions: int, rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder), rounds)
        one = [rates(path, 1) for _ in range(repetitions)]
        several = [rates(path, rounds) for _ in range(repetitions)]
        cold = cold_of(path, repetitions)
        taken = [in_fresh_process(memory, path, number) for number in (1, rounds)]
    seconds = [tsne_seconds() for _ in range(repetitions)]
    best, growth = max(rate for _, rate in one), taken[1] / taken[0]
    table(
        f"Distances of {CLIENTS} clients of 11.2 million parameters, and t-SNE of {MODELS} models",
        [
            Line("1 round: GB/s of reading alone", spread([read for read, _ in one])),
            Line("1 round: GB/s of the Gram matrix", spread([rate for _, rate in one]), f">= {RATE:g}", best >= RATE),
            Line("1 round: Gram matrix / reading alone", spread([rate / read for read, rate in one])),
            *cold,
            Line(f"{rounds} rounds: GB/s of the Gram matrix", spread([rate for _, rate in several])),
            Line(f"{rounds} rounds: Gram matrix / reading alone", spread([rate / read for read, rate in several])),
            Line("1 round: memory, MB", f"{taken[0]:.0f}"),
            Line(f"{rounds} rounds: memory, of that", f"{growth:.2f}", f"<= {GROWTH:g}", growth <= GROWTH),
            Line("seconds of t-SNE", spread(seconds), f"<= {SECONDS:g}", max(seconds) <= SECONDS),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, int(sys.argv[2]) if len(sys.argv) > 2 else 8)
