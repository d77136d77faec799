"""The server lora in a training of adapters: it is told what scales them, as is who aggregates the round again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedscope
from fedscope.decomposition.reaggregation.aggregate import reaggregate
from fedscope.decomposition.reaggregation.requested_servers import reaggregating_config
from fedscope.decomposition.reaggregation.server_inputs import recorded_cohort

ABOUT = {"r": 2, "lora_alpha": 4, "target_parameters": ["mlp.gate_up_proj"]}
SMALL: dict[str, Any] = {"clients": 4, "participation": 1, "rounds": 2, "epochs": 1}


class Experts(nn.Module):
    """The factors of three experts, of whose rank PEFT's configuration alone tells."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"lora_A": nn.Linear(4, 6, bias=False), "lora_B": nn.Linear(6, 3, bias=False)})
        self.peft_config = {"default": SimpleNamespace(**ABOUT)}

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.mlp["lora_B"](self.mlp["lora_A"](x))
        return made


def test_a_training_tells_its_server_of_the_adapters(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 4, generator=draw), torch.arange(120) % 3
    run = fedscope.train(model=Experts, data=(x, y), server="lora", out=tmp_path / "run", **SMALL)
    assert run.info["adapters"] == ABOUT
    config = reaggregating_config(run, 2, "lora")
    assert {**ABOUT}.items() <= recorded_cohort(run, run.round(2), config).adapters.items()
    (made,) = reaggregate(run, 2, [config])
    assert np.array_equal(made.weights.parameters, run.round(2).read("global").parameters)
    (mean,) = reaggregate(run, 2, [reaggregating_config(run, 2, "fma")])
    assert not np.allclose(made.weights.parameters, mean.weights.parameters)
