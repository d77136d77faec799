"""What splitting 50,000 samples over 1,000 clients takes, beside the least that any split does: one stable argsort of
the labels and one cut into 1,000 parts (numpy alone), in turn in the same run. The ratio is of processor time, as other
programs do not change that. Where flwr-datasets is installed its partitioners are measured, too, through fedscope's
adapter.

python benchmarks/partitions.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
from _common import Line, spread, table

SAMPLES, CLIENTS, CLASSES, FINE = 50_000, 1_000, 10, 100
SECONDS = 1.0

#: of ten classes, and of a hundred in twenty superclasses as CIFAR-100 has
OURS = {
    CLASSES: (
        "iid",
        "shards:2",
        "shards:2,20",
        "pathological:2",
        "dirichlet:0.001",
        "dirichlet:0.1",
        "dirichlet:100",
        "dirichlet-clients:0",
        "dirichlet-clients:0.1",
        "natural",
        "domains:200,iid",
        "domains:200,shards:2",
        "domains:200,dirichlet:0.1",
    ),
    FINE: ("pathological:5", "dirichlet:0.1", "dirichlet-clients:0.1", "pachinko"),
}
THEIRS = (
    "flwr:IidPartitioner",
    "flwr:ShardPartitioner,num_shards_per_partition=2",
    "flwr:PathologicalPartitioner,num_classes_per_partition=2",
    "flwr:DirichletPartitioner,alpha=1,min_partition_size=0",
)


def clocked(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock on the wall, and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def bare(labels: np.ndarray) -> list[np.ndarray]:
    """The least that a split by label does."""
    return np.split(np.argsort(labels, kind="stable"), np.arange(1, CLIENTS) * (SAMPLES // CLIENTS))


def main(repetitions: int) -> None:
    """Measure and print."""
    from fedscope.training import partition

    draw = np.random.default_rng(0)
    lines, ratios = [], []
    for classes, texts in OURS.items():
        labels = draw.integers(0, classes, SAMPLES)
        groups = {
            "user": draw.permutation(SAMPLES) % CLIENTS,
            "domain": draw.integers(0, 5, SAMPLES),
            "superclass": labels // 5,
        }
        split = partial(partition, labels=labels, classes=classes, clients=CLIENTS, seed=0, groups=groups)
        alone = partial(bare, labels)
        if classes == CLASSES:
            least = [clocked(alone) for _ in range(9 + repetitions)]
            lines.append(Line("numpy: argsort and split, seconds", spread([wall for wall, _ in least], "{:.4f}")))
        theirs = THEIRS if classes == CLASSES and find_spec("flwr_datasets") else ()
        for text in [*texts, *theirs]:
            split(text)
            took = [(clocked(alone), clocked(partial(split, text))) for _ in range(repetitions)]
            seconds = [wall for _, (wall, _) in took]
            ratio = statistics.median(own / least for (_, least), (_, own) in took)
            ours = not text.startswith("flwr:")
            ratios += [ratio] * ours
            what = f"{text}, {classes} classes, seconds, times the bare work"
            holds = statistics.median(seconds) <= SECONDS if ours else None
            lines.append(Line(what, f"{spread(seconds, '{:.3f}')}, {ratio:.0f}", f"<= {SECONDS:g}" * ours, holds))
        if classes == CLASSES:
            own = [
                clocked(partial(split, "shards:2", client_test=0.25))[0] - clocked(partial(split, "shards:2"))[0]
                for _ in range(repetitions)
            ]
            lines.append(Line("client_test = 0.25 adds, seconds", spread(own, "{:.3f}")))
    table(f"Partitions: {SAMPLES:,} samples over {CLIENTS:,} clients, {repetitions} times", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
