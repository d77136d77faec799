"""Questions asked within ``torch.inference_mode()``, and of tensors that were made there, have the answers that they
have outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import Layout, Weights
from fedscope.checkpoints.io.torch_state import ordinary_tensors


def net(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def made() -> tuple[list[nn.Module], Any, nn.CrossEntropyLoss]:
    """Networks, data and a criterion."""
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
    weight = torch.tensor([0.5, 1.0, 2.0]) * 1
    return [net(k) for k in range(3)], (x, torch.arange(30) % 3), nn.CrossEntropyLoss(weight=weight)


def evaluated(nets: list[nn.Module], data: Any) -> Any:
    samples = fedscope.Samples(data[0], data[1], 3, "toy", "test", np.arange(30))
    layout = Layout.of(nets[0])
    buffers = {name: value.numpy() for name, value in nets[0].named_buffers()}
    return fedscope.Evaluator(nets[0], samples).models([Weights(layout, np.zeros(layout.size, np.float32), buffers)])[0]


def recorded(nets: list[nn.Module], out: Path) -> Any:
    with fedscope.Recorder(out / "recorded") as recorder:
        recorder.round(start=nets[0], clients=nets, global_=nets[1])
    return fedscope.Run.open(out / "recorded").round(1).read("global").parameters


def trained(data: Any, task: Any, out: Path) -> Any:
    settings = {"model.hidden": [4], "run.evaluate_clients": 0}
    fixed: dict[str, Any] = {"clients": 2, "participation": 1.0, "rounds": 1, "epochs": 1, "partition": "iid"}
    run = fedscope.train(settings, out / "trained", data=data, task=task, **fixed)
    return run.round(1).read("global").parameters


QUESTIONS: dict[str, Callable[[list[nn.Module], Any, Any, Path], Any]] = {
    "line": lambda nets, data, task, _: fedscope.line(nets[:2], data=data, task=task, points=3).loss,
    "prepared": lambda nets, data, task, _: fedscope.line.prepare(nets[:2], data=data, points=3).answer().loss,
    "plane": lambda nets, data, task, _: fedscope.plane(nets, data=data, task=task, grid=3).loss,
    "cka": lambda nets, data, task, _: fedscope.cka(nets[:2], data=data).summary(),
    "sharpness": lambda nets, data, task, _: fedscope.sharpness(
        nets[0], data=data, task=task, draws=2, top=1, probes=2
    ).summary(),
    "align": lambda nets, data, task, _: fedscope.align(nets[:2], data=data).summary(),
    "evaluator": lambda nets, data, task, _: evaluated(nets, data),
    "recorder": lambda nets, data, task, out: recorded(nets, out),
    "train": lambda nets, data, task, out: trained(data, task, out),
}


@pytest.mark.parametrize("which", list(QUESTIONS))
def test_a_question_within_inference_mode_has_the_answer_that_it_has_outside(which: str, tmp_path: Path) -> None:
    ask = QUESTIONS[which]
    expected = ask(*made(), tmp_path / "a")
    with torch.inference_mode():
        theirs = made()
        assert theirs[1][0].is_inference()
        within = ask(*made(), tmp_path / "b")
    for found in (within, ask(*theirs, tmp_path / "c")):
        if isinstance(found, str):
            assert found == expected
        else:
            assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_the_callers_mode_is_what_it_was_and_errors_leave_it() -> None:
    with torch.inference_mode():
        with ordinary_tensors():
            assert not torch.is_inference_mode_enabled()
        with pytest.raises(fedscope.FedscopeError):
            fedscope.line([net(0)], data=made()[1])
        assert torch.is_inference_mode_enabled()
    with torch.no_grad(), ordinary_tensors():
        assert not torch.is_grad_enabled()


@pytest.mark.programs
def test_torch_is_not_loaded_for_it() -> None:
    code = (
        "import sys; from fedscope.checkpoints.io.torch_state import ordinary_tensors\n"
        "with ordinary_tensors(): pass\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
