"""How much faster a plane's points come than from `loss_landscapes` 3.0.6, and whether both find the same losses.

Both evaluate the source papers' CNN (3 x 32 x 32, 0.8 million parameters) on the same 2,000 random samples and through
the same three models: `fedscope.landscape.plane` in 16 points, with the partial file that the command line keeps, and
`loss_landscapes.planar_interpolation` in 2 x 2, once with its stock metric `Loss` (all samples in one batch), once with
a metric that its user would write: the same in batches of 128. It has torch's default threads and images laid out as
data loaders do. Fedscope is measured before and after every repetition, and the ratio is with the mean of both; the
median of the repetitions counts. Where other programs run beside this one, the ratio of processor time says more.

Whether its values belong where it puts them is counted too: its cell [i, j] is, by its docstring's formula,
w_1 + (i/2) (w_2 - w_1) + (j/2) (w_3 - w_1), and every cell is compared with fedscope's loss of that model.

    pip install loss-landscapes==3.0.6
    python benchmarks/against_loss_landscapes.py [repetitions]
"""

from __future__ import annotations

import copy
import importlib.metadata
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import Line, cores, paper_cnn, random_clients, random_samples, spread, table

TARGETS = {"its stock Loss": 3.2, "a metric in batches of 128": 2.7}
# beyond what sums of 2,000 float32 losses in another order differ by
SAME = 1e-6
GRID, STEPS, BATCH = (4, 3), 2, 128


@dataclass(frozen=True)
class Cost:
    """Seconds a point by the clock, and of processor time on all cores together."""

    wall: float
    processor: float


def main(repetitions: int) -> None:
    """Measure and print."""
    try:
        import loss_landscapes
    except ImportError:
        print("loss_landscapes is not here to compare with: pip install loss-landscapes==3.0.6")
        return
    import torch

    torch.set_num_threads(cores())  # torch's default, whatever the environment says
    module, samples = paper_cnn(), random_samples()
    clients = random_clients(module, 3)
    ours = _fedscope(module, samples, clients)
    theirs = {
        what: _loss_landscapes(_modules(module, clients), metric)
        for what, metric in zip(TARGETS, _metrics(samples), strict=True)
    }
    _, own_losses = ours()  # torch chooses its kernels
    grids = {what: run()[1] for what, run in theirs.items()}

    own: list[Cost] = [ours()[0]]
    wall: dict[str, list[float]] = {what: [] for what in theirs}
    processor: dict[str, list[float]] = {what: [] for what in theirs}
    seconds: dict[str, list[float]] = {what: [] for what in theirs}
    for _ in range(repetitions):
        costs = {what: run()[0] for what, run in theirs.items()}
        own.append(ours()[0])
        for what, cost in costs.items():
            seconds[what].append(cost.wall)
            wall[what].append(2 * cost.wall / (own[-2].wall + own[-1].wall))
            processor[what].append(2 * cost.processor / (own[-2].processor + own[-1].processor))

    stock = _metrics(samples)[0]
    their_losses = [loss_landscapes.point(one, stock) for one in _modules(module, clients)]
    apart = max(abs(a / b - 1) for a, b in zip(own_losses, their_losses, strict=True))
    lines = [Line("fedscope, seconds a point", spread([cost.wall for cost in own], "{:.3f}"))]
    for what, target in TARGETS.items():
        lines += [
            Line(f"{what}: seconds a point", spread(seconds[what], "{:.3f}")),
            Line("  times fedscope's", spread(wall[what]), f">= {target}", statistics.median(wall[what]) >= target),
            Line("  the same, of processor time", spread(processor[what])),
        ]
    right = [_cells_in_place(module, samples, clients, grid) for grid in grids.values()]
    lines += [
        Line("losses of the three models, relative difference", f"{apart:.1e}", f"<= {SAME:g}", apart <= SAME),
        Line("its cells that hold the loss of the place it documents", f"{min(right)} of {STEPS**2}"),
    ]
    version = importlib.metadata.version("loss-landscapes")
    table(f"Planes: fedscope against loss_landscapes {version}, {len(samples):,} samples, {repetitions} times", lines)


def _fedscope(module: Any, samples: Any, clients: Any) -> Callable[[], tuple[Cost, list[float]]]:
    from fedscope.checkpoints import Model
    from fedscope.landscape import plane

    anchors = [Model(f"client {i}", f"noise/{i}", clients.row(i), None, None, None, None, None) for i in range(3)]

    def run() -> tuple[Cost, list[float]]:
        """What a point costs, and the anchors' losses."""
        times: list[tuple[int, float, float]] = []
        with tempfile.TemporaryDirectory() as folder:
            surface = plane(
                module,
                samples,
                anchors,
                grid=GRID,
                partial=Path(folder, "plane.nc.partial"),
                progress=lambda done, _: times.append((done, time.perf_counter(), time.process_time())),
            )
        (_, began, used), (points, ended, used_last) = times[0], times[-1]
        return Cost((ended - began) / points, (used_last - used) / points), [m.loss for m in surface.anchors]

    return run


def _loss_landscapes(models: list[Any], metric: Any) -> Callable[[], tuple[Cost, Any]]:
    from loss_landscapes import planar_interpolation

    def run() -> tuple[Cost, Any]:
        """What a point costs, and the grid of losses [STEPS, STEPS]."""
        began, used = time.perf_counter(), time.process_time()
        grid = planar_interpolation(*models, metric, steps=STEPS, deepcopy_model=True)
        return Cost((time.perf_counter() - began) / grid.size, (time.process_time() - used) / grid.size), grid

    return run


def _modules(module: Any, clients: Any) -> list[Any]:
    import torch

    models = []
    for i in range(3):
        one = copy.deepcopy(module).eval()
        one.load_state_dict({name: torch.from_numpy(values) for name, values in clients.row(i).arrays().items()})
        models.append(one)
    return models


def _metrics(samples: Any) -> tuple[Any, Any]:
    """The stock metric, and the same in batches."""
    import torch
    from loss_landscapes.metrics import Loss, Metric

    x, y = samples.x.contiguous(), samples.y

    class BatchedLoss(Metric):  # type: ignore[misc]
        def __call__(self, model: Any) -> float:
            with torch.no_grad():
                parts = zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True)
                total = sum(loss(model.forward(a), b).item() * len(b) for a, b in parts)
            return float(total) / len(y)

    loss = torch.nn.CrossEntropyLoss()
    return Loss(loss, x, y), BatchedLoss()


def _cells_in_place(module: Any, samples: Any, clients: Any, grid: Any) -> int:
    from fedscope.checkpoints import Weights
    from fedscope.evaluation.evaluator import Evaluator

    w1, w2, w3 = clients.parameters.astype("float64")
    places = [(w1 + i / STEPS * (w2 - w1) + j / STEPS * (w3 - w1)) for i in range(STEPS) for j in range(STEPS)]
    models = [Weights(clients.layout, w.astype("float32"), {}) for w in places]
    losses, _ = Evaluator(module, samples).models(models)
    return int((abs(grid.ravel() / losses - 1) <= SAME).sum())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
