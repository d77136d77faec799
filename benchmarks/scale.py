"""The plan of docs/scale.md: what a round of 10,000 clients x 100 M parameters costs, from measured and assumed rates,
checked by rounds of 1,000 clients whose training is a copy.

Measured here, each alone and on matrices of the disk as rounds have them: copying a model in memory, writing a file,
putting clients aside, FMA's sum over them, a round's file with its checksums, sketches, and what a client costs
whatever its size (a round of 1,000 clients of 770 parameters). Then rounds of 1,000 clients of 0.2 M parameters are
trained for real by `fedscope.training.train`, where training returns a copy of what was sent, and their median time is
compared with what the same formula says of them.

Assumed of a cluster: see `Cluster`. The plan of the large round is printed with this
machine's disk and with the cluster's; of both every byte passes the disk, because no cache holds 4 TB.

    python benchmarks/scale.py [repetitions]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _common import Line, in_fresh_process, table

CLIENTS, PARAMETERS = 10_000, 100_000_000
COPIES, HIDDEN, TINY = 1_000, [430, 430], [10]
#: of the matrices that rates are measured on: as many rows of a cohort, of 40 MB each
ROWS, WIDTH = 25, 10_000_000
NUMBERS = 4096  # of a sketch
RATIO = 1.5


@dataclass(frozen=True)
class Rates:
    """GB a second, and seconds.

    Attributes:
        copy: copying a model in memory.
        disk: writing a plain file, with fsync.
        aside: writing a model beside the run, into the system's cache.
        sum: FMA's sum, with reading from the cache.
        hdf5: a round's file, with reading and checksums, without fsync; record: with it.
        sketch: sketches of updates, by one core.
        client: seconds a client costs in the driver, whatever its size.
    """

    copy: float
    disk: float
    aside: float
    sum: float
    hdf5: float
    record: float
    sketch: float
    client: float

    def beyond_cache(self, disk: float) -> Rates:
        """The rates where a round is too large for the system's cache: what is read or written passes the disk, too."""
        return replace(
            self,
            aside=min(self.aside, disk),
            sum=1 / (1 / self.sum + 1 / disk),
            record=1 / (1 / self.hdf5 + 2 / disk),
        )


@dataclass(frozen=True)
class Cluster:
    """What is assumed, not measured.

    Attributes:
        network: GB a second into the driver: 25 Gbit/s.
        disk: GB a second of its NVMe disk, both ways together.
        workers, seconds: 64 GPUs, and how long each trains a client.
        nodes: of eight GPUs, to which a model is sent once a round.
    """

    network: float = 25 / 8
    disk: float = 2.0
    workers: int = 64
    seconds: float = 10.0
    nodes: int = 8


def stages(clients: int, parameters: int, rates: Rates) -> dict[str, float]:
    """Seconds of what the driver does in a round whose training is a copy: one after the other."""
    size = clients * parameters * 4 / 1e9
    return {
        "clients, whatever their size": clients * rates.client,
        "training: a copy": size / rates.copy,
        "putting aside": size / rates.aside,
        "sum": size / rates.sum,
        "round's file": size / rates.record,
    }


# --- rates ---


