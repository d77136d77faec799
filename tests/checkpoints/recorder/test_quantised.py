"""Quantised models: nothing is made of their codes, neither of files nor in a recorder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.models.quantised import refuse_quantised

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning"),
]


def int8(w: Tensor) -> dict[str, Tensor]:
    scale = w.abs().amax(1)
    codes = (w / scale[:, None] * 127).round().to(torch.int8)
    return {"l.weight": codes, "l.SCB": scale, "l.weight_format": torch.tensor(0, dtype=torch.uint8)}


def packed(w: Tensor) -> dict[str, Tensor]:
    return {
        "l.qweight": torch.full((8, 8), 3, dtype=torch.int32),
        "l.qzeros": torch.ones(1, 8, dtype=torch.int32),
        "l.scales": w[:, :8].half().contiguous(),
        "l.g_idx": torch.arange(64, dtype=torch.int32),
    }


def four_bits(w: Tensor) -> dict[str, Tensor]:
    return {
        "l.weight": torch.full((256, 1), 7, dtype=torch.uint8),
        "l.weight.absmax": w[:, 0].clone(),
        "l.weight.quant_map": torch.linspace(-1, 1, 16),
        "l.weight.quant_state.bitsandbytes__nf4": torch.ones(90, dtype=torch.uint8),
    }


def eight_bits(w: Tensor, scale: str = "weight_scale_inv") -> dict[str, Tensor]:
    s = w.abs().amax() / 448
    return {"l.weight": (w / s).to(torch.float8_e4m3fn), f"l.{scale}": s.reshape(1, 1)}


#: by what quantises: the tensors, and what the sentence says
KINDS: dict[str, tuple[Any, str]] = {
    "int8 of bitsandbytes": (int8, "l.weight is int8"),
    "GPTQ and AWQ": (packed, "l.qweight is int32"),
    "4 bits of bitsandbytes": (four_bits, "l.weight is uint8"),
    "fp8 of DeepSeek": (eight_bits, "l.weight is float8_e4m3fn and scaled by l.weight_scale_inv"),
    "fp8 of others": (
        lambda w: eight_bits(w, "weight_scale"),
        "l.weight is float8_e4m3fn and scaled by l.weight_scale",
    ),
    "compressed tensors": (
        lambda w: {"l.weight_packed": torch.ones(8, 8, dtype=torch.int32), "l.weight_scale": w[:, :1].clone()},
        "l.weight_packed is int32",
    ),
    "MXFP4": (
        lambda w: {"l_blocks": torch.ones(8, 16, dtype=torch.uint8), "l_scales": torch.ones(8, 2, dtype=torch.uint8)},
        "l_blocks is uint8",
    ),
    "quanto": (
        lambda w: {"l.weight._data": torch.ones(8, 8, dtype=torch.int8), "l.weight._scale": w[:, :1].clone()},
        "l.weight._data is int8",
    ),
    "HQQ": (lambda w: {"l.W_q": torch.ones(8, 8, dtype=torch.uint8), "l.scale": w[:, :1].clone()}, "l.W_q is uint8"),
    "codes alone": (lambda w: {"l.weight": (w * 9).to(torch.int8)}, "l.weight is int8"),
}


def state(kind: str, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    made: dict[str, Tensor] = KINDS[kind][0](torch.randn(8, 64))
    return {**made, "norm.weight": torch.ones(8)}


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_quantised_models_are_not_imported(tmp_path: Path, kind: str) -> None:
    for k in range(2):
        save_file(state(kind, k), tmp_path / f"{k}.safetensors")
    said = rf"0\.safetensors: {re.escape(KINDS[kind][1])}, so the weights are quantised, .*; save them as float32"
    with pytest.raises(FedscopeError, match=said):
        fedscope.import_models([tmp_path / f"{k}.safetensors" for k in range(2)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_models_are_not_recorded(tmp_path: Path, kind: str) -> None:
    with (
        fedscope.Recorder(tmp_path / "run") as recorder,
        pytest.raises(FedscopeError, match=rf"client 0: {re.escape(KINDS[kind][1])}, so the weights are quantised"),
    ):
        recorder.round(clients=[state(kind, 1), state(kind, 2)])
    assert not (tmp_path / "run" / "run.json").exists()


class Linear8(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3, dtype=torch.int8), requires_grad=False)
        self.register_buffer("SCB", torch.ones(3))


def test_a_quantised_module_is_not_recorded(tmp_path: Path) -> None:
    net = nn.Sequential(Linear8(), nn.Linear(3, 3))
    with (
        fedscope.Recorder(tmp_path / "run") as recorder,
        pytest.raises(FedscopeError, match=r"client 0: 0\.weight is int8, so the weights are quantised"),
    ):
        recorder.round(start=net, clients=[net, net])


def test_adapters_of_a_quantised_base_are_recorded(tmp_path: Path) -> None:
    """It is the architecture alone that is quantised, and no part of the models."""
    net = nn.ModuleDict({"base": Linear8(), "lora_A": nn.Linear(3, 2, False), "lora_B": nn.Linear(2, 3, False)})
    clients = [{f"lora_{k}.weight": net[f"lora_{k}"].weight.detach() + i for k in "AB"} for i in range(2)]
    with fedscope.Recorder(tmp_path / "run", model=net, lora_alpha=4) as recorder:
        recorder.round(clients=clients)
    assert fedscope.Run.open(tmp_path / "run").layout.names == ("lora_A.weight", "lora_B.weight")


def test_of_a_whole_model_with_adapters_these_alone_are_to_be_given(tmp_path: Path) -> None:
    """``dequantize`` of its base is another model."""
    factors = {f"q.lora_{k}.weight": torch.ones(2, 2) for k in "AB"}
    with (
        fedscope.Recorder(tmp_path / "run", lora_alpha=4) as recorder,
        pytest.raises(FedscopeError, match=r"stand for; give the adapters alone, as peft\.get_peft_model_state_dict\("),
    ):
        recorder.round(clients=[{**factors, **state("int8 of bitsandbytes", k)} for k in (1, 2)])
    with fedscope.Recorder(tmp_path / "run", lora_alpha=4, force=True) as recorder:
        recorder.round(clients=[factors, factors])


@pytest.mark.parametrize(
    "beside",
    [
        {"scale": torch.ones(3, 3, dtype=torch.uint8), "l.absmax": torch.ones(3, 3, dtype=torch.int8)},
        {"l.weight_scale_inv": torch.ones(1, 1)},
        {"SCB": torch.ones(8), "scaled_fp8": torch.ones(1)},
        {"loss.weight": torch.ones(3, dtype=torch.int32), "loss.scale": torch.ones(3)},
        {"loss.weight": torch.ones(3, dtype=torch.uint8), "loss.scale": torch.ones(3)},
        {"mask": torch.ones(8, 8, dtype=torch.uint8), "mask.scale": torch.ones(8)},
        {"norm.weight": torch.ones(8).to(torch.float8_e4m3fn), "norm.scale": torch.ones(1)},
    ],
)
def test_a_scale_is_one_beside_a_table_of_codes(beside: dict[str, Tensor]) -> None:
    refuse_quantised("a", {"l.weight": torch.randn(8, 8), **beside})


def test_the_mean_of_codes_would_have_been_another_one() -> None:
    """Why: codes of the client with the largest p with the mean of scales are no mean of the weights."""
    weights = [torch.randn(8, 64, generator=torch.Generator().manual_seed(k)) for k in (0, 1)]
    one, two = (int8(w) for w in weights)
    wrong = one["l.weight"].float() * ((one["l.SCB"] + two["l.SCB"]) / 2)[:, None] / 127
    mean = (weights[0] + weights[1]) / 2
    assert float((wrong - mean).norm() / mean.norm()) > 0.5


def test_what_is_not_quantised_is_taken(tmp_path: Path) -> None:
    """Whole numbers that are no weights, scales of plain weights, and narrow floats without a scale."""
    kept = {
        "l.weight": torch.randn(8, 8),
        "l.weight_scale": torch.ones(8, 1),
        "l.scales": torch.ones(8),
        "l.input_scale": torch.ones(1),
        "l.absmax": torch.ones(8),
        "position_ids": torch.arange(5)[None],
        "relative_position_index": torch.ones(4, 4, dtype=torch.int64),
        "l.weight_mask": torch.ones(8, 8, dtype=torch.bool),
        "num_blocks": torch.tensor(3),
        "my_blocks": torch.ones(3, 3, dtype=torch.int64),
        "class_weights": torch.ones(3, dtype=torch.int64),
    }
    for k in range(2):
        save_file(kept, tmp_path / f"{k}.safetensors")
        torch.save({"l.weight": torch.ones(3, 3).to(torch.float8_e4m3fn)}, tmp_path / f"{k}.pt")
    for ending in ("safetensors", "pt"):
        run = fedscope.import_models([tmp_path / f"{k}.{ending}" for k in range(2)], tmp_path / ending)
        assert run.round(1).read("global").arrays()["l.weight"].dtype == np.float32
    refuse_quantised("a", {"l.weight": 3, 4: torch.ones(3, dtype=torch.int8), "weight": np.int8(3)})
