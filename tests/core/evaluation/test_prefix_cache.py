"""What models that begin alike share: the same bits as without, of modules of many kinds, with fewer calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_models import random_models, random_samples
from torch import Tensor, nn
from torch.nn import functional

from fedscope.checkpoints import Layout
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.prefix_cache import SharedPrefix
from fedscope.landscape import LayerLine, LayerLines


class Residual(nn.Module):
    """A block as ResNets have it: one ReLU for all, in place; a sum in place; the shortcut's layer called last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.short = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h += self.short(x)
        return self.relu(h)  # type: ignore[no-any-return]


class Dense(nn.Module):
    """Every layer reads the outputs of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(36, 5), nn.Linear(41, 5), nn.Linear(46, 5), nn.Linear(51, 3)])

    def forward(self, x: Tensor) -> Tensor:
        h = x.flatten(1)
        for part in list(self.parts)[:-1]:
            h = torch.cat([h, torch.tanh(part(h))], dim=1)
        return self.parts[-1](h)  # type: ignore[no-any-return]


class Early(nn.Module):
    """The last layer's weights are read before the first layer is called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x.flatten(1) + self.last.weight.mean())))  # type: ignore[no-any-return]


class Tied(nn.Module):
    """The last product is with the weights of a layer that was called first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(36, 3), nn.Linear(3, 36), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.middle(torch.tanh(self.first(x.flatten(1))))
        return self.last(functional.linear(torch.tanh(h), self.first.weight))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A layer that returns more than a tensor, and a parameter that is no module's."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.rnn, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x.flatten(1, 2) * self.scale)[0][:, -1])  # type: ignore[no-any-return]


class Aliased(nn.Module):
    """What a layer returns is its input, which is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(36, 5), nn.Dropout(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        same = self.drop(h)
        same += 1
        return self.last(h * same)  # type: ignore[no-any-return]


class Choosing(nn.Module):
    """Which layer is called depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 5), nn.Linear(5, 3)
        self.one, self.other = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        h = self.one(h) if x[0, 0, 0, 0] > 0 else self.other(h)
        return self.last(torch.tanh(h))  # type: ignore[no-any-return]


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), Residual(), nn.Flatten(), nn.Linear(144, 3))


MODULES: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "residual": (residual, True),
    "dense": (Dense, True),
    "early": (Early, False),
    "tied": (Tied, True),
    "recurrent": (Recurrent, False),
    "aliased": (Aliased, False),
    "choosing": (Choosing, True),
}


def measured(module: nn.Module, layers: str, *, reuse: bool, policy: str = "interpolate") -> LayerLine:
    a, b = random_models(module, 2, 1.0)
    samples = random_samples(130, (1, 6, 6))
    how = {"normalization": policy, "calibration": random_samples(20, (1, 6, 6), seed=3)}
    return LayerLines(module, samples, layers=layers, betas=5, reuse=reuse, **how).between((a, b))


@pytest.mark.parametrize("layers", ["each", "cumulative", "*"])
@pytest.mark.parametrize("name", MODULES)
def test_the_numbers_are_the_same_bits(name: str, layers: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name][0]()
    with_, without = (measured(module, layers, reuse=reuse) for reuse in (True, False))
    assert with_.loss.tobytes() == without.loss.tobytes()
    assert with_.error.tobytes() == without.error.tobytes()
    assert len(np.unique(with_.loss)) > len(with_.layers)


@pytest.mark.parametrize("policy", ["interpolate", "keep", "re-estimate"])
def test_the_numbers_are_the_same_bits_whatever_the_statistics(policy: str) -> None:
    torch.manual_seed(0)
    module = residual()
    with_, without = (measured(module, "each", reuse=reuse, policy=policy) for reuse in (True, False))
    assert with_.loss.tobytes() == without.loss.tobytes()


def prefix(module: nn.Module) -> SharedPrefix:
    a, b = (model.weights for model in random_models(module, 2, 1.0))
    return SharedPrefix(Replica(module), a, b, random_samples(2, (1, 6, 6)).x)


@pytest.mark.parametrize("name", MODULES)
def test_only_what_can_be_shared_is(name: str) -> None:
    torch.manual_seed(0)
    module, saves = MODULES[name][0](), MODULES[name][1]
    shared = prefix(module)
    cuts = [shared.cut(at) for at in sorted(set(shared.first.values())) if at]
    assert any(cut is not None for cut in cuts) == saves
    assert set(shared.first) == set(Layout.of(module).names)


def test_first_calls_and_what_is_needed_of_a_block() -> None:
    torch.manual_seed(0)
    shared = prefix(residual())
    # 0 the whole, 1 a convolution, 2 the block with 3 conv1, 4 bn1, 5 relu, 6 conv2, 7 bn2, 8 shortcut (9, 10), 11 relu
    order = ["0", "1.conv1", "1.bn1", "1.conv2", "1.bn2", "1.short.0", "1.short.1", "3"]
    assert [shared.first[f"{name}.weight"] for name in order] == [1, 3, 4, 6, 7, 9, 10, 13]
    needed = {at: cut.needed for at in (3, 6, 9, 10, 13) if (cut := shared.cut(at)) is not None}
    assert needed == {3: {1}, 6: {1, 5}, 9: {1, 7}, 10: {1, 7, 9}, 13: {12}}
    assert shared.changed == {4, 7}, "by the ReLU, and by the sum"
    assert shared.cut(1) is None, "nothing is before it"


def test_a_layer_that_reads_later_weights_is_not_shared() -> None:
    torch.manual_seed(0)
    shared = prefix(Early())
    assert (shared.first["first.weight"], shared.first["last.weight"]) == (1, 2)
    assert shared.cut(2) is None


@pytest.mark.parametrize(("layers", "most"), [("cumulative", 0.7), ("each", 0.8)])
def test_layers_are_called_less_often(layers: str, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), *(nn.Linear(36, 36) for _ in range(6)), nn.Linear(36, 3))
    calls: list[int] = []
    linear = functional.linear

    def counting(*given: Tensor) -> Tensor:
        calls.append(len(given[0]))
        return linear(*given)

    monkeypatch.setattr(functional, "linear", counting)
    counts = []
    for reuse in (True, False):
        calls.clear()
        measured(module, layers, reuse=reuse)
        counts.append(sum(size for size in calls if size > 20))
    assert counts[0] < most * counts[1]
