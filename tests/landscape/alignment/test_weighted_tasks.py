"""fedscope align of tasks whose samples do not all count alike: losses, errors, barriers and their standard errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope


def likes(x: Tensor, y: Tensor) -> list[nn.Module]:
    """Return two small networks, each fitted a little."""
    nets = []
    for seed in range(2):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimiser = torch.optim.Adam(net.parameters(), 0.05)
        for _ in range(40):
            optimiser.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimiser.step()
        nets.append(net.eval())
    return nets


@pytest.fixture(scope="module")
def drawn() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(700, 4, generator=draws)  # two batches
    return x, (x[:, :3] + torch.randn(700, 3, generator=draws)).argmax(1)


def paired(each: Tensor, counts: Tensor) -> tuple[float, float]:
    """Return the weighted mean of paired differences, and its standard error, from their definition."""
    n, share = len(each), counts / counts.sum()
    mean = (share * each).sum()
    return float(mean), float((n / (n - 1) * (share**2 * (each - mean) ** 2).sum()).sqrt())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weights_of_classes_and_labels_that_do_not_count_are_those_of_torch(
    drawn: tuple[Tensor, Tensor], smoothing: float
) -> None:
    x, y = drawn
    nets, weight = likes(x, y), torch.tensor([1.0, 3.0, 40.0])
    y = y.clone()
    y[::7] = -100
    criterion = nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)
    found = fedscope.align(nets, data=(x, y), task=criterion)
    first, second, mean = found.averages[:3]
    middle = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    middle.load_state_dict(
        {name: (value + nets[1].state_dict()[name]) / 2 for name, value in nets[0].state_dict().items()}
    )
    counted = y != -100
    with torch.no_grad():
        for row, net in ((first, nets[0]), (second, nets[1]), (mean, middle)):
            assert row.loss == pytest.approx(float(criterion(net(x), y)), rel=1e-5)
            wrong = (net(x).argmax(1) != y)[counted]
            assert row.error == pytest.approx(float(wrong.double().mean()), abs=1e-12)
        each = [
            functional.cross_entropy(
                net(x[counted]).double(), y[counted], weight.double(), reduction="none", label_smoothing=smoothing
            )
            for net in (*nets, middle)
        ]
    c = weight[y[counted]].double()
    more = (each[2] - (each[0] + each[1]) / 2) / c
    whole = torch.zeros(len(y), dtype=torch.float64), torch.zeros(len(y), dtype=torch.float64)
    whole[0][counted], whole[1][counted] = more, c
    barrier, stderr = paired(*whole)
    assert mean.barrier == pytest.approx(barrier, rel=1e-4)
    assert mean.stderr == pytest.approx(stderr, rel=1e-4)


class Letters(nn.Module):
    """A class at every position, of that position's letter."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden, self.out = nn.Embedding(5, 6), nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(self.table(x))))


def test_every_position_that_counts_counts_alike() -> None:
    draws = torch.Generator().manual_seed(1)
    x, y = (torch.randint(5, (60, 9), generator=draws) for _ in range(2))
    y[::2, 1:] = -100  # one position, and nine
    y[1::2] = (x[1::2] + 1) % 5
    nets = []
    for seed in range(2):
        torch.manual_seed(seed)
        net = Letters()
        optimiser = torch.optim.Adam(net.parameters(), 0.05)
        for _ in range(30):
            optimiser.zero_grad()
            functional.cross_entropy(net(x).transpose(1, 2), y).backward()
            optimiser.step()
        nets.append(net.eval())
    found = fedscope.align(nets, data=(x, y), task="sequences")
    line = fedscope.line(nets, data=(x, y), task="sequences", points=3)
    middle = [round(float(beta), 6) for beta in line.beta].index(0.5)
    with torch.no_grad():
        for row, net in zip(found.averages[:2], nets, strict=True):
            own = functional.cross_entropy(net(x).transpose(1, 2), y)
            assert row.loss == pytest.approx(float(own), rel=1e-5)
            there = y != -100
            assert row.error == pytest.approx(float((net(x).argmax(2) != y)[there].double().mean()), abs=1e-12)
    mean = found.averages[2]
    assert (mean.loss, mean.error) == pytest.approx((line.loss[0, middle], line.error[0, middle]), rel=1e-5)
    assert mean.barrier == pytest.approx(mean.loss - np.mean([row.loss for row in found.averages[:2]]), rel=1e-6)
