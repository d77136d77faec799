"""Outputs that are probabilities, or depend on the batch: measured as torch does it, and said."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        yield


def data(n: int = 80) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(n, 1, 6, 6, generator=draw), torch.arange(n) % 3


def head(seed: int, *more: nn.Module) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), *more)
    with torch.no_grad():
        module[1].weight.mul_(20)
    return module


def measured(modules: list[nn.Module]) -> np.ndarray:
    return fedscope.line(modules, data=data(), points=3).loss


def cross_entropy(module: nn.Module) -> float:
    x, y = data()
    with torch.no_grad():
        return float(functional.cross_entropy(module(x), y))


def test_of_probabilities_both_losses_are_said() -> None:
    modules = [head(k, nn.Softmax(dim=1)) for k in range(2)]
    x, y = data()
    with torch.no_grad():
        right = float(functional.nll_loss(modules[0](x).log(), y))
    own = cross_entropy(modules[0])
    words = f"outputs are probabilities .* a loss of {own:.4g} on 80 samples, where -log p is {right:.4g};"
    with pytest.warns(FedscopeWarning, match=words):
        assert np.isclose(measured(modules), own, rtol=1e-5).any()


def test_of_sigmoids_it_is_said() -> None:
    modules = [head(k, nn.Sigmoid()) for k in range(2)]
    own = cross_entropy(modules[0])
    with pytest.warns(FedscopeWarning, match=f"as of a sigmoid, .* a loss of {own:.4g} on 80 samples"):
        assert np.isclose(measured(modules), own, rtol=1e-5).any()


@pytest.mark.parametrize("last", [nn.Identity, lambda: nn.LogSoftmax(dim=1), nn.ReLU, nn.Hardtanh])
def test_logits_are_measured_without_a_word(last: Callable[[], nn.Module]) -> None:
    modules = [head(k, last()) for k in range(2)]
    assert np.isclose(measured(modules), cross_entropy(modules[0]), rtol=1e-5).any()


def test_untrained_networks_are_measured_without_a_word() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        measured([nn.Sequential(nn.Flatten(), nn.Linear(36, 3)) for _ in range(2)])


class Centred(nn.Module):
    """Takes the mean of a batch off."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x - x.mean()).flatten(1))


def batch_norm(*, kept: bool) -> nn.Module:
    norm = nn.BatchNorm2d(4, track_running_stats=kept)
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("make", [Centred, lambda: batch_norm(kept=False)])
def test_outputs_that_depend_on_the_batch_are_said(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    with pytest.warns(FedscopeWarning, match="outputs for a sample depend on the others in its batch"):
        measured([make(), make()])


def test_running_statistics_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    modules = [batch_norm(kept=True) for _ in range(2)]
    for module in modules:
        module(data()[0])
        module.eval()
    assert np.isclose(measured(modules), cross_entropy(modules[0]), rtol=1e-4).any()


def spread(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).square().mean(dim=1)  # [n, 1] - [n] is [n, n]


def averaged(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs[:, 0] - y).square().mean().expand(len(y))


@pytest.mark.parametrize("task", [spread, averaged])
def test_a_loss_that_depends_on_other_samples_is_refused(task: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = data()
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(36, 1)) for _ in range(2)]
    with pytest.raises(FedscopeError, match=r"on the samples beside it.* outputs are \[8, 1\] and targets \[8\]"):
        fedscope.line(modules, data=(x, y.float()), task=task, points=3)

    def right(outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs[:, 0] - y).square()

    found = fedscope.line(modules, data=(x, y.float()), task=right, points=3)
    with torch.no_grad():
        loss = float(functional.mse_loss(modules[0](x)[:, 0], y.float()))
    assert np.isclose(found.loss, loss, rtol=1e-5).any()


