"""What sketches of updates cost, and how exact they are.

20 clients of ResNet-18 (11.2 million parameters), k = 4,096: seconds to sketch a round's updates beside the local
training of those clients, a few real steps of that network scaled to the steps of a round (500 samples, 5 epochs,
batches of 50), by the clock with as many cores as there are for the training, and one for the sketches. Then the errors
of lengths, cosines and distances between rounds beside their theory: 200 pairs of updates of 100,000 parameters,
k = 256. Then the bytes of a round of 1,000 clients of ResNet-18 that keeps sketches alone, and seconds for the
distances between its clients and those of four more such rounds.

    python benchmarks/sketches.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import Line, cores, spread, table

CLIENTS, NUMBERS, STEPS, BATCH = 20, 4096, 50, 50
PAIRS, SIZE, SMALL = 200, 100_000, 256
MANY, ROUNDS = 1000, 5


def step_seconds(repetitions: int) -> list[float]:
    """Of a training step of one client, in one thread."""
    import torch

    from fedscope.training import build_module, model_settings

    torch.set_num_threads(1)
    module = build_module(model_settings("resnet18"), (3, 32, 32), 10)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    spent = []
    for i in range(repetitions + 1):
        began = time.perf_counter()
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
        if i:
            spent.append(time.perf_counter() - began)
    return spent


def sketch_seconds(repetitions: int) -> list[float]:
    """Of a round's updates."""
    import numpy as np

    from fedscope.checkpoints import Layout
    from fedscope.checkpoints.rounds.sketches import sketch
    from fedscope.training import build_module, model_settings

    layout = Layout.of(build_module(model_settings("resnet18"), (3, 32, 32), 10))
    draw = np.random.default_rng(0)
    start = draw.normal(size=layout.size).astype(np.float32)
    clients = np.stack([start + np.float32(1e-3) * k for k in range(CLIENTS)])
    spent = []
    for _ in range(repetitions):
        began = time.perf_counter()
        sketch(layout, start, clients, NUMBERS)
        spent.append(time.perf_counter() - began)
    return spent


def errors() -> tuple[float, float, float]:
    """Deviations of squared lengths, of cosines (ρ = 0.5) and of distances between rounds over their theory."""
    import numpy as np

    from fedscope.checkpoints import Layout, TensorEntry
    from fedscope.checkpoints.rounds.sketches import reader, sketch, sketch_whole

    draw, layout = np.random.default_rng(1), Layout((TensorEntry("w", (SIZE,), "float32", "parameter"),))
    lengths, cosines, distances = [], [], []
    for _ in range(PAIRS):
        a = draw.normal(size=SIZE)
        b = 0.5 * a + np.sqrt(0.75) * draw.normal(size=SIZE)
        true = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        s, r = sketch(layout, np.zeros(SIZE), np.stack([a, b]), SMALL).astype(float)
        lengths.append(s @ s / (a @ a) - 1)
        cosines.append((s @ r / np.linalg.norm(s) / np.linalg.norm(r) - true) / (1 - true**2))
        # a from the start of one round, b from that of another, both much longer than the way between them
        start = 20 * draw.normal(size=SIZE)
        starts = start, start + draw.normal(size=SIZE)
        one, other = sketch_whole(layout, [reader(layout, vector) for vector in starts], SMALL)
        way = np.linalg.norm(starts[1] + b - starts[0] - a)
        distances.append(np.linalg.norm(other - one + r - s) / way - 1)
    of_lengths, of_cosines = np.std(lengths) / np.sqrt(2 / SMALL), np.std(cosines) * np.sqrt(SMALL)
    return float(of_lengths), float(of_cosines), float(np.std(distances) * np.sqrt(2 * SMALL))


def many_clients() -> tuple[float, float]:
    """Bytes of a round of many clients that keeps sketches alone, and seconds for the distances of several."""
    import json

    import numpy as np

    from fedscope.checkpoints import Layout, RoundRecord, Run, write_round
    from fedscope.decomposition.embedding.gram import distances
    from fedscope.decomposition.embedding.sketched_gram import sketched_gram
    from fedscope.training import build_module, model_settings

    layout = Layout.of(build_module(model_settings("resnet18"), (3, 32, 32), 10))
    draw, ids = np.random.default_rng(2), np.arange(MANY)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        (path / "rounds").mkdir(parents=True)
        about = {"format": "fedscope-run", "version": 1, "layout": layout.to_json()}
        (path / "run.json").write_text(json.dumps(about))
        for t in range(1, ROUNDS + 1):
            numbers = (ids, ids + 1, ids + 1, np.zeros(MANY), np.full(MANY, 1 / MANY))
            rows = draw.normal(size=(MANY, NUMBERS)).astype(np.float32)
            whole = {name: draw.normal(size=NUMBERS) for name in ("start", "global")}
            record = RoundRecord(t, None, None, None, None, *numbers, sketch=rows, whole_sketches=whole)
            write_round(path / "rounds" / f"{t:05d}.h5", record, layout=layout)
        size = (path / "rounds" / "00001.h5").stat().st_size
        run = Run.open(path)
        began = time.perf_counter()
        distances(sketched_gram([(run, t) for t in run.rounds]))
        return size, time.perf_counter() - began


def main(repetitions: int) -> None:
    """Measure and print."""
    steps, sketches = step_seconds(repetitions), sketch_seconds(repetitions)
    training = statistics.median(steps) * STEPS * CLIENTS / cores()
    share = statistics.median(sketches) / training
    off = 3 / (2 * PAIRS) ** 0.5
    of_lengths, of_cosines, of_distances = errors()
    size, seconds = many_clients()
    lines = [
        Line(f"local training of {CLIENTS} clients, seconds", f"{training:.0f}"),
        Line("sketches of their updates, seconds", spread(sketches)),
        Line("  as a share of the training", f"{share:.2%}", "<= 3 %", share <= 0.03),
        Line(
            "errors of squared lengths over sqrt(2/k)",
            f"{of_lengths:.3f}",
            "1 +- 3 of its errors",
            abs(of_lengths - 1) < off,
        ),
        Line(
            "errors of cosines over (1 - rho^2)/sqrt(k)",
            f"{of_cosines:.3f}",
            "1 +- 3 of its errors",
            abs(of_cosines - 1) < off,
        ),
        Line(
            "errors of distances between rounds over 1/sqrt(2k)",
            f"{of_distances:.3f}",
            "1 +- 3 of its errors",
            abs(of_distances - 1) < off,
        ),
        Line(f"a round of {MANY:,} clients, sketches alone", f"{size / 1e6:.1f} MB", "<= 17 MB", size <= 17e6),
        Line(f"distances of {ROUNDS * MANY:,} clients of {ROUNDS} rounds, seconds", f"{seconds:.1f}"),
    ]
    table(f"Sketches of {NUMBERS:,} numbers, ResNet-18", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
