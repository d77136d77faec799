"""Models of a loop on the pretend accelerator that were not copied: what is read of them lies elsewhere each time."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedscope import Recorder
from fedscope.checkpoints import FedscopeWarning
from fedscope.checkpoints.recorder.coerce_models import coerce_model

pytestmark = pytest.mark.device

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def told(path: Path, **round_: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, Recorder(path / "run", force=True) as recorder:
        warnings.simplefilter("always")
        recorder.round(**round_)
    return [str(one.message).partition(": ")[2] for one in caught if one.category is FedscopeWarning]


@DTYPES
def test_models_that_were_not_copied_are_told(pretend: str, dtype: torch.dtype, tmp_path: Path) -> None:
    server, net, other, fourth = (nn.Linear(2, 2).to(pretend, dtype) for _ in range(4))
    for given, said in (
        ({"start": server.state_dict(), "clients": [net, other], "global_": server}, "start= and global_= are the sa"),
        ({"start": net.state_dict(), "clients": [net]}, "start= and the only client are the same tensors, so that its"),
        ({"start": server, "clients": [net, net.state_dict()]}, "the models of clients 0 and 1 are the same tensors,"),
        (
            {"starts": [other.state_dict(), net.state_dict()], "clients": [other, net]},
            "starts= and clients= are the sa",
        ),
    ):
        (one,) = told(tmp_path, **given)
        assert one.startswith(said)
    assert told(tmp_path, start=server, clients=[net, other], global_=fourth) == []


@DTYPES
def test_tied_tensors_are_one(pretend: str, dtype: torch.dtype) -> None:
    tied, free = (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(pretend, dtype) for _ in range(2))
    tied[1].weight = tied[0].weight
    turned = torch.ones(3, 2, dtype=dtype, device=pretend).T
    for model, pairs in (
        (tied, {"0.weight": ("1.weight",), "1.weight": ("0.weight",)}),
        (free, {}),
        ({"a": turned, "b": turned, "c": turned.clone()}, {"a": ("b",), "b": ("a",)}),
    ):
        assert coerce_model(model).expected().tied == pairs
