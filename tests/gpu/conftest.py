"""What the tests of an accelerator share: which one, and numbers of result files beside each other."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def device() -> str:
    """``FEDSCOPE_DEVICE``, by default the first GPU; ``cpu`` tries these tests where there is none."""
    import torch

    asked = os.environ.get("FEDSCOPE_DEVICE", "cuda")
    if asked != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no CUDA device; FEDSCOPE_DEVICE=cpu tries this without one")
    return asked


def _numbers(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values of everything in a result that is a floating-point number."""
    import h5py

    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for name in rows[0] if rows else ():
            texts = [row[name] for row in rows]
            try:
                yield name, np.array([float(text) if text else np.nan for text in texts])
            except ValueError:
                continue
        return
    with h5py.File(path) as file:
        found: list[tuple[str, np.ndarray]] = []
        file.visititems(
            lambda name, item: (
                found.append((name, item[()])) if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" else None
            )
        )
    yield from found


@pytest.fixture(scope="session")
def alike() -> Callable[[Path, Path, float, int], int]:
    """``alike(one, other, relative, samples)``: how many columns were compared of the results under two folders.

    All numbers differ by at most a share of their column's greatest magnitude.
    The greatest magnitude, because a factor that is near 0 is a difference of larger numbers. Shares of samples
    (errors, accuracies) may differ by two samples: a sample that lies between two classes falls either way.
    """

    def check(one: Path, other: Path, relative: float, samples: int) -> int:
        names = sorted(path.name for path in one.iterdir() if path.suffix in (".csv", ".nc"))
        assert names
        assert names == sorted(path.name for path in other.iterdir() if path.suffix in (".csv", ".nc"))
        compared = 0
        for name in names:
            for (column, expected), (same, actual) in zip(_numbers(one / name), _numbers(other / name), strict=True):
                assert column == same
                assert actual.shape == expected.shape, (name, column)
                assert np.array_equal(np.isnan(actual), np.isnan(expected)), (name, column)
                scale = float(np.nanmax(np.abs(expected), initial=0.0))
                bound = relative * scale
                if any(word in column for word in ("error", "accuracy", "value", "gained", "lost", "forgot")):
                    bound = max(bound, 2 / samples)
                apart = float(np.nanmax(np.abs(actual - expected), initial=0.0))
                assert apart <= bound, f"{name}, {column}: {apart:.3g} apart, more than {bound:.3g}"
                compared += 1
        return compared

    return check
