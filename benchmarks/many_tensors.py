"""Models of many tensors: what one more costs an import and the questions on it, where there are few and where many.

Two safetensors of n tensors of one number each; processor time a tensor at the largest n over that at the smallest,
which is 1 where the time is linear in n.

    python benchmarks/many_tensors.py [numbers of tensors]
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _common import Line, table
from safetensors.numpy import save_file

#: of the time a tensor: a square would be the ratio of the numbers themselves, 8; Python's collector takes some more
#: where there are many objects
TARGET = 2.0


def seconds(work: Callable[[], object]) -> float:
    """Processor time of a piece of work; of a short one the least of several."""
    took: list[float] = []
    while len(took) < 7 and sum(took) < 1:
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def measure(n: int, folder: Path) -> dict[str, float]:
    """Seconds of each question."""
    from fedscope import Run, import_models
    from fedscope.checkpoints import load_model
    from fedscope.training.loop.verify_run import check_run

    files = [folder / f"{n}-{k}.safetensors" for k in (0, 1)]
    for k, file in enumerate(files):
        save_file({f"layer{i}.weight": np.float32([i + k]) for i in range(n)}, file)
    out = folder / f"run-{n}"
    found = {"import": seconds(lambda: import_models(files, out, force=True))}
    run = Run.open(out)
    found["open the run"] = seconds(lambda: Run.open(out))
    found["read its clients"] = seconds(lambda: run.round(1).clients())
    found["check it"] = seconds(lambda: check_run(out))
    found["read a file"] = seconds(lambda: load_model(str(files[0]), run.layout))
    return found


def main(numbers: list[int]) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measure(100, Path(place))  # what is loaded once
        took = {n: measure(n, Path(place)) for n in numbers}
    few, many = min(numbers), max(numbers)
    lines = []
    for what in took[few]:
        ratio = took[many][what] / many / (took[few][what] / few)
        shown = ", ".join(f"{took[n][what]:.2f}" for n in numbers)
        lines.append(
            Line(
                f"{what}: {shown} s; a tensor of {many:,} / of {few:,}", f"{ratio:.2f}", f"<= {TARGET}", ratio <= TARGET
            )
        )
    table(f"Models of {', '.join(f'{n:,}' for n in numbers)} tensors", lines)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]] or [5_000, 10_000, 20_000, 40_000])
