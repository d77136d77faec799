"""A user's own model that draws random numbers by itself is told of, whatever draws them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.evaluation.samples import Samples
from fedscope.training.local.own_randomness import draws_by_itself


class Functional(nn.Module):
    """Dropout that is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


class Layered(Functional):
    """Dropout as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x))


class Recurrent(Functional):
    """Dropout within a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(64, 10, num_layers=2, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x[None])[0][0]


SAMPLES = Samples(torch.ones(3, 64), torch.tensor([0, 1, 2]), 10, "toy", "train", np.arange(3))


@pytest.mark.parametrize(("kind", "expected"), [(Functional, True), (Layered, False), (Recurrent, True)])
def test_whatever_draws_is_seen_and_the_stream_stays(kind: type[nn.Module], expected: bool) -> None:
    module = kind()
    before = torch.get_rng_state()
    assert draws_by_itself(module, SAMPLES) == expected
    assert torch.equal(torch.get_rng_state(), before)
    assert draws_by_itself(nn.Linear(5, 2), SAMPLES) is False, "what fails is told where it is trained"


@pytest.mark.parametrize(("kind", "expected"), [(Functional, True), (Layered, False)])
def test_the_user_and_the_run_are_told(kind: type[nn.Module], expected: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = draw.normal(size=(40, 64)).astype(np.float32), np.arange(40) % 10
    how = {"model": kind, "data": data, "rounds": 1, "clients": 2, "partition": "iid", "participation": 1.0}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        run = fedscope.train(out=tmp_path / "run", **how)
    said = [str(one.message) for one in told if "torch's own stream" in str(one.message)]
    assert len(said) == expected
    if expected:
        assert said[0].endswith(
            "draws random numbers from torch's own stream while it trains, so its numbers differ between devices and "
            "from run to run; use nn.Dropout, whose masks fedscope draws from run.seed"
        )
    info = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    assert info.get("own_draws", False) is expected
