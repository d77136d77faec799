"""A plane with `--adaptive` against `loss_landscapes` 3.0.6 on as many points, and how far off it is.

The source papers' CNN (3 x 32 x 32) after three federated rounds (10 clients x 500 samples x 5 epochs); the plane goes
through three clients of the last round, 49 x 49 points, measured on 2,000 test images. `loss_landscapes` is timed on
2 x 2 points of the same models and images with its stock metric, before and after, and counted for all points: it has
no other way. Ours is timed as a whole, models and all.

How far off: the losses of all points that lie in the lowest tenth of the surface, and of every fourth point along each
axis, are measured without interpolation afterwards, untimed. The difference counts over the range of these losses, and
in the lowest tenth over the loss itself.

    pip install loss-landscapes==3.0.6
    python benchmarks/adaptive_plane.py FILE.npz

FILE.npz holds `x_train`, `y_train`, `x_test` and `y_test` of CIFAR-10's shape. Without a file, images of noise with
blotches by class stand in, whose surface is smoother than that of real ones.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import CLASSES, IMAGE, SAMPLES, Line, spread, table

GRID, EVERY, STEPS = 49, 4, 2
TARGET, RANGE, ITSELF = 50.0, 0.01, 0.02


def main(data: Path | None) -> None:
    """Measure and print."""
    import numpy as np

    from fedscope.checkpoints import Model
    from fedscope.decomposition.draws.replay import module_of
    from fedscope.landscape import plane
    from fedscope.training import Config, load_data, train

    with tempfile.TemporaryDirectory() as name:
        data = data or blotches(Path(name, "blotches.npz"))
        config = Config.read(
            {
                "data": {
                    "name": f"npz:{data}",
                    "clients": 100 if len(load_data(f"npz:{data}").y_train) > 20_000 else 10,
                },
                "model": {"name": "cnn"},
                "client": {"batch": 50, "lr": 0.01},
                "run": {"rounds": 3, "evaluate_every": 3, "evaluate_clients": 0},
            }
        )
        run = train(config, Path(name, "run"))
        module, clients = module_of(run), run.round(3).clients()
        samples = load_data(config.data.name).samples("test").limit(SAMPLES)
        anchors = [Model(f"client {i}", f"run@3/{i}", clients.row(i)) for i in range(3)]
        theirs = [point_of_loss_landscapes(module, samples, clients)]
        began = time.perf_counter()
        found = plane(module, samples, anchors, grid=GRID, adaptive=0.15)
        ours = time.perf_counter() - began
        theirs.append(point_of_loss_landscapes(module, samples, clients))
        low = found.loss <= np.quantile(found.loss, 0.1)
        asked = low.copy()
        asked[::EVERY, ::EVERY] = True
        true = measured(module, samples, found, anchors, asked)
    off = np.abs(found.loss[asked] - true)
    over_range = float(off.max() / np.ptp(true))
    over_itself = float((off / true)[low[asked]].max())
    ratios = [one * found.loss.size / ours for one in theirs if one]
    ratio = statistics.median(ratios) if ratios else None
    about = found.attrs
    table(
        f"A plane of {GRID} x {GRID} points on {len(samples):,} images of {data.name}",
        [
            Line("ours with --adaptive, seconds", f"{ours:.1f}"),
            Line(
                "  points on all samples, on a tenth", f"{about['points_computed']}, {about.get('points_of_part', 0)}"
            ),
            Line("  levels", str(about.get("levels", 1))),
            Line("loss_landscapes, seconds a point", spread([one for one in theirs if one]) if ratios else "not here"),
            Line(
                "  its time for all points over ours",
                f"{ratio:.0f} times" if ratio else "-",
                f">= {TARGET:g}",
                ratio >= TARGET if ratio else None,
            ),
            Line("greatest error over the range", f"{over_range:.2%}", f"<= {RANGE:.0%}", over_range <= RANGE),
            Line("  said by the plane itself", f"{about['held_out_loss_error']:.2%}"),
            Line("lowest tenth: over the loss itself", f"{over_itself:.2%}", f"<= {ITSELF:.0%}", over_itself <= ITSELF),
            Line("  said by the plane itself", f"{about['held_out_loss_low']:.2%}"),
        ],
    )


def point_of_loss_landscapes(module: Any, samples: Any, clients: Any) -> float | None:
    """Seconds of one of its points with its stock metric; None where it is not installed."""
    try:
        from loss_landscapes import planar_interpolation
        from loss_landscapes.metrics import Loss
    except ImportError:
        return None
    import copy

    import torch

    models = []
    for i in range(3):
        one = copy.deepcopy(module).eval()
        one.load_state_dict({name: torch.from_numpy(values) for name, values in clients.row(i).arrays().items()})
        models.append(one)
    metric = Loss(torch.nn.CrossEntropyLoss(), samples.x[:].contiguous(), samples.y)
    began = time.perf_counter()
    planar_interpolation(*models, metric, steps=STEPS, deepcopy_model=True)
    return (time.perf_counter() - began) / STEPS**2


def measured(module: Any, samples: Any, found: Any, anchors: list[Any], asked: Any) -> Any:
    """The losses of the points that are asked for, each formed and measured."""
    import numpy as np

    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.evaluation.model_replica import Replica
    from fedscope.landscape import through_models

    span = through_models(anchors)
    at = np.argwhere(asked)

    def form(i: int, replica: Replica) -> None:
        b, a = at[i]
        replica.combine(span.bases, span.coefficients(float(found.a[a]), float(found.b[b])))

    losses = np.empty(len(at))
    for i, loss, _ in Evaluator(module, samples).evaluate(len(at), form):
        losses[i] = loss[0]
    return losses


def blotches(path: Path) -> Path:
    """Images of noise about a pattern by class."""
    import numpy as np

    draw = np.random.default_rng(0)
    patterns = draw.normal(128, 40, (CLASSES, IMAGE[0], 4, 4)).repeat(8, axis=2).repeat(8, axis=3)

    def images(count: int) -> tuple[Any, Any]:
        y = np.arange(count) % CLASSES
        return np.clip(patterns[y] + draw.normal(0, 60, (count, *IMAGE)), 0, 255).astype(np.uint8), y

    (x_train, y_train), (x_test, y_test) = images(5_000), images(SAMPLES)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
