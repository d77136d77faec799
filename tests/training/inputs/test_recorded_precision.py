"""Runs of models in float64, asked with an architecture as it is written: in float32."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import weight_norm

import fedscope
from fedscope.checkpoints import FedscopeError

X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def recorded(path: Path, dtype: torch.dtype) -> str:
    torch.manual_seed(0)
    models = [net().to(dtype) for _ in range(4)]
    with fedscope.Recorder(path, data=(X, Y)) as recorder:
        for end in models[2:]:
            recorder.round(start=models[0], clients=models[:3], global_=end, samples=[1, 2, 3])
    return str(path)


def table(result: Any) -> str:
    """All numbers of a result."""
    frames = result.to_pandas()
    return "".join(one.to_csv() for one in (frames.values() if isinstance(frames, dict) else [frames]))


@pytest.mark.parametrize("run", [torch.float64, torch.float32])
def test_an_architecture_in_another_precision_is_taken_in_that_of_the_run(run: torch.dtype, tmp_path: Path) -> None:
    """It was refused, for whole runs and for their models."""
    other = torch.float32 if run is torch.float64 else torch.float64
    path, given, same = recorded(tmp_path / "run", run), net().to(other), net().to(run)
    before = deepcopy(given.state_dict())
    asked = {
        "subsets": lambda model: fedscope.subsets(path, rounds=1, model=model),
        "line": lambda model: fedscope.line([f"{path}@1/global", f"{path}@2/global"], points=3, model=model),
        "decompose": lambda model: fedscope.decompose(path, model=model),
    }
    for name, ask in asked.items():
        assert table(ask(given)) == table(ask(same)), name
    assert all(torch.equal(value, before[key]) for key, value in given.state_dict().items()), "it is the user's own"
    assert {value.dtype for value in given.parameters()} == {other}


def test_a_run_of_several_types_is_refused_with_the_first_that_differs(tmp_path: Path) -> None:
    models = [dict(net().state_dict()) for _ in range(3)]
    for model in models:
        model["0.weight"] = model["0.weight"].double()
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(start=models[0], clients=models[1:], samples=[1, 2])
    with pytest.raises(FedscopeError, match=r"0\.weight has dtype float32, the other's float64$"):
        fedscope.subsets(tmp_path / "run", model=net())


@pytest.mark.parametrize("kind", ["weight norm", "pruned"])
def test_a_module_that_python_cannot_copy_is_taken_in_the_runs_precision(kind: str, tmp_path: Path) -> None:
    """It ended in a traceback of torch's deepcopy."""

    def made() -> nn.Module:
        layer = nn.Linear(3, 2)
        return weight_norm(layer) if kind == "weight norm" else prune.l1_unstructured(layer, "weight", 0.5)

    torch.manual_seed(0)
    models = [made().double() for _ in range(3)]
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(start=models[0], clients=models[1:], samples=[1, 2])
    path = str(tmp_path / "run")
    given, same = made(), made().double()
    given(torch.zeros(1, 3))
    found, wanted = (table(fedscope.subsets(path, rounds=1, model=one)) for one in (given, same))
    assert found == wanted


class Recurrent(nn.Module):
    """A network whose first state is in the default type."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x, torch.zeros(len(x), 4)))


def test_a_forward_that_makes_tensors_of_another_type_is_told_so(tmp_path: Path) -> None:
    """It was told to give other data, which were right."""
    models = [Recurrent().double() for _ in range(3)]
    with fedscope.Recorder(tmp_path / "run", data=(X, Y)) as recorder:
        recorder.round(start=models[0], clients=models[1:], samples=[1, 2])
    with pytest.raises(
        FedscopeError,
        match=r"^the module is in float64, as its weights are, and fails on arrays test \(.*\): its forward makes "
        r"tensors of another type; give them that of its input, as torch\.zeros\(n, dtype=x\.dtype\), or set "
        r"torch\.set_default_dtype\(torch\.float64\) as when they were trained$",
    ):
        fedscope.subsets(tmp_path / "run", model=Recurrent())
    torch.set_default_dtype(torch.float64)
    try:
        assert fedscope.subsets(tmp_path / "run", model=Recurrent()).rounds
    finally:
        torch.set_default_dtype(torch.float32)


def test_rounds_may_stand_in_a_dictionary_of_labels(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", torch.float32)
    run = fedscope.Run.open(path)
    line = fedscope.line({"first": run.round(1), "last": run.round(2)}, points=3, model=net())
    assert line.pairs == ("first - last",)


@pytest.mark.parametrize("kind", ["weight norm", "pruned"])
def test_modules_with_computed_weights_are_renamed_and_aligned(kind: str, tmp_path: Path) -> None:
    """Both ended in tracebacks: of torch's deepcopy, and of a weight that is no parameter."""

    def made() -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        old_weight_norm(module[0]) if kind == "weight norm" else prune.l1_unstructured(module[0], "weight", 0.5)
        module(torch.zeros(1, 3))
        return module

    torch.manual_seed(0)
    models = [made() for _ in range(3)]
    states = [{f"net.{name}": value.clone() for name, value in model.state_dict().items()} for model in models]
    found = []
    for path, given in (("wrapped", states), ("plain", models)):
        with fedscope.Recorder(tmp_path / path, data=(X, Y)) as recorder:
            recorder.round(start=given[0], clients=given[1:], samples=[1, 2])
        answer = fedscope.subsets(tmp_path / path, rounds=1, model=made())
        found.append(table(answer).replace(path, "run"))
    assert found[0] == found[1]
    assert fedscope.align(models[:2], data=(X, Y)).moved
