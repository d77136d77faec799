"""What a GPU makes of training, planes and t-SNE; without one it says so and ends.

Training: a round of the source papers' CNN (3 x 32 x 32): 10 clients x 500 samples x 5 epochs in batches of 50, all
clients recorded, the model evaluated on 10,000 samples every ten rounds; a round is the time from one record to the
next. Beside it, in turn, plain PyTorch on the same device: a client after the other, a step after the other, torch's
own SGD, float32 without TF32 as ours, nothing recorded and nothing evaluated. 400 rounds are counted from the rounds
that were measured. Ours with the engine that `auto` takes, and with `cohort`: what is faster there says what `auto`
should take.

Planes: 51 x 51 points of that CNN on 10,000 samples, in float32 and in TF32. t-SNE: 20,000 parameters over 20 clients
by torchdr, where it is installed.

    python benchmarks/gpu.py [--device cuda] [--data FILE.npz] [--quick]

FILE.npz holds `x_train`, `y_train`, `x_test` and `y_test` of CIFAR-10's shape; without it samples are noise, which
takes as long. `--quick` tries all of it in small, on a processor too; its figures say nothing.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import CLASSES, IMAGE, Line, durable, paper_cnn, random_clients, random_samples, spread, table

BATCH, RATE, ROUNDS = 50, 0.01, 400


@dataclass(frozen=True)
class Size:
    """Of what is measured."""

    clients: int = 10
    own: int = 500
    epochs: int = 5
    rounds: int = 20
    every: int = 10
    test: int = 10_000
    grid: int = 51
    parameters: int = 20_000


QUICK = Size(clients=2, own=100, epochs=1, rounds=3, every=2, test=200, grid=3, parameters=200)


def noise(path: Path, size: Size) -> Path:
    """Samples of noise, as a file."""
    import numpy as np

    draw, count = np.random.default_rng(0), size.clients * size.own
    np.savez(
        path,
        x_train=draw.integers(0, 256, (count, *IMAGE), dtype=np.uint8),
        y_train=np.arange(count) % CLASSES,
        x_test=draw.integers(0, 256, (size.test, *IMAGE), dtype=np.uint8),
        y_test=np.arange(size.test) % CLASSES,
    )
    return path


def load_labels(data: Path) -> Any:
    """The labels of the training samples."""
    import numpy as np

    with np.load(data) as arrays:
        return arrays["y_train"]


def ours(folder: Path, data: Path, device: str, precision: str, engine: str, size: Size) -> list[float]:
    """Seconds of each round but the first, which loads kernels, recorded and evaluated."""
    from fedscope.training import Config, train

    held = len(load_labels(data))
    clients = held // size.own
    config = Config.read(
        {
            "data": {"name": f"npz:{data}", "clients": clients, "partition": "iid"},
            "model": {"name": "cnn"},
            "client": {"epochs": size.epochs, "batch": BATCH, "lr": RATE, "momentum": 0.9},
            "run": {
                "rounds": size.rounds,
                "participation": size.clients / clients,
                "evaluate_every": size.every,
                "evaluate_clients": 0,
                "device": device,
                "precision": precision,
                "engine": engine,
            },
        }
    )
    train(config, folder)
    return [b - a for a, b in itertools.pairwise(durable(folder))]


def plain(device: str, size: Size) -> float:
    """Seconds of such a round in plain PyTorch: a client after the other, training alone."""
    import torch

    from fedscope.evaluation.device import Compute

    def finish() -> None:
        if device != "cpu":
            torch.cuda.synchronize(device)

    x = torch.randn(size.own, *IMAGE, device=device)
    y = torch.randint(0, CLASSES, (size.own,), device=device)
    module = paper_cnn().to(device)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    finish()
    began = time.perf_counter()
    with Compute(device).products():  # float32 without TF32, as ours
        for _ in range(size.clients):
            module.load_state_dict(start)
            optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
            for _ in range(size.epochs):
                for rows in torch.randperm(size.own, device=device).split(BATCH):
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
                    optimiser.step()
    finish()
    return time.perf_counter() - began


def training(folder: Path, data: Path, device: str, size: Size) -> list[Line]:
    """Rounds against the plain loop."""
    plain(device, size)  # loads kernels
    loop = [plain(device, size) for _ in range(3)]
    lines = [Line("training: a round of the plain loop, trains only, seconds", spread(loop, "{:.3f}"))]
    for precision, engine in itertools.product(("float32", "bf16"), ("auto", "cohort")):
        rounds = ours(folder / f"{precision}-{engine}", data, device, precision, engine, size)
        ratio, whole = statistics.median(loop) / statistics.median(rounds), ROUNDS * statistics.fmean(rounds)
        wanted = (precision, engine) == ("float32", "auto")
        lines += [
            Line(
                f"training: a round in {precision}, engine {engine}, recorded and evaluated, seconds",
                spread(rounds, "{:.3f}"),
            ),
            Line("  as fast as the plain loop", f"{ratio:.2f} times", ">= 5" if wanted else "", wanted and ratio >= 5),
            Line(f"  {ROUNDS} rounds, minutes", f"{whole / 60:.1f}", "<= 3" if wanted else "", wanted and whole <= 180),
        ]
    return [line if line.target else Line(line.what, line.measured) for line in lines]


def planes(device: str, size: Size) -> list[Line]:
    """A plane in both arithmetics."""
    from fedscope.checkpoints import Model
    from fedscope.evaluation.device import Compute
    from fedscope.landscape import plane

    module, samples = paper_cnn(), random_samples(size.test)
    clients = random_clients(module, 3)
    anchors = [Model(f"client {i}", f"noise/{i}", clients.row(i)) for i in range(3)]
    lines = []
    for precision, wanted in (("float32", 25.0), ("tf32", 4.0)):
        compute = Compute(device, precision)
        plane(module, samples, anchors, grid=(2, 2), compute=compute)  # loads kernels
        began = time.perf_counter()
        plane(module, samples, anchors, grid=(size.grid, size.grid), compute=compute)
        spent = time.perf_counter() - began
        what = f"plane: {size.grid} x {size.grid} points, {size.test:,} samples, {precision}, seconds"
        lines.append(Line(what, f"{spent:.2f}", f"<= {wanted:g}", spent <= wanted))
    return lines


def tsne(device: str, size: Size) -> Line:
    """A map of parameters."""
    what = f"t-SNE: {size.parameters:,} parameters, seconds"
    try:
        import torchdr  # noqa: F401
    except ImportError:
        return Line(what, "torchdr is not installed", "<= 60")
    import numpy as np

    from fedscope.decomposition.parameters.tsne import fit_map

    draw = np.random.default_rng(0)
    points = draw.normal(size=(size.parameters, 20)).astype(np.float32)
    began = time.perf_counter()
    try:
        fit_map(points, perplexity=min(30.0, size.parameters / 4), backend="torchdr", device=device)
    except RuntimeError as error:  # out of memory, most likely
        return Line(what, str(error).splitlines()[0][:60], "<= 60", False)
    spent = time.perf_counter() - began
    return Line(what, f"{spent:.1f}", "<= 60", spent <= 60)


def main(device: str, data: Path | None, quick: bool) -> None:
    """Measure and print."""
    import torch

    from fedscope.training import bench

    if device != "cpu" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no CUDA device: nothing is measured")
        return
    if device == "cpu" and not quick:
        sys.exit("on a processor give --quick: the sizes are a GPU's")
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(bench("mlp" if quick else "cnn", device, folder=folder, seconds=0.05 if quick else 3.0).summary())
        where = device if device == "cpu" else torch.cuda.get_device_name(device)
        table(f"Training on {where}", training(folder, data or noise(folder / "noise.npz", size), device, size))
    table(f"Planes on {where}", planes(device, size))  # each at once: what comes later may fail, or run out of time
    table(f"t-SNE on {where}", [tsne(device, size)])


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda")
    words.add_argument("--data", type=Path)
    words.add_argument("--quick", action="store_true")
    given = words.parse_args()
    main(given.device, given.data, given.quick)
