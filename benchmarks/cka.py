"""What similarities cost beside the forward passes they are made from, and beside another program's.

All pairs of 100 clients on 2,000 samples, at the outputs of the source papers' CNN:
`fedscope.decomposition.cka.pairs.round_similarity` (linear CKA, unbiased, minibatches of at most 256), and the forward
passes of the same models on the same samples alone (`Evaluator.logits`), one after the other in the same run.

Against it `torch_cka` 0.21 (pip install torch_cka): one pair of models at a time, the same minibatches, the same
estimator, the same layer. A few pairs are timed, and their median is multiplied by the number of pairs: every pair does
the same work there, both models' forward passes included, so all pairs take that long in proportion. Its values differ
in the third digit, because it makes its sums in float32 of features that are not centred (in float64 its own formula
gives fedscope's values to 1e-12); more would mean that the two do not compute the same.

    python benchmarks/cka.py [repetitions] [clients]
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import time
import warnings
from typing import Any

from _common import SAMPLES, Line, paper_cnn, random_clients, random_samples, spread, table

RATIO, FASTER = 3.0, 20.0
CLIENTS, PAIRS, BATCH = 100, 3, 256


def forward_seconds(module: Any, samples: Any, clients: Any) -> float:
    """Seconds of the forward passes alone."""
    from fedscope.evaluation.evaluator import Evaluator

    evaluator = Evaluator(module, samples)
    models = [clients.row(i) for i in range(len(clients))]
    began = time.perf_counter()
    evaluator.logits(models, slice(None))
    return time.perf_counter() - began


def whole_seconds(module: Any, samples: Any, clients: Any) -> tuple[float, Any]:
    """Seconds of all pairs' similarities, and the matrix."""
    import numpy as np

    from fedscope.decomposition.cka.pairs import round_similarity

    began = time.perf_counter()
    (made,) = round_similarity(module, samples, clients, number=1, client_ids=np.arange(len(clients)), batch=BATCH)
    return time.perf_counter() - began, made.cka


def pair_seconds(other: Any, module: Any, samples: Any, clients: Any, pair: tuple[int, int]) -> tuple[float, float]:
    """Seconds of one pair in torch_cka, on the same minibatches, and its value."""
    import torch
    from torch.utils.data import BatchSampler, DataLoader, TensorDataset

    from fedscope.decomposition.cka.hsic import minibatches

    rows = torch.cat([torch.from_numpy(part) for part in minibatches(len(samples), BATCH, 0)])
    # whole minibatches at once, so that its time is not spent on collecting single samples
    data = TensorDataset(samples.x[rows], samples.y[rows])
    size = len(minibatches(len(samples), BATCH, 0)[0])
    loader = DataLoader(data, sampler=BatchSampler(range(len(data)), size, drop_last=False), batch_size=None)
    modules = [_loaded(module, clients.row(i)) for i in pair]
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        compared = other.CKA(*modules, model1_layers=["head"], model2_layers=["head"])
        began = time.perf_counter()
        compared.compare(loader)
        return time.perf_counter() - began, float(compared.export()["CKA"])


def _loaded(module: Any, model: Any) -> Any:
    from copy import deepcopy

    import torch

    made = deepcopy(module)
    made.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in model.arrays().items()})
    return made


def main(repetitions: int, count: int) -> None:
    """Measure and print."""
    module, samples = paper_cnn(), random_samples(SAMPLES)
    clients = random_clients(module, count)
    pairs = count * (count - 1) // 2
    forward, whole, matrix = [], [], None
    for _ in range(repetitions):
        forward.append(forward_seconds(module, samples, clients))
        seconds, matrix = whole_seconds(module, samples, clients)
        whole.append(seconds)
    ratios = [a / b for a, b in zip(whole, forward, strict=True)]
    ratio = statistics.median(ratios)
    lines = [
        Line("seconds, forward passes alone", spread(forward)),
        Line("seconds, all similarities", spread(whole)),
        Line("their ratio", spread(ratios), f"<= {RATIO:g}", ratio <= RATIO),
    ]
    try:
        import torch_cka
    except ImportError as error:
        missing = f"torch_cka is not compared, because it cannot be imported ({error}); pip install torch_cka"
    else:
        missing = ""
        asked = [(2 * i, 2 * i + 1) for i in range(min(PAIRS, count // 2))]
        timed = [pair_seconds(torch_cka, module, samples, clients, pair) for pair in asked]
        each = [seconds for seconds, _ in timed]
        apart = max(abs(value - matrix[pair]) for (_, value), pair in zip(timed, asked, strict=True))
        faster = statistics.median(each) * pairs / statistics.median(whole)
        lines += [
            Line(f"seconds a pair, torch_cka, {len(each)} pairs", spread(each)),
            Line(f"torch_cka / fedscope, extrapolated to {pairs:,} pairs", f"{faster:.0f}", f">= {FASTER:g}",
                 faster >= FASTER),
            Line("greatest difference between both programs' values", f"{apart:.1e}", "<= 0.01", apart <= 0.01),
        ]  # fmt: skip
    table(f"Similarity of {count} clients of the papers' CNN: {pairs:,} pairs, {SAMPLES:,} samples", lines)
    if missing:
        print(f"  {missing}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, int(sys.argv[2]) if len(sys.argv) > 2 else CLIENTS)
