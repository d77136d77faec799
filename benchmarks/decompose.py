"""What a decomposition's statistics cost beside its forward passes, and whether its memory grows with the samples.

`fedscope.decomposition.decompose_round` on the source papers' CNN (3 x 32 x 32): R = 4 draws of K = 10 clients, 2,000
samples, so 40 clients, 4 averages and the recorded global model. The forward passes are timed where they happen
(`Evaluator.logits`); everything else in the call counts as statistics: averages of the draws, softmax, Gram matrices,
distances, tables. Forward passes are also told as a share of the float32 matrix-product rate of the same run, and
against the evaluator's own rate: losses and errors of as many models on the same samples, right after.

Then, in a new process each, the peak memory of the same with R = 2, K = 4 on 1 x and 4 x as many samples, above what
was held before the call (samples and models): it must not grow with the samples. One copy of the added samples would be
100 %; the allocator alone scatters by some 20 MB, hence the target.

    python benchmarks/decompose.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from _common import (
    SAMPLES,
    Line,
    forward_gflop,
    in_fresh_process,
    memory_from_now,
    paper_cnn,
    peak_memory,
    product_rate,
    random_clients,
    random_samples,
    spread,
    table,
)

SHARE, GROWTH, RATE = 0.15, 0.5, 0.85
DRAWS, CLIENTS = 4, 10


def question(draws: int, clients: int, samples: int) -> tuple[Any, ...]:
    """The arguments of `decompose_round`: random models, and every sample some client's."""
    import numpy as np

    from fedscope.decomposition import CohortDraws

    module, data = paper_cnn(), random_samples(samples)
    cohort = CohortDraws(
        round=1,
        client_ids=np.arange(clients),
        p=np.full(clients, 1 / clients),
        draws=tuple(random_clients(module, clients, seed=r) for r in range(draws)),
        client_samples=np.full(clients, samples // clients),
        source=f"local:{draws}",
        independent=True,
    )
    return module, data, cohort, np.arange(samples) % clients == np.arange(clients)[:, None]


def ask(module: Any, data: Any, cohort: Any, members: Any) -> None:
    """One decomposition, with a global model as runs record it."""
    from fedscope.checkpoints import weighted_mean
    from fedscope.decomposition import decompose_round

    globals_ = weighted_mean(cohort.draws[0], cohort.p)
    decompose_round(module, data, cohort, members, globals_=globals_, averaged=None, population=True)


def seconds() -> tuple[float, float]:
    """Seconds of a whole decomposition, and of its forward passes."""
    from unittest.mock import patch

    from fedscope.evaluation.evaluator import Evaluator

    arguments, forward = question(DRAWS, CLIENTS, SAMPLES), 0.0
    passes = Evaluator.logits

    def timed(self: Any, *given: Any) -> Any:
        nonlocal forward
        began = time.perf_counter()
        outputs = passes(self, *given)
        forward += time.perf_counter() - began
        return outputs

    with patch.object(Evaluator, "logits", timed):
        began = time.perf_counter()
        ask(*arguments)
        return time.perf_counter() - began, forward


def evaluated() -> float:
    """Seconds that the evaluator takes for the losses of as many models on the same samples."""
    from fedscope.evaluation.evaluator import Evaluator

    module, data = paper_cnn(), random_samples()
    models = random_clients(module, DRAWS * CLIENTS + DRAWS + 1)
    evaluator = Evaluator(module, data)
    began = time.perf_counter()
    evaluator.models(models)
    return time.perf_counter() - began


def held(samples: int) -> tuple[int, int]:
    """Bytes at the peak before the call, when only samples and models were there, and in the end."""
    ask(*question(2, 2, 500))  # torch's own buffers, so that they are not counted for the samples
    arguments = question(2, 4, samples)
    before = memory_from_now()
    ask(*arguments)
    return before, peak_memory()


def main(repetitions: int) -> None:
    """Measure and print."""
    before, times, rates, ratios = product_rate(), [], [], []
    for _ in range(repetitions):
        times.append(seconds())
        ratios.append(evaluated() / times[-1][1])
        after = product_rate()
        rates.append((before.wall + after.wall) / 2)
        before = after
    module, samples = paper_cnn(), random_samples()
    work = (DRAWS * CLIENTS + DRAWS + 1) * forward_gflop(module, samples.x)
    speed = [work / forward / rate for (_, forward), rate in zip(times, rates, strict=True)]
    shares = [1 - forward / whole for whole, forward in times]
    extra = {}
    for count in (SAMPLES, 4 * SAMPLES):
        start, peak = in_fresh_process(held, count)
        extra[count] = (peak - start) / 1e6
    grown = extra[4 * SAMPLES] - extra[SAMPLES]
    added = 3 * SAMPLES * samples.x[0].numel() * 4 / 1e6
    share = statistics.median(shares)
    table(
        f"Decomposition of a round of the papers' CNN: R = {DRAWS}, K = {CLIENTS}, {SAMPLES:,} samples",
        [
            Line("seconds", spread([whole for whole, _ in times])),
            Line("of them forward passes", spread([forward for _, forward in times])),
            Line("forward passes / matrix products", spread(speed, "{:.0%}")),
            Line(
                "forward passes / evaluator's rate",
                spread(ratios, "{:.0%}"),
                f">= {RATE:.0%}",
                statistics.median(ratios) >= RATE,
            ),
            Line("share of the statistics", spread(shares, "{:.1%}"), f"<= {SHARE:.0%}", share <= SHARE),
            Line(f"memory beyond models and samples, {SAMPLES:,} samples, MB", f"{extra[SAMPLES]:.0f}"),
            Line(f"the same, {4 * SAMPLES:,} samples, MB", f"{extra[4 * SAMPLES]:.0f}"),
            Line(
                f"grown by, as a share of the {added:.0f} MB of samples added",
                f"{grown / added:.0%}",
                f"<= {GROWTH:.0%}",
                grown <= GROWTH * added,
            ),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
