"""What sketches of updates cost, and how exact they are.

20 clients of ResNet-18 (11.2 million parameters), k = 4,096: seconds to sketch a round's updates beside the local
training of those clients, a few real steps of that network scaled to the steps of a round (500 samples, 5 epochs,
batches of 50), by the clock with as many cores as there are for the training, and one for the sketches. Then the errors
of lengths and cosines beside their theory: 200 pairs of updates of 100,000 parameters, k = 256.

    python benchmarks/sketches.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time

from _common import Line, cores, spread, table

CLIENTS, NUMBERS, STEPS, BATCH = 20, 4096, 50, 50
PAIRS, SIZE, SMALL = 200, 100_000, 256


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
    from fedscope.checkpoints.sketches import sketch
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


def errors() -> tuple[float, float]:
    """Deviations of squared lengths and of cosines (ρ = 0.5) over their theory."""
    import numpy as np

    from fedscope.checkpoints import Entry, Layout
    from fedscope.checkpoints.sketches import sketch

    draw, layout = np.random.default_rng(1), Layout((Entry("w", (SIZE,), "float32", "parameter"),))
    lengths, cosines = [], []
    for _ in range(PAIRS):
        a = draw.normal(size=SIZE)
        b = 0.5 * a + np.sqrt(0.75) * draw.normal(size=SIZE)
        true = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        s, r = sketch(layout, np.zeros(SIZE), np.stack([a, b]), SMALL).astype(float)
        lengths.append(s @ s / (a @ a) - 1)
        cosines.append((s @ r / np.linalg.norm(s) / np.linalg.norm(r) - true) / (1 - true**2))
    return float(np.std(lengths) / np.sqrt(2 / SMALL)), float(np.std(cosines) * np.sqrt(SMALL))


def main(repetitions: int) -> None:
    """Measure and print."""
    steps, sketches = step_seconds(repetitions), sketch_seconds(repetitions)
    training = statistics.median(steps) * STEPS * CLIENTS / cores()
    share = statistics.median(sketches) / training
    off = 3 / (2 * PAIRS) ** 0.5
    of_lengths, of_cosines = errors()
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
    ]
    table(f"Sketches of {NUMBERS:,} numbers, ResNet-18", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
