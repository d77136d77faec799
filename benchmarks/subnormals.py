"""What samples with subnormal gradients add to a step of the papers' CNN on a CIFAR-10 batch of 50, and what is left of
that where local training takes them for 0; in turn in one thread, processor time.

A client of few classes fits some of its samples so well that entries of their gradients are below 2 ** -126. Here the
logits of a share of the batch are so far apart that those behind the convolutions are.

python benchmarks/subnormals.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import nullcontext

from _common import CLASSES, IMAGE, Line, paper_cnn, spread, table

BATCH, GAP = 50, 85.0
SHARES = (0.0, 0.1, 0.5)
BOUND = 1.2


def main(repetitions: int) -> None:
    """Measure and print."""
    import torch
    from torch.nn import functional

    from fedscope.training.local.subnormals import subnormals_as_zero

    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(BATCH, *IMAGE, generator=draw), torch.randint(CLASSES, (BATCH,), generator=draw)
    module = paper_cnn()

    def milliseconds(share: float, *, as_zero: bool) -> float:
        apart = functional.one_hot(y, CLASSES) * GAP
        apart[round(share * BATCH) :] = 0.0
        with subnormals_as_zero() if as_zero else nullcontext():
            for _ in range(3):  # the first ones after a slow one of another case are slower
                began = time.process_time()
                module.zero_grad()
                functional.cross_entropy(module(x) + apart, y).backward()
            return 1e3 * (time.process_time() - began)

    cases = [(share, as_zero) for share in SHARES for as_zero in (False, True)]
    took: dict[tuple[float, bool], list[float]] = {case: [] for case in cases}
    for _ in range(repetitions + 1):  # the first one allocates
        for share, as_zero in cases:
            took[share, as_zero].append(milliseconds(share, as_zero=as_zero))
    for each in took.values():
        del each[0]
    usual = took[0.0, False]
    lines = [Line("a step without such samples, ms", spread(usual, "{:.1f}"))]
    for share, as_zero in cases[1:]:
        ratio = statistics.median(a / b for a, b in zip(took[share, as_zero], usual, strict=True))
        words = f"{share:.0%} of such samples{', as 0' if as_zero else ''}, times that"
        lines.append(Line(words, f"{ratio:.2f}", *((f"<= {BOUND}", ratio <= BOUND) if as_zero else ())))
    table(f"Subnormal gradients: batches of {BATCH}, {repetitions} times", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
