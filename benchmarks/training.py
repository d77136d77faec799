"""How fast clients are trained: rounds of a large and of a small model against plain PyTorch, and what many clients
take.

The large model: a round of the source papers' CNN (3 x 32 x 32), 10 clients x 500 samples x 5 epochs in batches of 50,
all clients recorded and the models evaluated on 1,000 samples, against a plain loop that trains the same clients one
after the other with torch's own threads and does nothing else. In turn, on the same samples; and as a share of the
machine's matrix products, measured before and after. In bfloat16, too.

Small models: local training of the digits' perceptron alone, 20 clients of 72 samples x 5 epochs in batches of 20, with
each engine, and the plain loop with torch's own threads and with one. Models of other sizes show where one pass for
several clients stops to pay, which is where `run.engine = "auto"` turns.

Many clients: rounds of 1,000 clients of that perceptron, all recorded, in a process of its own: its peak memory after
few and after many rounds. `ls` of a run of 1,000 rounds.

    python benchmarks/training.py [repetitions]
"""

from __future__ import annotations

import copy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import (
    CLASSES,
    IMAGE,
    Line,
    durable,
    fedscope_command,
    forward_gflop,
    in_fresh_process,
    paper_cnn,
    peak_memory,
    product_rate,
    random_samples,
    spread,
    table,
)

CLIENTS, OWN, EPOCHS, BATCH, TESTED = 10, 500, 5, 50, 1000
SMALL_CLIENTS, SMALL_OWN, SMALL_BATCH = 20, 72, 20
#: inputs and hidden widths of perceptrons: the digits' first
WIDTHS = ((64, (128, 64)), (64, (16,)), (784, ()), (784, (50,)), (784, (200,)))
MANY, FEW_ROUNDS, MORE_ROUNDS, LISTED = 1000, 3, 12, 1000


