"""Networks have an output for each number of a target, and of whole numbers for each class where these are classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import Run
from fedscope.training import Config, train
from fedscope.training.build import build_module
from fedscope.training.data.target_numbers import are_numbers
from fedscope.training.tasks import given_task

AGES = np.arange(120) % 51 + 18
LABELS = np.arange(60) % 7
TRUTH = np.arange(60) % 2
SEVERAL = np.random.default_rng(0).integers(0, 2, (60, 5))
PIECES = np.arange(60).reshape(10, 6) % 5


def first(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y).abs()


def spread(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y[:, None]).square().mean(dim=1)


def truth(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], y.float(), reduction="none")


def several(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, y.float(), reduction="none").mean(dim=1)


def entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y, reduction="none")


def brier(outputs: Tensor, y: Tensor) -> Tensor:
    """Which outputs [n, 1] would be spread against."""
    return (outputs.softmax(dim=1) - functional.one_hot(y, 7)).square().sum(dim=1)


def positions(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), y, reduction="none").mean(dim=1)


@pytest.mark.parametrize(
    ("task", "y", "numbers"),
    [
        ("classification", LABELS, False),
        ("sequences", PIECES, False),
        ("regression", AGES, True),
        (nn.HuberLoss(), AGES, True),
        (nn.BCEWithLogitsLoss(), SEVERAL, True),
        (nn.MultiMarginLoss(), LABELS, False),
        (first, AGES, True),
        (first, AGES - 40, True),
        (first, AGES * 10**9, True),
        (spread, AGES, True),
        (truth, TRUTH, True),
        (several, SEVERAL, True),
        (entropy, LABELS, False),
        (entropy, TRUTH, False),
        (entropy, np.where(LABELS == 3, -100, LABELS), False),
        (brier, LABELS, False),
        (positions, PIECES, False),
        (first, AGES.astype(np.float32), True),
    ],
)
def test_whole_numbers_are_numbers_or_classes(task: Any, y: np.ndarray, numbers: bool) -> None:
    assert are_numbers(given_task(task), y) is numbers


def test_declared_classes_are_classes() -> None:
    assert not are_numbers(given_task(first), AGES, declared=100)
    assert are_numbers(given_task("regression"), AGES, declared=100)


@pytest.mark.parametrize(
    ("task", "y", "outputs"),
    [
        ("regression", AGES, 1),
        (nn.BCEWithLogitsLoss(), np.tile(SEVERAL, (2, 1)), 5),
        (first, AGES, 1),
        (entropy, AGES % 3, 3),
    ],
)
def test_a_trained_network_has_an_output_for_each(
    tmp_path: Path, task: str | nn.Module | Callable[[Tensor, Tensor], Tensor], y: np.ndarray, outputs: int
) -> None:
    x = np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    tables = {
        "data": {"name": f"npz:{tmp_path}/d.npz", "clients": 2, "partition": "iid"},
        "model": {"hidden": [3]},
        "client": {"epochs": 1},
        "run": {"rounds": 1, "participation": 1.0},
    }
    train(Config.read(tables), tmp_path / "run", task=task)
    run = Run.open(tmp_path / "run")
    assert run.layout.entries[-1].shape == (outputs,)
    assert np.isfinite(run.metrics()["test_loss"]).all()


def test_a_stored_network_with_an_output_for_each_class_of_numbers_is_measured(tmp_path: Path) -> None:
    """As earlier versions trained one for a loss that takes the first output."""
    x = np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32)
    architecture = Config.read({}).model.architecture
    nets = [build_module(architecture, (4,), 69, seed=k) for k in range(2)]
    files = [tmp_path / f"{k}.safetensors" for k in range(2)]
    for one, file in zip(nets, files, strict=True):
        save_file(one.state_dict(), file)
    found = fedscope.line(files, model="mlp", data=(x, AGES), task=first, points=3)
    with torch.no_grad():
        loss = float(first(nets[0](torch.from_numpy(x)), torch.from_numpy(AGES)).mean())
    assert np.isclose(found.loss, loss, rtol=1e-5).any()
