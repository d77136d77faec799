"""A few samples go through a network before a run's folder is made, so that a mended network can take its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError

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


class Dropped(Net):
    """Draws masks, and its training is that of any other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(64), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.drop(self.norm(x.flatten(1))))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Images, "the module fails on 1 of digits test"),
        (Nine, r"but digits test has 10 classes, so \[1, 10\] is needed"),
        (Frozen, "trains none of its parameters \\(requires_grad is False for all\\)"),
        (Blocked, r"has no gradient: its forward computes under torch.no_grad\(\), or detaches"),
        (Fails, r"cannot be trained on 8 of digits train: ValueError: no such mode$"),
    ],
)
def test_what_fails_leaves_no_folder(model: type[Net], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(model=model, out=tmp_path / "run", **FEW)
    assert not (tmp_path / "run").exists()
    assert fedscope.train(model=Net, out=tmp_path / "run", **FEW).rounds == (1,)


def test_a_task_that_the_data_do_not_suit_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match="digits"):
        fedscope.train(task="regression", out=tmp_path / "run", **IID)
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