def plain(module: Any, parts: Sequence[tuple[Any, Any]], batch: int, threads: int | None = None) -> float:
    """Seconds of training all clients one after the other, with torch's own threads or so many."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    began = time.perf_counter()
    for x, y in parts:
        own = copy.deepcopy(module)
        optimiser = torch.optim.SGD(own.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(x)).split(batch):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(own(x[rows]), y[rows]).backward()
                optimiser.step()
    spent = time.perf_counter() - began
    torch.set_num_threads(before)
    return spent


# --- the large model ---


def recorded_round(folder: Path, data: Path, precision: str) -> float:
    """Seconds of a round after the first, which loads things: trained, evaluated, recorded."""
    from fedscope.training import Config, train

    config = Config.read(
        {
            "data": {"name": f"npz:{data}", "clients": CLIENTS, "partition": "iid"},
            "model": {"name": "cnn"},
            "client": {"epochs": EPOCHS, "batch": BATCH, "lr": 0.01},
            "run": {"rounds": 2, "participation": 1.0, "precision": precision, "evaluate_clients": TESTED},
        }
    )
    train(config, folder)
    before, last = durable(folder)
    return last - before


def large(folder: Path, repetitions: int) -> list[Line]:
    """Rounds of the CNN."""
    import numpy as np

    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (CLIENTS * OWN + TESTED, *IMAGE), dtype=np.uint8)
    labels = np.arange(len(images)) % CLASSES
    n, data = CLIENTS * OWN, folder / "noise.npz"
    np.savez(data, x_train=images[:n], y_train=labels[:n], x_test=images[n:], y_test=labels[n:])
    module, samples = paper_cnn(), random_samples(n)
    parts = [(samples.x[k * OWN : (k + 1) * OWN], samples.y[k * OWN : (k + 1) * OWN]) for k in range(CLIENTS)]
    work = 3 * EPOCHS * forward_gflop(module, samples.x)  # backward is twice forward
    loops: list[float] = []
    shares: list[float] = []
    rounds: dict[str, list[float]] = {"float32": [], "bf16": []}
    for i in range(repetitions):
        loops.append(plain(module, parts, BATCH))
        for precision, seconds in rounds.items():
            before = product_rate().wall
            seconds.append(recorded_round(folder / f"{precision}-{i}", data, precision))
            if precision == "float32":
                shares.append(work / seconds[-1] / max(before, product_rate().wall))
    ratio = {kind: statistics.median(loops) / statistics.median(own) for kind, own in rounds.items()}
    share, bf16 = statistics.median(shares), ratio["bf16"] / ratio["float32"]
    return [
        Line("the plain loop, trains only, seconds", spread(loops)),
        Line("a round in float32, seconds", spread(rounds["float32"])),
        Line(
            "  as fast as the plain loop",
            f"{ratio['float32']:.2f} times",
            ">= 1.3, or the share >= 85 %",
            ratio["float32"] >= 1.3 or share >= 0.85,
        ),
        Line("  training's products as a share of the machine's", spread(shares, "{:.0%}")),
        Line("a round in bf16, seconds", spread(rounds["bf16"])),
        Line("  as fast as in float32", f"{bf16:.2f} times", ">= 1.7", bf16 >= 1.7),
    ]


# --- small models ---


@dataclass(frozen=True)
class Cohort:
    """A cohort of clients of one size with a perceptron."""

    inputs: int
    hidden: tuple[int, ...]

    def module(self) -> Any:
        """It."""
        from fedscope.training import build_module
        from fedscope.training.models.architectures.mlp import MLP

        return build_module(MLP(hidden=self.hidden), (self.inputs,), CLASSES)

    def seconds(self, engine: str) -> float:
        """Of local training."""
        import numpy as np
        import torch

        from fedscope.checkpoints import Layout
        from fedscope.training.build import initial_model
        from fedscope.training.local.engine import Engine
        from fedscope.training.local.local_training import LocalTask
        from fedscope.training.methods.base import LocalSchedule
        from fedscope.training.methods.clients.sgd import SGD
        from fedscope.training.models.model_info import ModelInfo

        module, (x, y) = self.module(), self.samples()
        facts, start = ModelInfo(Layout.of(module), CLASSES, SMALL_CLIENTS), initial_model(module)
        owned = np.arange(len(x)).reshape(SMALL_CLIENTS, SMALL_OWN)
        tasks = [
            LocalTask(1, k, x, y, rows, start, LocalSchedule(0.01, EPOCHS), 0, facts) for k, rows in enumerate(owned)
        ]
        p, method = np.full(SMALL_CLIENTS, 1 / SMALL_CLIENTS), SGD(batch=SMALL_BATCH)
        torch.manual_seed(0)
        began = time.perf_counter()
        Engine(module, kind=engine).train(method, tasks, p)  # type: ignore[arg-type]
        return time.perf_counter() - began

    def samples(self) -> tuple[Any, Any]:
        """Of all clients, noise."""
        import torch

        draw, count = torch.Generator().manual_seed(0), SMALL_CLIENTS * SMALL_OWN
        return torch.randn(count, self.inputs, generator=draw), torch.randint(0, CLASSES, (count,), generator=draw)

    def loop(self, threads: int | None) -> float:
        """Seconds of the plain loop."""
        x, y = self.samples()
        return plain(
            self.module(), list(zip(x.split(SMALL_OWN), y.split(SMALL_OWN), strict=True)), SMALL_BATCH, threads
        )


def small(repetitions: int) -> list[Line]:
    """Local training of small models, each way in turn."""
    lines = []
    for inputs, hidden in WIDTHS:
        cohort = Cohort(inputs, hidden)
        parameters = sum(parameter.numel() for parameter in cohort.module().parameters())
        ways: dict[str, Callable[[], float]] = {
            "plain loop": lambda cohort=cohort: cohort.loop(None),  # type: ignore[misc]
            "plain loop, one thread": lambda cohort=cohort: cohort.loop(1),  # type: ignore[misc]
            "threads": lambda cohort=cohort: cohort.seconds("threads"),  # type: ignore[misc]
            "cohort": lambda cohort=cohort: cohort.seconds("cohort"),  # type: ignore[misc]
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(repetitions + 1):
            for name, way in ways.items():
                seconds = way()
                if i:  # the first loads things
                    spent[name].append(1000 * seconds)
        what = f"{inputs}-{'-'.join(map(str, (*hidden, CLASSES)))}, {parameters:,} parameters"
        lines += [Line(f"{what}: {name}, milliseconds", spread(own, "{:.1f}")) for name, own in spent.items()]
        best = min(statistics.median(spent[name]) for name in ("threads", "cohort"))
        ratio = statistics.median(spent["plain loop"]) / best
        first = not lines[len(ways) :]
        lines.append(
            Line("  the faster engine as fast as the plain loop", f"{ratio:.2f} times", ">= 1.7", ratio >= 1.7)
            if first
            else Line("  the faster engine as fast as the plain loop", f"{ratio:.2f} times")
        )
    return lines


# --- many clients ---


def memory_of(rounds: int, folder: str) -> int:
    """The peak memory of a process that trains so many rounds of 1,000 clients."""
    import numpy as np

    from fedscope.training import Config, train

    draw, data = np.random.default_rng(0), Path(folder, f"{rounds}.npz")
    x, y = draw.normal(size=(11_000, 64)).astype(np.float32), np.arange(11_000) % CLASSES
    np.savez(data, x_train=x[1000:], y_train=y[1000:], x_test=x[:1000], y_test=y[:1000])
    config = Config.read(
        {
            "data": {"name": f"npz:{data}", "clients": MANY, "partition": "iid"},
            "client": {"epochs": 1},
            "run": {"rounds": rounds, "participation": 1.0, "evaluate_clients": 0},
        }
    )
    train(config, Path(folder, f"many-{rounds}"))
    return peak_memory()


def many(folder: Path) -> list[Line]:
    """Memory of 1,000 clients, and how long `ls` takes of 1,000 rounds."""
    from fedscope.training import Config, train

    few, more = (in_fresh_process(memory_of, rounds, str(folder)) / 1e9 for rounds in (FEW_ROUNDS, MORE_ROUNDS))
    config = Config.read(
        {
            "data": {"clients": 4},
            "model": {"hidden": [4]},
            "client": {"epochs": 1},
            "run": {"rounds": LISTED, "evaluate_every": LISTED, "evaluate_clients": 0},
            "record": {"clients": "all"},
        }
    )
    train(config, folder / "listed")
    listing = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([fedscope_command(), "ls", folder / "listed"], check=True, capture_output=True)
        listing.append(time.perf_counter() - began)
    middle = statistics.median(listing)
    return [
        Line(f"{MANY:,} clients, {FEW_ROUNDS} rounds: peak memory, GB", f"{few:.2f}"),
        Line(f"{MANY:,} clients, {MORE_ROUNDS} rounds: peak memory, GB", f"{more:.2f}", "<= 2", more <= 2),
        Line("  against fewer rounds", f"{more / few:.2f} times", "<= 1.05", more <= 1.05 * few),
        Line(f"ls of {LISTED:,} rounds, seconds", spread(listing), "<= 1", middle <= 1),
    ]


def main(repetitions: int) -> None:
    """Measure and print."""
    what = f"{CLIENTS} clients x {OWN} samples x {EPOCHS} epochs"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table(f"Small models: {SMALL_CLIENTS} clients x {SMALL_OWN} samples x {EPOCHS} epochs", small(2 * repetitions))
        table("Many clients", many(folder))
        table(f"The papers' CNN: {what}, {repetitions} repetitions", large(folder, repetitions))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
