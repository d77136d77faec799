"""What the tests of an accelerator share: which one, and numbers of result files beside each other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def device(asked_device: str | None) -> str:
    """``FEDSCOPE_DEVICE``, by default the first GPU; ``pretend`` and ``cpu`` try these tests where there is none."""
    import torch

    asked = asked_device or "cuda"
    kind = asked.partition(":")[0]
    if kind == "pretend":
        from device.pretend import install, why_not

        if why := why_not():
            pytest.skip(why)
        install()
    elif kind != "cpu" and kind != getattr(torch.accelerator.current_accelerator(), "type", "cpu"):
        pytest.skip(f"torch {torch.__version__} sees no {asked} device; FEDSCOPE_DEVICE=cpu tries this without one")
    return asked


#: columns of a long table that say what a row's number is
_KINDS = ("measure", "quantity", "factor", "estimate")


def _numbers(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values of everything in a result that is a floating-point number; of a long table kind by kind."""
    import h5py

    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        groups: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            groups.setdefault(" ".join(row[kind] for kind in _KINDS if kind in row), []).append(row)
        for kind, own in groups.items():
            for name in own[0]:
                texts = [row[name] for row in own]
                try:
                    yield f"{kind} {name}", np.array([float(text) if text else np.nan for text in texts])
                except ValueError:
                    continue
        return
    found: list[tuple[str, np.ndarray]] = []

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            found.append((name, np.asarray(item[()])))

    with h5py.File(path) as file:
        file.visititems(keep)
    yield from found


def _devices(folder: Path) -> set[str]:
    """The devices that the results of a folder say they were computed on."""
    import h5py

    found = set()
    for path in folder.iterdir():
        if path.suffix == ".nc":
            with h5py.File(path) as file:
                found.add(str(file.attrs["device"]))
        elif path.suffix == ".json":
            found |= set(_named("device", json.loads(path.read_text(encoding="utf-8"))))
    return found


def _named(key: str, said: Any) -> Iterator[str]:
    """Every value of a key, however deep."""
    for name, value in said.items() if isinstance(said, dict) else enumerate(said if isinstance(said, list) else ()):
        if name == key:
            yield str(value)
        yield from _named(key, value)


@pytest.fixture(scope="session")
def alike() -> Callable[[Path, Path, float, int], int]:
    """``alike(one, other, relative, samples)``: how many columns were compared of the results under two folders.

    All numbers differ by at most a share of their column's greatest magnitude: a difference of large numbers may be
    near 0. What is called the standard error of an eigenvalue is the residual ‖H v − λ v‖ of an iteration that has come
    to its end: the rounding of H v, which is another one on another device, and a share of the greatest eigenvalue. So
    its differences are compared with that. Shares of samples (errors, accuracies) differ by at most two samples on
    average: one that lies between two classes falls either way.
    """

    def check(one: Path, other: Path, relative: float, samples: int) -> int:
        names = sorted(path.name for path in one.iterdir() if path.suffix in (".csv", ".nc"))
        assert names
        assert names == sorted(path.name for path in other.iterdir() if path.suffix in (".csv", ".nc"))
        compared = 0
        for name in names:
            first, second = list(_numbers(one / name)), list(_numbers(other / name))
            known = dict(first)
            for (column, expected), (same, actual) in zip(first, second, strict=True):
                assert column == same
                assert actual.shape == expected.shape, (name, column)
                assert np.array_equal(np.isnan(actual), np.isnan(expected)), (name, column)
                differences = np.abs(actual - expected)[~np.isnan(expected)]
                if not differences.size:
                    continue
                compared += 1
                if (
                    any(word in column for word in ("error", "accuracy", "before_", "after_"))
                    and "stderr" not in column
                ):
                    assert differences.mean() <= 2 / samples, f"{name}, {column}: {differences.mean():.3g} on average"
                    continue
                residual = column.startswith("eigenvalue_") and column.endswith(" stderr")
                scale = known["eigenvalue_1 value"] if residual else expected
                bound = relative * float(np.nanmax(np.abs(scale)))
                assert differences.max() <= bound, f"{name}, {column}: {differences.max():.3g}, more than {bound:.3g}"
        return compared

    return check


@pytest.fixture(scope="session")
def devices() -> Callable[[Path], set[str]]:
    """``devices(folder)``: those that the results under it were computed on."""
    return _devices
