"""A program that makes its tensors on the accelerator, ``torch.set_default_device``, asks and trains as any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedscope

pytestmark = pytest.mark.device


@pytest.fixture
def on_device(pretend: str) -> Iterator[str]:
    torch.set_default_device(pretend)
    yield pretend
    torch.set_default_device(None)


@pytest.mark.parametrize("device", ["cpu", "own"])
def test_questions_and_training(device: str, on_device: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"device": on_device if device == "own" else "cpu"}
    nets = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    line = fedscope.line(nets, data=(x, y), points=3, **where)
    of_loader = DataLoader(TensorDataset(x, y), 10, shuffle=True, generator=torch.Generator(on_device))
    # samples in another order: sums in float64, rounded once, differ in their last bits
    assert fedscope.line(nets, data=of_loader, points=3, **where).loss == pytest.approx(line.loss, rel=1e-5)
    run = fedscope.train(clients=4, rounds=1, epochs=1, participation=1.0, out=tmp_path / "run", **where)
    assert fedscope.subsets(run, limit=50, **where).summary()