def best(work: Callable[[], object], repetitions: int) -> float:
    """Seconds, the median."""
    spent = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def measured(folder: str, repetitions: int) -> dict[str, float]:
    """The rates of :class:`Rates` but the client's, in GB a second."""
    import numpy as np

    from fedscope.checkpoints import Layout, RoundRecord, TemporaryMatrix, TensorEntry, Weights, as_array, write_round
    from fedscope.checkpoints.rounds.sketches import sketch
    from fedscope.training.loop.server import step_server
    from fedscope.training.methods.base import Cohort
    from fedscope.training.methods.servers.fma import FMA

    layout = Layout((TensorEntry("w", (WIDTH // 1000, 1000), "float32", "parameter"),))
    start, size = Weights(layout, np.ones(WIDTH, np.float32), {}), ROWS * WIDTH * 4 / 1e9
    ids, p = np.arange(ROWS), np.full(ROWS, 1 / ROWS)
    held: list[TemporaryMatrix] = []

    def aside() -> None:
        held[:] = [TemporaryMatrix(folder, (ROWS, WIDTH), np.dtype("float32"))]
        for k in range(ROWS):
            held[0][k] = start.parameters

    found = {"copy": best(lambda: [start.parameters.copy() for _ in range(ROWS)], repetitions)}
    found["aside"] = best(aside, repetitions)
    clients = Weights(layout, as_array(held[0]), {})
    cohort = Cohort(1, ids, ids + 1, ids + 1, p)
    found["sum"] = best(lambda: step_server(FMA(), {}, start, clients, cohort), repetitions)
    record = RoundRecord(1, start, clients, start, None, ids, ids, ids, p, p)
    found["record"] = best(lambda: write_round(Path(folder, "1.h5"), record), repetitions)
    fsync, os.fsync = os.fsync, lambda descriptor: None
    found["hdf5"] = best(lambda: write_round(Path(folder, "1.h5"), record), repetitions)
    os.fsync = fsync

    def plain() -> None:
        with Path(folder, "plain").open("wb", buffering=0) as file:
            for _ in range(ROWS):
                file.write(start.parameters.data)
            os.fsync(file.fileno())

    found["disk"] = best(plain, repetitions)
    few = Weights(layout, np.stack([start.parameters] * 2), {}).parameters
    found["sketch"] = best(lambda: sketch(layout, start.parameters, few, NUMBERS), repetitions) * ROWS / 2
    return {name: size / seconds for name, seconds in found.items()}


# --- rounds whose training is a copy ---


def copied(hidden: list[int], rounds: int, folder: str) -> tuple[float, int]:
    """Seconds of a round of 1,000 clients whose training is a copy, the median, and how many parameters they have."""
    from fedscope.checkpoints import Weights
    from fedscope.training import Config, train
    from fedscope.training.local.local_training import LocalUpdate
    from fedscope.training.local.profile import ROUND, Profile
    from fedscope.training.methods.clients.sgd import SGD

    def copy(self: SGD, task: Any) -> LocalUpdate:
        weights = Weights(task.start.layout, task.start.parameters.copy(), {})
        return LocalUpdate(task.client, weights, samples=1, steps=1, loss=1.0, reach=task.pace.lr)

    SGD.train = copy  # type: ignore[method-assign]
    config = Config.read(
        {
            "data": {"clients": COPIES, "partition": "iid"},
            "model": {"hidden": hidden},
            "run": {
                **{"rounds": rounds + 1, "participation": 1.0, "engine": "threads"},
                **{"evaluate_clients": 0, "evaluate_every": 1000},
            },
        }
    )
    profile = Profile()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        run = train(config, Path(own, "run"), profile=profile)
        size = run.layout.size
    spent = [span.seconds for span in profile.spans if span.part == ROUND and 1 < span.round <= rounds + 1]
    return statistics.median(spent), size


def plan(rates: Rates, cluster: Cluster) -> list[Line]:
    """The large round, stage by stage: bytes, then seconds with this machine's rates and with the cluster's."""
    size = CLIENTS * PARAMETERS * 4 / 1e9
    sent = cluster.nodes * PARAMETERS * 4 / 1e9
    lines = [
        Line("models sent to the nodes, GB; seconds", f"{sent:.1f}; {sent / cluster.network:.0f}"),
        Line("training, assumed, seconds", f"{CLIENTS * cluster.seconds / cluster.workers:,.0f}"),
        Line("models sent back, GB; seconds", f"{size:,.0f}; {size / cluster.network:,.0f}"),
    ]
    here, there = (stages(CLIENTS, PARAMETERS, rates.beyond_cache(disk)) for disk in (rates.disk, cluster.disk))
    for name in here:
        if "copy" not in name:
            lines.append(Line(f"driver, {name}: seconds here; there", f"{here[name]:,.0f}; {there[name]:,.0f}"))
    lines.append(Line("driver, sketches by one core: seconds", f"{size / rates.sketch:,.0f}"))
    return lines


def main(repetitions: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        found = in_fresh_process(measured, folder, repetitions)
        tiny, few = in_fresh_process(copied, TINY, repetitions, folder)
        rates = Rates(client=0.0, **found)
        rates = replace(rates, client=(tiny - sum(stages(COPIES, few, rates).values())) / COPIES)
        spent, size = in_fresh_process(copied, HIDDEN, repetitions, folder)
    names = {
        "copy": "copying a model",
        "disk": "a plain file, with fsync",
        "aside": "putting aside",
        "sum": "FMA's sum",
        "hdf5": "a round's file, without fsync",
        "record": "a round's file, with fsync",
    }
    lines = [Line(f"{names.get(name, name)}, GB/s", f"{rate:.2f}") for name, rate in found.items()]
    lines.append(Line("a client, whatever its size: ms", f"{1000 * rates.client:.2f}"))
    said = stages(COPIES, size, rates)
    lines += [Line(f"  said of {COPIES:,} x {size:,}: {name}, s", f"{value:.2f}") for name, value in said.items()]
    ratio = spent / sum(said.values())
    lines += [
        Line("  said, seconds a round", f"{sum(said.values()):.2f}"),
        Line("  measured, seconds a round", f"{spent:.2f}"),
        Line("  measured over said", f"{ratio:.2f}", f"{1 / RATIO:.2f} to {RATIO}", 1 / RATIO <= ratio <= RATIO),
    ]
    table(f"Rates, and rounds of {COPIES:,} clients whose training is a copy", lines)
    table(f"The plan of one round of {CLIENTS:,} clients x {PARAMETERS / 1e6:.0f} M parameters", plan(rates, Cluster()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
