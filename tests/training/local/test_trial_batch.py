"""A few samples go through a network before a run's folder is made, so that a mended network can take its place."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.training.local.local_training import LocalTask, LocalUpdate, local_sgd
from fedscope.training.local.optimisers import may_need_no_gradient
from fedscope.training.local.trial_batch import trial_rows
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.settings.own_code import OwnCode

FEW: dict[str, Any] = {"clients": 4, "participation": 1, "rounds": 1, "epochs": 1, "method": "fma"}
IID: dict[str, Any] = {**FEW, "partition": "iid"}


class Net(nn.Module):
    """One layer, of which each kind below spoils something."""

    outputs = 10

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, self.outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


class Images(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Nine(Net):
    outputs = 9


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Blocked(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class Fails(Net):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError("no such mode")
        return super().forward(x)


class TwoHeads(Net):
    """Gives more in training than a task's loss takes."""

    def forward(self, x: Tensor) -> Any:
        out = super().forward(x)
        return {"out": out, "aux": 2 * out} if self.training else out


class Sixteen(Net):
    """Needs 16 samples in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 16:
            raise ValueError("too few")
        return super().forward(x)


class Draws(Net):
    """Draws from every stream that it finds."""

    own: ClassVar[torch.Generator] = torch.Generator().manual_seed(0)
    numpys: ClassVar[np.random.Generator] = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(1, generator=self.own)
        self.numpys.random(), random.random(), np.random.rand(), STREAM.random()  # noqa: NPY002
        return super().forward(x)


STREAM = random.Random(0)


@dataclass(frozen=True)
class Auxiliary(SGD):
    """Minimises the losses of both heads."""

    def train(self, task: LocalTask) -> LocalUpdate:
        def both(module: Any, x: Tensor, y: Tensor) -> Tensor:
            outputs = module(x)
            return task.loss_of(outputs["out"], y) + task.loss_of(outputs["aux"], y)

        return local_sgd(task, self, objective=both)


@dataclass(frozen=True)
class ZerothOrder(SGD):
    """Steps along differences of losses."""

    def train(self, task: LocalTask) -> LocalUpdate:
        bench = task.place
        z = torch.randn(bench.w.shape, generator=torch.Generator().manual_seed(0))

        def difference(x: Tensor, y: Tensor) -> float:
            losses = []
            with torch.no_grad():
                for step in (1e-3, -2e-3):
                    bench.w.add_(z, alpha=step)
                    losses.append(float(task.loss_of(bench.module(x), y)))
                bench.w.add_(z, alpha=1e-3)
                bench.g.copy_((losses[0] - losses[1]) / 2e-3 * z)
            return losses[0]

        return local_sgd(task, self, gradient=difference)


class Dropped(Net):
    """Draws masks, and its training is that of any other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(64), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.drop(self.norm(x.flatten(1))))


