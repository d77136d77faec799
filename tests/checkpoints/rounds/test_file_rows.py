"""Rows of models that stay in their files are those that reading the files gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedscope.checkpoints import FedscopeError, read_file
from fedscope.checkpoints.models.expected import ExpectedModel
from fedscope.checkpoints.rounds import file_rows
from fedscope.checkpoints.rounds.disk_matrix import DiskMatrix, as_disk_matrix
from fedscope.checkpoints.rounds.file_rows import rows_of_files


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    torch.manual_seed(0)
    for k in range(4):
        state = net().state_dict()
        state["1.running_mean"] += k
        state["1.num_batches_tracked"] += k
        save_file(state, tmp_path / f"{k}.safetensors")
    return [str(tmp_path / f"{k}.safetensors") for k in range(4)]


def matrix(files: list[str]) -> DiskMatrix:
    made = rows_of_files(files, ExpectedModel.of(net()))
    assert made is not None
    found = as_disk_matrix(made.parameters)
    assert found is not None
    return found


@pytest.mark.parametrize("columns", [1, 4, 1000])
def test_rows_are_those_of_the_files(files: list[str], monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(file_rows, "_AHEAD", 40)
    expected = ExpectedModel.of(net())
    made = rows_of_files(files, expected)
    assert made is not None
    whole = [read_file(file, expected) for file in files]
    rows, seen = matrix(files), 0
    for where, values in rows.once(columns, lambda count: np.empty(count, np.float32)):
        assert where.start == seen
        seen = where.stop
        assert values.tobytes() == np.stack([one.parameters[where] for one in whole]).tobytes()
    assert seen == expected.layout.size
    assert rows[2].tobytes() == whole[2].parameters.tobytes()
    assert rows.read(1, slice(30, 44)).tobytes() == whole[1].parameters[30:44].tobytes()
    for name, values in made.buffers.items():
        assert values.tobytes() == np.stack([one.buffers[name] for one in whole]).tobytes()
        assert values.dtype == whole[0].buffers[name].dtype


def other(files: list[str], change: Any) -> None:
    state = net().state_dict()
    save_file(change(state), files[2])


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state | {"0.weight": state["0.weight"].half()},
        lambda state: state | {"0.weight": torch.zeros(5, 8)},
        lambda state: {name: values for name, values in state.items() if name != "2.bias"},
        lambda state: state | {"more": torch.zeros(1)},
        lambda state: {f"module.{name}": values for name, values in state.items()},
    ],
    ids=["half", "shape", "lacks", "more", "prefix"],
)
def test_other_models_are_none_of_them(files: list[str], change: Any) -> None:
    other(files, change)
    assert rows_of_files(files, ExpectedModel.of(net())) is None


def test_files_of_torch_are_none_of_them(files: list[str], tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "4.pt")
    assert rows_of_files([*files, str(tmp_path / "4.pt")], ExpectedModel.of(net())) is None


def test_more_files_than_may_be_open_are_none_of_them(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "OPEN", 3)
    assert rows_of_files(files, ExpectedModel.of(net())) is None
    monkeypatch.setattr(file_rows, "OPEN", 4)
    assert rows_of_files(files, ExpectedModel.of(net())) is not None


def test_a_file_that_ends_too_early_is_named(files: list[str]) -> None:
    rows = matrix(files)
    with Path(files[3]).open("r+b") as file:
        file.truncate(Path(files[3]).stat().st_size - 100)
    with pytest.raises(FedscopeError, match=r"3\.safetensors is truncated: it ends before byte \d+; copy or save"):
        rows[3]


def test_different_numbers_of_a_tied_tensor_are_compared_elsewhere(tmp_path: Path) -> None:
    module = net()
    module[2].weight = torch.nn.Parameter(torch.zeros(3, 5))
    module.register_parameter("also", module[2].weight)
    expected = ExpectedModel.of(module)
    state = {name: values.clone() for name, values in module.state_dict().items()}
    save_file(state, tmp_path / "both.safetensors")
    assert rows_of_files([str(tmp_path / "both.safetensors")], expected) is None
    save_file({name: values for name, values in state.items() if name != "also"}, tmp_path / "one.safetensors")
    assert rows_of_files([str(tmp_path / "one.safetensors")], expected) is not None


class Mixed(torch.nn.Module):
    """Parameters of two types, whose rows are widened to one."""

    def __init__(self, low: torch.dtype, high: torch.dtype) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(3, 2).to(low), torch.nn.Linear(2, 2).to(high)
        self.register_buffer("seen", torch.zeros(40, dtype=torch.bool))


@pytest.mark.parametrize("types", [(torch.float32, torch.float64), (torch.float16, torch.float32)])
def test_parameters_of_two_types_are_not_read_where_they_lie(
    tmp_path: Path, types: tuple[torch.dtype, torch.dtype]
) -> None:
    paths = [str(tmp_path / f"{k}.safetensors") for k in range(3)]
    for path in paths:
        save_file(Mixed(*types).state_dict(), path)
    assert rows_of_files(paths, ExpectedModel.of(Mixed(*types))) is None
    same = Mixed(types[0], types[0])
    for path in paths:
        save_file(same.state_dict(), path)
    assert rows_of_files(paths, ExpectedModel.of(same)) is not None
