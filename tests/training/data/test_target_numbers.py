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
from torch.nn.modules.loss import _Loss

import fedscope
from fedscope.checkpoints import FedscopeError, Run
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


def one_hot_of_more(outputs: Tensor, y: Tensor) -> Tensor:
    """Of classes of which the last have no label."""
    return -(functional.one_hot(y, 10) * outputs.log_softmax(dim=1)).sum(dim=1)


def hinge_of_more(outputs: Tensor, y: Tensor) -> Tensor:
    return (1 - (2 * functional.one_hot(y, 10) - 1) * outputs).clamp(min=0).sum(dim=1)


def prototypes(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - torch.linspace(0, 1, 7 * 16).reshape(7, 16)[y]).square().sum(dim=1)


def of_column(outputs: Tensor, y: Tensor) -> Tensor:
    return -(functional.one_hot(y[:, 0], 7) * outputs.log_softmax(dim=1)).sum(dim=1)


def first_of_column(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y[:, 0]).abs()


def squeezed(outputs: Tensor, y: Tensor) -> Tensor:
    """Which takes outputs [n, n] as well, spread along the targets."""
    return (outputs.squeeze(1) - y).square().reshape(len(y), -1).mean(dim=1)


def gaussian(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y).square() / (2 * outputs[:, 1].exp()) + outputs[:, 1] / 2


class Derived(_Loss):
    def reduced(self, losses: Tensor) -> Tensor:
        return losses if self.reduction == "none" else losses.mean()


class Focal(Derived):
    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        log = outputs.log_softmax(1).gather(1, y[:, None])[:, 0]
        return self.reduced(-((1 - log.exp()) ** 2) * log)


class OneHot(Derived):
    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self.reduced(-(functional.one_hot(y.long().view(-1), 7) * outputs.log_softmax(1)).sum(1))


class OneForEach(Derived):
    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        there = (y.view(-1, 1) == torch.arange(outputs.shape[1])).float()
        return self.reduced(functional.binary_cross_entropy_with_logits(outputs, there, reduction="none"))


class Truth(nn.BCEWithLogitsLoss):
    """Torch's, by another name."""


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
        (Focal(), LABELS, False),
        (OneHot(), LABELS, False),
        (OneForEach(), LABELS, False),
        (OneForEach(), TRUTH, False),
        (Truth(), TRUTH, True),
        (Truth(), SEVERAL, True),
        (of_column, LABELS[:, None], False),
        (first_of_column, AGES[:, None], True),
        (spread, LABELS, True),
        (one_hot_of_more, LABELS, False),
        (hinge_of_more, LABELS, False),
        (prototypes, LABELS, False),
        (squeezed, AGES, True),
        (squeezed, np.arange(60) % 8, True),
        (gaussian, AGES, False),
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
        (Focal(), AGES % 5, 5),
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


def test_a_loss_that_fits_no_number_of_outputs_is_refused(tmp_path: Path) -> None:
    """It would be spread against one output, and train a network of nothing."""
    x = np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32)
    y = AGES % 7
    np.savez(tmp_path / "d.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    tables: dict[str, dict[str, Any]] = {
        "data": {"name": f"npz:{tmp_path}/d.npz", "clients": 2, "partition": "iid"},
        "model": {"hidden": [3]},
    }
    tables["run"] = {"rounds": 1, "participation": 1.0}
    with pytest.raises(FedscopeError, match=r"hinge_of_more fails on outputs of shape \[2, 7\]"):
        train(Config.read(tables), tmp_path / "run", task=hinge_of_more)


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