class Convolved(nn.Module):
    """Takes images [c, h, w], as torch's convolutions do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).mean(dim=(2, 3)))


def test_images_with_their_channels_last_are_told_to_a_network_of_ones_own(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((40, 9, 9, 3), np.float32), np.arange(40) % 2
    moved = r"takes \(convolutions take \[c, h, w\], of these images np\.moveaxis\(x, 3, 1\)\), or a module"
    with pytest.raises(FedscopeError, match=moved):
        fedscope.train(data=((x, y), (x, y)), model=Convolved, out=tmp_path / "run", **IID)
    right = np.moveaxis(x, 3, 1)
    assert fedscope.train(data=((right, y), (right, y)), model=Convolved, out=tmp_path / "run", **IID).rounds == (1,)
    with pytest.raises(FedscopeError, match=r"give data that it takes, or a module that takes these"):
        fedscope.train(data=((right[:, :2], y),) * 2, model=Convolved, out=tmp_path / "other", **IID)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Images, "the module fails on 1 of digits test"),
        (Nine, r"but digits test has 10 classes, so \[1, 10\] is needed"),
        (Frozen, "trains none of its parameters \\(requires_grad is False for all\\)"),
        (Blocked, r"has no gradient: its forward computes under torch.no_grad\(\), or detaches"),
        (Fails, r"cannot be trained on 20 of digits train: ValueError: no such mode$"),
    ],
)
def test_what_fails_leaves_no_folder(model: type[Net], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(model=model, out=tmp_path / "run", **FEW)
    assert not (tmp_path / "run").exists()
    assert fedscope.train(model=Net, out=tmp_path / "run", **FEW).rounds == (1,)


def test_a_task_that_the_data_do_not_suit_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"digits.* but a sequence has a class at each position"):
        fedscope.train(task="sequences", out=tmp_path / "run", **IID)
    assert not (tmp_path / "run").exists()


def test_a_loss_without_a_gradient_leaves_no_folder(tmp_path: Path) -> None:
    def wrong(outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.argmax(1) != y).float()

    with pytest.raises(FedscopeError, match="has no gradient"):
        fedscope.train(task=wrong, out=tmp_path / "run", **IID)
    assert not (tmp_path / "run").exists()


def test_the_trial_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    tried = fedscope.train(model=Dropped, out=tmp_path / "tried", **FEW)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr("fedscope.training.loop.train.try_batch", lambda *_, **__: None)
    plain = fedscope.train(model=Dropped, out=tmp_path / "plain", **FEW)
    one, other = (run.round(1).read("global") for run in (tried, plain))
    assert torch.equal(torch.from_numpy(one.parameters), torch.from_numpy(other.parameters))
    assert all((one.buffers[name] == other.buffers[name]).all() for name in one.buffers)


@pytest.mark.parametrize(
    ("model", "client"),
    [(TwoHeads, Auxiliary), (Blocked, ZerothOrder), (Sixteen, SGD)],
)
def test_what_can_be_trained_is_trained(model: type[Net], client: type[SGD], tmp_path: Path) -> None:
    few = {name: value for name, value in FEW.items() if name != "method"}
    run = fedscope.train(model=model, client=client(lr=0.001), out=tmp_path / "run", **{**few, "rounds": 2})
    assert run.rounds == (1, 2)
    assert (run.round(2).read("global").parameters != run.round(1).read("global").parameters).any()


def test_whose_code_takes_the_gradient() -> None:
    def own(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters)

    takes = [SGD(), SGD(optimiser="muon"), SGD(optimiser=OwnCode.of("torch.optim:Adam", torch.optim.Adam))]
    assert not any(may_need_no_gradient(method) for method in takes)
    others = [ZerothOrder(), SGD(optimiser=OwnCode.of("mine:own", own)), SGD(optimiser="mine:own")]
    assert all(may_need_no_gradient(method) for method in others)


def test_the_trial_is_a_batch_of_one_client_in_no_order() -> None:
    clients = [np.arange(100), np.arange(100, 300), np.arange(300, 390)]
    drawn = [trial_rows(SGD(batch=batch), clients, seed) for batch in (20, 80) for seed in range(8)]
    assert [len(rows) for rows in drawn if rows is not None] == [20] * 8 + [64] * 8
    for rows in drawn:
        assert rows is not None
        assert len(set(rows)) == len(rows)
        assert sum(set(rows) <= set(own) for own in clients) == 1
        assert rows.max() - rows.min() >= len(rows)  # not the first ones, which may all be of one class
    few = trial_rows(SGD(batch=20), [*clients, np.arange(390, 393)], 0)
    assert few is not None
    assert len(few) == 3
    assert trial_rows(SGD(), [*clients, np.arange(0)], 0) is None
    assert trial_rows(ZerothOrder(), clients, 0) is None


def test_the_trial_draws_from_no_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever else calls the network, it goes on after the trial where it was before."""
    seen = []

    def streams() -> list[Any]:
        numpys = np.random.get_state()  # noqa: NPY002
        own = [Draws.own.get_state().tolist(), Draws.numpys.bit_generator.state]
        return [*own, random.getstate(), STREAM.getstate(), str(numpys), numpys[2]]

    from fedscope.training.loop.train import try_batch

    def watched(*arguments: Any) -> None:
        before = streams()
        try_batch(*arguments)
        seen.append(before == streams())

    monkeypatch.setattr("fedscope.training.loop.train.try_batch", watched)
    fedscope.train(model=Draws, out=tmp_path / "run", **FEW)
    assert seen == [True]


def test_a_client_of_ones_own_is_told_that_a_network_is_frozen_whole(tmp_path: Path) -> None:
    few = {**{name: value for name, value in FEW.items() if name != "method"}, "rounds": 2}
    with pytest.warns(FedscopeWarning, match="trains none of its parameters .* nothing but the client.s own"):
        run = fedscope.train(model=Frozen, client=ZerothOrder(), out=tmp_path / "run", **few)
    first, second = (run.round(number).read("global").parameters for number in (1, 2))
    np.testing.assert_array_equal(first, second)
