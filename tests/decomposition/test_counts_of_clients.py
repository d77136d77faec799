"""Means over the data of several clients, of tasks whose samples do not all count alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import Run
from fedscope.decomposition.matrix.result import Matrix

WEIGHT = torch.tensor([1.0, 3.0, 40.0])


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(3, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.table(x)))
        return out


def drawn(kind: str) -> tuple[Any, Any, Any, np.ndarray, np.ndarray]:
    """Return a task, its criterion, an architecture and data, whose clients' samples count very differently."""
    rng = np.random.default_rng(0)
    if kind == "sequences":
        x, y = rng.integers(0, 3, (60, 9)), rng.integers(0, 3, (60, 9))
        y[:20, 1:] = -100
        return "sequences", nn.CrossEntropyLoss(), Letters, x, y
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = np.where(np.arange(60) < 20, 0, np.where(np.arange(60) < 40, 1, 2))
    y[::5] = rng.integers(0, 3, 12)
    make = lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))  # noqa: E731
    criterion = nn.CrossEntropyLoss(WEIGHT) if kind == "weighted" else nn.CrossEntropyLoss()
    return (criterion if kind == "weighted" else None), criterion, make, x, y


@pytest.fixture(scope="module", params=["sequences", "weighted", "plain"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Run, dict[str, Any]]:
    task, _, make, x, y = drawn(request.param)
    parts = [np.arange(0, 20), np.arange(20, 33), np.arange(33, 60)]
    torch.manual_seed(0)
    run = fedscope.train(
        {},
        tmp_path_factory.mktemp("counts") / "run",
        data=((x, y), (x, y)),
        model=make,
        task=task,
        partition=parts,
        clients=3,
        participation=1,
        rounds=2,
        epochs=3,
        lr=0.3,
        batch=10,
    )
    asked = {"model": make(), "data": ((x, y), (x, y)), "rounds": 2, **({} if task is None else {"task": task})}
    return request.param, run, asked


def by_hand(kind: str, run: Run, which: str, rows: np.ndarray) -> tuple[float, float]:
    """Return torch's loss and the error of a model on some samples."""
    _, criterion, make, x, y = drawn(kind)
    net = make().double()
    one = run.round(2)
    weights = one.read("global") if which == "global" else one.clients().row(int(which))
    net.load_state_dict({name: torch.tensor(value).double() for name, value in weights.arrays().items()})
    inputs = torch.from_numpy(x[rows])
    with torch.no_grad():
        out = net(inputs if kind == "sequences" else inputs.double())
        out, target = (out.transpose(1, 2) if kind == "sequences" else out), torch.from_numpy(y[rows])
        loss = functional.cross_entropy(
            out, target, weight=None if criterion.weight is None else criterion.weight.double()
        )
    there = target != -100
    return float(loss), float((out.argmax(1) != target)[there].double().mean())


def test_an_average_on_its_members_data_has_the_loss_on_all_of_them(trained: tuple[str, Run, dict[str, Any]]) -> None:
    kind, run, asked = trained
    (found,) = fedscope.subsets(run, data_of="own", **asked).rounds
    # the server is a plain mean, so that the average of all is the global model
    loss, error = by_hand(kind, run, "global", np.arange(60))
    assert found.sizes[-1].loss_mean == pytest.approx(loss, rel=1e-5)
    assert found.sizes[-1].error_mean == pytest.approx(error, abs=1e-12)
    own = [by_hand(kind, run, str(k), part) for k, part in enumerate(np.split(np.arange(60), [20, 33]))]
    assert found.sizes[0].loss_mean == pytest.approx(np.mean([loss for loss, _ in own]), rel=1e-5)
    # where clients weigh alike, so do their losses
    (alike,) = fedscope.subsets(run, data_of="own", weights="uniform", **asked).rounds
    (places,) = (fedscope.subsets(run, data_of="clients", weights="uniform", **asked).rounds,)
    assert alike.sizes[-1].loss_mean == pytest.approx(np.mean([one.sizes[-1].loss_mean for one in places]), rel=1e-12)


def test_losses_at_home_add_up_to_the_loss_on_all_data(
    trained: tuple[str, Run, dict[str, Any]], tmp_path: Path
) -> None:
    kind, run, asked = trained
    result = fedscope.matrix(run, **asked)
    one = result.rounds[0]
    loss, error = by_hand(kind, run, "global", np.arange(60))
    assert one.weighted("loss")["global"] == pytest.approx(loss, rel=1e-5)
    assert one.weighted("error")["global"] == pytest.approx(error, abs=1e-9)
    assert bool(one.loss_counts) == (kind != "plain")
    result.save(tmp_path / "kept")
    again = Matrix.load(tmp_path / "kept")
    assert again.rounds[0].weighted("loss") == one.weighted("loss")
    assert ("loss_counts" in (tmp_path / "kept.matrix.json").read_text()) == (kind != "plain")
    # as results were kept before: the mean over clients with p
    before = replace(one, loss_counts=(), error_counts=())
    shares = np.array([20, 13, 27])[list(one.clients)] / 60
    row = one.table("loss")[one.models.index("global"), :-1]
    assert before.weighted("loss")["global"] == pytest.approx(float(shares @ row), rel=1e-12)
