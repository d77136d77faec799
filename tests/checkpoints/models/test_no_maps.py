"""Files on network mounts, which may have no maps of memory: they are read, and damaged ones are still damaged."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import save_file

from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.models.files import read_model, safetensors_shapes
from fedscope.checkpoints.models.same_weights import compare_files

pytestmark = pytest.mark.same_elsewhere

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "half": torch.ones(4, dtype=torch.bfloat16)}


@pytest.fixture(autouse=True)
def no_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmapped(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    def unopened(*_: Any, **__: Any) -> None:
        raise OSError("No such device (os error 19)")  # as safetensors says it, without a number

    monkeypatch.setattr(mmap, "mmap", unmapped)
    monkeypatch.setattr(safetensors, "safe_open", unopened)


def test_safetensors_are_read_without_maps(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(STATE, path, {"format": "pt"})
    weights, _ = read_model(path)
    assert {name: array.tolist() for name, array in weights.arrays().items()} == {
        name: value.tolist() for name, value in STATE.items()
    }
    assert safetensors_shapes(path) == {"weight": (2, 3), "half": (4,)}
    save_file(STATE, tmp_path / "b.safetensors", {"format": "pt", "of": "another"})
    assert compare_files([path], [tmp_path / "b.safetensors"]) == "same"
    save_file({**STATE, "half": STATE["half"] + 1}, tmp_path / "b.safetensors")
    assert compare_files([path], [tmp_path / "b.safetensors"]) == "other"


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_read_without_maps(tmp_path: Path, zipped: bool) -> None:
    torch.save(STATE, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    weights, _ = read_model(tmp_path / "a.pt")
    assert weights.arrays()["weight"].tolist() == STATE["weight"].tolist()


@pytest.mark.parametrize("left", [12, 60, -3])
@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_a_truncated_file_is_still_said_to_be_truncated(tmp_path: Path, ending: str, left: int) -> None:
    path = tmp_path / f"a{ending}"
    if ending == ".pt":
        torch.save(STATE, path, _use_new_zipfile_serialization=False)
    else:
        save_file(STATE, path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(FedscopeError, match=rf"a{ending} is truncated or not a .*; copy or save it again"):
        read_model(path)
    assert ending == ".pt" or left < 0 or safetensors_shapes(path) is None


@pytest.mark.parametrize("header", [b"[1]", b'{"a": 1}', b'{"a": {"shape": [1e999]}}', b"{" * 5000, b'{"a": {}}'])
def test_a_header_that_is_none(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert safetensors_shapes(path) is None
    with pytest.raises(FedscopeError, match=r"a.safetensors is truncated or not a safetensors file"):
        read_model(path)
