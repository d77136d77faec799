"""Runs of earlier versions whose networks were trained without a part of them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeWarning


class Half(nn.Dropout):
    """Half of what is kept."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


class Bound(nn.Linear):
    """Binds its weights in forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = self.weight.data.clamp(-0.1, 0.1)
        return super().forward(x)


def own_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), Half(0.5), nn.Linear(8, 3))


def hooked() -> nn.Module:
    layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    layers[1].register_forward_hook(lambda module, given, output: 0.5 * output)
    return layers


def bound() -> nn.Module:
    return nn.Sequential(Bound(6, 8), nn.Linear(8, 3))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5, inplace=True), nn.Linear(8, 3))


class Kept(nn.Sequential):
    """Keeps its dropout in evaluation mode."""

    def train(self, mode: bool = True) -> Kept:
        super().train(mode)
        self[1].eval()
        return self


def kept() -> nn.Module:
    return Kept(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))


class Named(nn.Dropout):
    """Overrides nothing."""


def named() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), Named(0.5), nn.Linear(8, 3))


X, Y = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3


def resumed(out: Path, model: Any, *, earlier: bool) -> list[str]:
    """Begin a run and go on with it; returns what is told then."""
    how: dict[str, Any] = {"data": (X, Y), "code": {"model": model}}
    begun = fedscope.train(
        model=model, data=how["data"], clients=2, rounds=2, epochs=1, participation=1, partition="iid", out=out, until=1
    )
    if earlier:
        path = begun.path / "run.json"
        info = json.loads(path.read_text(encoding="utf-8"))
        info.pop("as_written", None)
        info.get("files", {}).pop("run.json", None)
        path.write_text(json.dumps(info), encoding="utf-8")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.resume(out, **how)
    return [str(one.message) for one in told if "an earlier version" in str(one.message)]


@pytest.mark.parametrize("model", [own_dropout, hooked, bound, kept])
def test_who_goes_on_with_such_a_run_is_told(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert resumed(out, model, earlier=True) == [
        f"{out} was begun by an earlier version of fedscope, whose clients trained this network otherwise (the "
        "forward, hooks or mode of its dropout layers, or what its forward puts in the place of its tensors): clients "
        "that are trained now differ from those of the run; train it anew in another folder"
    ]
    assert resumed(tmp_path / "new", model, earlier=False) == []


@pytest.mark.parametrize("model", [plain, named])
def test_nothing_is_told_of_networks_that_were_trained_alike(model: Any, tmp_path: Path) -> None:
    assert resumed(tmp_path / "run", model, earlier=True) == []
    info = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert "as_written" not in info
