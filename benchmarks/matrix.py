"""What a matrix of models and clients costs beyond evaluating the models: 20 models of the source papers' CNN at the
places of 20 clients, against the evaluator on the same models and samples, in turn.

    python benchmarks/matrix.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from _common import Line, paper_cnn, random_clients, random_samples, spread, table

MODELS, SAMPLES, REPETITIONS = 20, 2_000, 5


def main() -> None:
    """Measure and print."""
    import numpy as np

    from fedscope.decomposition.matrix.losses import losses_at
    from fedscope.evaluation.evaluator import Evaluator

    module, samples = paper_cnn(), random_samples(SAMPLES)
    clients = random_clients(module, MODELS)
    members = np.arange(SAMPLES) % MODELS == np.arange(MODELS)[:, None]
    models = [clients.row(k) for k in range(MODELS)]
    evaluator = Evaluator(module, samples)

    def matrix() -> None:
        losses_at(module, samples, models, members, [(k, 0, k) for k in range(MODELS)], number=1)

    works: dict[str, Callable[[], object]] = {"plain": lambda: evaluator.models(models), "matrix": matrix}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for repetition in range(REPETITIONS + 1):
        for name in list(works)[:: 1 if repetition % 2 else -1]:
            began = time.perf_counter()
            works[name]()
            if repetition:  # the first one loads what it needs
                seconds[name].append(time.perf_counter() - began)
    ratio = statistics.median(seconds["matrix"]) / statistics.median(seconds["plain"])
    table(
        f"A matrix of {MODELS} models and {MODELS} clients, {SAMPLES:,} samples",
        [
            Line("plain evaluations, seconds", spread(seconds["plain"])),
            Line("the matrix, with intervals and gains, seconds", spread(seconds["matrix"])),
            Line("  / plain evaluations", f"{ratio:.2f}", "<= 1.1", ratio <= 1.1),
        ],
    )


if __name__ == "__main__":
    main()
