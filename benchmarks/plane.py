"""How close a plane's grid points come to the machine's float32 matrix-product rate.

`fedscope.landscape.plane` itself runs on the source papers' CNN (3 x 32 x 32, 0.8 million parameters) with 2,000 random
samples: 64 points and 4 models, with the partial file that the command line keeps. A point's GFLOP are the
multiply-adds x 2 of the convolutions and linear layers; bias, ReLU, pooling, the loss and forming the model cost time
but count for nothing. It runs as it is, with the first layer combined from outputs computed once (counted as if it had
been computed, and what computing them once costs is in the time), and with every layer computed at every point. The
matrix-product rate is measured before and after every repetition, and the ratio is with the mean of both, so that what
else the machine does meets both alike; the median of the repetitions counts. Where other programs run beside this one,
the ratios of processor time instead of the clock's say how much of the loss is theirs.

    python benchmarks/plane.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import (
    Line,
    Rate,
    cores,
    forward_gflop,
    paper_cnn,
    product_rate,
    random_clients,
    random_samples,
    spread,
    table,
)

TARGETS = {"first layer combined": 1.0, "every layer computed": 0.88}
GRID = (8, 8)


def main(repetitions: int) -> None:
    """Measure and print."""
    from fedscope.checkpoints import Model
    from fedscope.landscape import plane
    from fedscope.landscape.planes.surface import evaluate as surveying

    module, samples = paper_cnn(), random_samples()
    clients = random_clients(module, 3)
    anchors = [Model(f"client {i}", f"noise/{i}", clients.row(i)) for i in range(3)]
    work = forward_gflop(module, samples.x)
    ways = dict(zip(TARGETS, (surveying.replaceable_layer, lambda *_: None), strict=True))

    def measure(way: str) -> tuple[Rate, float, float]:
        """The rate of the points, seconds a point, and seconds before the first one."""
        surveying.replaceable_layer = ways[way]
        times: list[tuple[int, float, float]] = []
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            plane(
                module,
                samples,
                anchors,
                grid=GRID,
                partial=Path(folder, "plane.nc.partial"),
                progress=lambda done, _: times.append((done, time.perf_counter(), time.process_time())),
            )
        (_, first, used), (points, last, used_last) = times[0], times[-1]
        rate = Rate(points * work / (last - first), points * work / (used_last - used) * cores())
        return rate, (last - first) / points, first - began

    measure("every layer computed")  # torch chooses its kernels
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    own: dict[str, list[float]] = {way: [] for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    products, setup = [], []
    before = product_rate()
    for _ in range(repetitions):
        for way in ways:
            points, each, ready = measure(way)
            after = product_rate()
            products.append((before.wall + after.wall) / 2)
            ratios[way].append(points.wall / products[-1])
            own[way].append(points.processor / ((before.processor + after.processor) / 2))
            seconds[way].append(each)
            setup.append(ready)
            before = after
    lines = [
        Line("float32 matrix products, GFLOP/s", spread(products, "{:.0f}")),
        Line("a point, GFLOP", f"{work:.1f}"),
        Line("before the first point, seconds", spread(setup, "{:.2f}")),
    ]
    for way, target in TARGETS.items():
        holds = statistics.median(ratios[way]) >= target
        lines += [
            Line(f"{way}: a point, seconds", spread(seconds[way], "{:.3f}")),
            Line("  points / matrix products", spread(ratios[way], "{:.0%}"), f">= {target:.0%}", holds),
            Line("  the same, of processor time", spread(own[way], "{:.0%}")),
        ]
    faster = [b / a for a, b in zip(*seconds.values(), strict=True)]
    lines.append(Line("combined / computed, points a second", spread(faster)))
    count = GRID[0] * GRID[1] + 4
    table(f"Plane: points of the papers' CNN on {len(samples):,} samples, {repetitions} times {count}", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
