"""How close a plane's grid points come to the machine's float32 matrix-product rate.

`fedscope.landscape.plane` itself runs on the source papers' CNN (3 x 32 x 32, 0.8 million parameters) with 2,000 random
samples: 24 points, with the partial file that the command line keeps. A point's GFLOP are the multiply-adds x 2 of the
convolutions and linear layers; bias, ReLU, pooling, the loss and forming the model cost time but count for nothing.
The matrix-product rate is measured before and after every repetition, and the ratio is with the mean of both, so that
what else the machine does meets both alike; the median of the repetitions counts. Where other programs run beside this
one, the second ratio, of processor time instead of the clock's, says how much of the loss is theirs.

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

TARGET = 0.85
GRID = (5, 4)


def main(repetitions: int) -> None:
    """Measure and print."""
    from fedscope.checkpoints import Model
    from fedscope.landscape import plane

    module, samples = paper_cnn(), random_samples()
    clients = random_clients(module, 3)
    anchors = [Model(f"client {i}", f"noise/{i}", clients.row(i), None, None, None, None, None) for i in range(3)]
    work = forward_gflop(module, samples.x)

    def measure() -> tuple[Rate, float, float]:
        """The rate of the points, seconds a point, and seconds before the first one."""
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

    measure()  # torch chooses its kernels
    ratios, own, seconds, products, setup = [], [], [], [], []
    before = product_rate()
    for _ in range(repetitions):
        points, each, ready = measure()
        after = product_rate()
        products.append((before.wall + after.wall) / 2)
        ratios.append(points.wall / products[-1])
        own.append(points.processor / ((before.processor + after.processor) / 2))
        seconds.append(each)
        setup.append(ready)
        before = after
    table(
        f"Plane: points of the papers' CNN on {len(samples):,} samples, {repetitions} times {GRID[0] * GRID[1] + 4}",
        [
            Line("float32 matrix products, GFLOP/s", spread(products, "{:.0f}")),
            Line("a point, GFLOP", f"{work:.1f}"),
            Line("a point, seconds", spread(seconds, "{:.3f}")),
            Line("before the first point, seconds", spread(setup, "{:.2f}")),
            Line(
                "points / matrix products",
                spread(ratios, "{:.0%}"),
                f">= {TARGET:.0%}",
                statistics.median(ratios) >= TARGET,
            ),
            Line("the same, of processor time", spread(own, "{:.0%}")),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
