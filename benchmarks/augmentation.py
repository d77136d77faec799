"""What random crops and flips add to a CIFAR-10 batch, beside reading the batch from its bytes and training on it, in
turn in one thread; processor time.

python benchmarks/augmentation.py [repetitions]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from _common import CLASSES, IMAGE, Line, paper_cnn, spread, table

BATCH, SAMPLES, READS = 50, 5_000, 20
SHARE = 0.05


def main(repetitions: int) -> None:
    """Measure and print."""
    import numpy as np
    import torch
    from torch.nn import functional

    from fedscope.evaluation.uint8_images import Uint8Images
    from fedscope.training.local.local_training import crop_and_flip

    torch.set_num_threads(1)
    draw, shifts = np.random.default_rng(0), torch.Generator().manual_seed(0)
    channels, *pixels = IMAGE
    stored = torch.from_numpy(draw.integers(0, 256, (SAMPLES, *pixels, channels), dtype=np.uint8))
    images = Uint8Images(stored, np.full(channels, 0.5), np.full(channels, 0.25))
    y = torch.from_numpy(draw.integers(0, CLASSES, BATCH))
    module = paper_cnn()

    def read() -> torch.Tensor:
        return images[torch.from_numpy(draw.integers(0, SAMPLES, BATCH))]

    def step() -> None:
        module.zero_grad()
        functional.cross_entropy(module(x), y).backward()

    def seconds(work: Callable[[], object], times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - began) / times

    x = read()
    works: dict[str, tuple[Callable[[], object], int]] = {
        "read": (read, READS),
        "augment": (lambda: crop_and_flip(x, shifts), READS),
        "train": (step, 2),
    }
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repetitions + 1):  # the first one allocates
        for name, (work, times) in works.items():
            took[name].append(1e3 * seconds(work, times))
    for each in took.values():
        del each[0]
    ratio = statistics.median(a / b for a, b in zip(took["augment"], took["read"], strict=True))
    share = statistics.median(a / (a + b) for a, b in zip(took["augment"], took["train"], strict=True))
    table(
        f"Augmentation: batches of {BATCH} images of {'x'.join(map(str, IMAGE))}, {repetitions} times",
        [
            Line("crop_and_flip, ms a batch", spread(took["augment"])),
            Line("reading the batch from bytes, ms", spread(took["read"])),
            Line("forward and backward of the papers' CNN, ms", spread(took["train"], "{:.1f}")),
            Line("crop_and_flip, times the reading", f"{ratio:.2f}"),
            Line("crop_and_flip, share of a training step", f"{share:.1%}", f"<= {SHARE:.0%}", share <= SHARE),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
