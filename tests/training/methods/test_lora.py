"""The server lora in a training of adapters: it is told what scales them, as is who aggregates the round again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.decomposition.reaggregation.aggregate import reaggregate
from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort
from fedscope.training import branch

ABOUT = {"r": 2, "lora_alpha": 4, "target_parameters": ["mlp.gate_up_proj"]}
SMALL: dict[str, Any] = {"clients": 4, "participation": 1, "rounds": 2, "epochs": 1}


class Experts(nn.Module):
    """The factors of three experts, of whose rank PEFT's configuration alone tells."""

    rank = 2

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"lora_A": nn.Linear(4, 6, bias=False), "lora_B": nn.Linear(6, 3, bias=False)})
        self.peft_config = {"default": SimpleNamespace(**{**ABOUT, "r": self.rank})}

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.mlp["lora_B"](self.mlp["lora_A"](x))
        return made


class Torn(Experts):
    """Its configuration says a rank that its factors cannot have."""

    rank = 4


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(120, 4, generator=torch.Generator().manual_seed(0)), torch.arange(120) % 3


def test_a_training_tells_its_server_of_the_adapters(tmp_path: Path) -> None:
    run = fedscope.train(model=Experts, data=data(), server="lora", out=tmp_path / "run", **SMALL)
    assert run.info["adapters"] == ABOUT
    config = reaggregating_config(run, 2, "lora")
    assert {**ABOUT}.items() <= recorded_cohort(run, run.round(2), config).adapters.items()
    (made,) = reaggregate(run, 2, [config])
    assert np.array_equal(made.weights.parameters, run.round(2).read("global").parameters)
    (mean,) = reaggregate(run, 2, [reaggregating_config(run, 2, "fma")])
    assert not np.allclose(made.weights.parameters, mean.weights.parameters)


def test_an_older_run_goes_on_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say the rank; resumed or branched, its server learns no other one between two rounds."""
    out = tmp_path / "run"
    with monkeypatch.context() as earlier:
        earlier.setattr("fedscope.training.loop.train.adapters_of_module", lambda *_: {})
        begun = fedscope.train(model=Experts, data=data(), server="lora", out=out, until=1, **SMALL)
    branched = branch(begun, 1, {}, tmp_path / "branch", code={"model": Experts}, data=data())
    for run in (fedscope.resume(out, code={"model": Experts}, data=data()), branched):
        assert run.rounds == (1, 2)
        assert "adapters" not in run.info
        for number in run.rounds:
            (made,) = reaggregate(run, number, [reaggregating_config(run, number, "lora")])
            assert np.array_equal(made.weights.parameters, run.round(number).read("global").parameters)


def test_a_rank_that_factors_cannot_have_is_refused_before_training(tmp_path: Path) -> None:
    why = "mlp.lora_A.weight has 6 rows, and the rank is said to be 4"
    with pytest.raises(FedscopeError) as caught:
        fedscope.train(model=Torn, data=data(), server="lora", out=tmp_path / "run", **SMALL)
    assert str(caught.value) == (
        f"the server lora averages products of factors A and B, and {why}; use server='fma', or merge the adapters "
        "into their base"
    )
    assert not (tmp_path / "run").exists()
    run = fedscope.train(model=Torn, data=data(), server="fma", out=tmp_path / "run", **SMALL)
    with pytest.raises(FedscopeError) as caught:
        fedscope.adapters(run)
    assert str(caught.value) == (
        f"the adapters of {run.path} do not say how their factors multiply: {why}; train again with a model whose "
        "peft_config says the rank that they have, or merge them into their base"
    )