def masks(seed: int, *more: nn.Module) -> nn.Module:
    """A segmentation network: [n, 1, 6, 6] to [n, 3, 6, 6]."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), *more)
    with torch.no_grad():
        module[0].weight.mul_(20)
    return module


def pieces(seed: int, *more: nn.Module) -> nn.Module:
    """Of sequences: [n, 1, 6, 6] to [n, 6, 3]."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Flatten(1, 2), nn.Linear(6, 3), *more)
    with torch.no_grad():
        module[1].weight.mul_(20)
    return module


def at_positions(*shape: int) -> Tensor:
    y = torch.randint(0, 3, (80, *shape), generator=torch.Generator().manual_seed(1))
    y[:, 0] = -100
    return y


@pytest.mark.parametrize("task", ["sequences", nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)])
@pytest.mark.parametrize(("make", "shape", "axis"), [(masks, (6, 6), 1), (pieces, (6,), 2)])
def test_of_probabilities_at_positions_both_losses_are_said(
    task: str | nn.Module, make: Callable[..., nn.Module], shape: tuple[int, ...], axis: int
) -> None:
    x, y = data()[0], at_positions(*shape)
    criterion = nn.CrossEntropyLoss() if isinstance(task, str) else task
    modules = [make(k, nn.Softmax(dim=axis)) for k in range(2)]
    with torch.no_grad():
        shares = modules[0](x).movedim(axis, 1)
        own, right = float(criterion(shares, y)), float(functional.nll_loss(shares.log(), y))
    with pytest.warns(FedscopeWarning) as caught:
        found = fedscope.line(modules, data=(x, y), task=task, points=3)
    assert [str(one.message) for one in caught] == [
        "the module's outputs are probabilities (each position's sum to 1), of which the cross-entropy takes a "
        f"softmax, as nn.CrossEntropyLoss does: a loss of {own:.4g} on 80 samples, where -log p is {right:.4g}; for "
        "that give a module that returns logits, or log p"
    ]
    assert np.isclose(found.loss, own, rtol=1e-5).any()
    fedscope.line([make(k) for k in range(2)], data=(x, y), task=task, points=3)  # without a word


@pytest.mark.parametrize("outputs", [1, 3])
def test_sigmoids_where_a_criterion_takes_logits_are_said(outputs: int) -> None:
    x, y = data()[0], torch.randint(0, 2, (80, outputs), generator=torch.Generator().manual_seed(1)).float()
    criterion = nn.BCEWithLogitsLoss()

    def made(seed: int, *more: nn.Module) -> nn.Module:
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, outputs), *more)
        with torch.no_grad():
            module[1].weight.mul_(20)
        return module

    modules = [made(k, nn.Sigmoid()) for k in range(2)]
    with torch.no_grad():
        own = float(criterion(modules[0](x), y))
    with pytest.warns(FedscopeWarning) as caught:
        found = fedscope.line(modules, data=(x, y), task=criterion, points=3)
    assert [str(one.message) for one in caught] == [
        "the module's outputs all lie from 0 to 1, as of a sigmoid, and the loss takes them as logits, as "
        f"nn.BCEWithLogitsLoss does: a loss of {own:.4g} on 80 samples; give a module without the sigmoid, or the "
        "task= that it was trained with"
    ]
    assert np.isclose(found.loss, own, rtol=1e-5).any()
    fedscope.line([made(k) for k in range(2)], data=(x, y), task=criterion, points=3)
    fedscope.line(modules, data=(x, y), task=nn.BCELoss(), points=3)  # which takes probabilities


def test_probabilities_for_targets_that_are_probabilities_are_said() -> None:
    x, y = data()
    shares = functional.one_hot(y, 3).double().mul(0.8).add(0.2 / 3).float()
    modules = [head(k, nn.Softmax(dim=1)) for k in range(2)]
    with torch.no_grad():
        own = float(functional.cross_entropy(modules[0](x), shares))
        right = float(-(shares * modules[0](x).double().log()).sum(dim=1).mean())
    words = f"outputs are probabilities .* a loss of {own:.4g} on 80 samples, where -log p is {right:.4g};"
    with pytest.warns(FedscopeWarning, match=words):
        fedscope.line(modules, data=(x, shares), task=nn.CrossEntropyLoss(), points=3)
