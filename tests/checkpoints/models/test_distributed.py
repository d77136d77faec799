"""Folders of ``torch.distributed.checkpoint``, against torch's own reader, and made to be refused."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.models.files import is_model_folder, read_model

pytestmark = pytest.mark.same_elsewhere


def save(folder: Path, state: dict[str, Any]) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=str(folder), no_dist=True)
    return folder


def tensors() -> dict[str, torch.Tensor]:
    return {
        "a.weight": torch.arange(24.0).reshape(6, 4),
        "a.bias": torch.ones(6, dtype=torch.bfloat16),
        "n": torch.tensor(7),
    }


def in_pieces(folder: Path, name: str = "model.a.weight", cut: int = 2) -> Path:
    """Cut the rows of a tensor into two pieces in files of their own, as two processes write them."""
    path = folder / ".metadata"
    listed = pickle.loads(path.read_bytes())
    whole = tensors()["a.weight"]
    lies = {index: info for index, info in listed.storage_data.items() if index.fqn != name}
    chunks = []
    for k, (start, rows) in enumerate(((0, whole[:cut]), (cut, whole[cut:]))):
        made = io.BytesIO()
        torch.save(rows.clone(), made)
        (folder / f"__{k}_9.distcp").write_bytes(b"x" * 10 + made.getvalue())
        at = torch.Size([start, 0])
        chunks.append(ChunkStorageMetadata(at, rows.shape))
        lies[MetadataIndex(name, at, k)] = _StorageInfo(f"__{k}_9.distcp", 10, len(made.getvalue()))
    held = replace(listed.state_dict_metadata[name], chunks=chunks)
    known = {**listed.state_dict_metadata, name: held}
    path.write_bytes(pickle.dumps(replace(listed, state_dict_metadata=known, storage_data=lies)))
    return folder


def test_a_folder_is_one_model(tmp_path: Path) -> None:
    state = tensors()
    folder = save(tmp_path / "step-3", {"model": state, "optim": {"m": {"a.weight": torch.zeros(6, 4)}}, "step": 3})
    assert is_model_folder(folder)
    weights, note = read_model(folder)
    assert "1 tensor of bfloat16 is read as float32" in note
    arrays = weights.arrays()
    assert list(arrays) == list(state)
    for name, value in state.items():
        assert np.array_equal(arrays[name], value.float().numpy() if value.is_floating_point() else value.numpy())
    assert np.array_equal(read_model(f"{folder}:model")[0].parameters, weights.parameters)
    with pytest.raises(FedscopeError, match=r"holds no model under 'teacher'; it has model"):
        read_model(f"{folder}:teacher")


def test_pieces_are_put_together_as_torch_does(tmp_path: Path) -> None:
    folder = in_pieces(save(tmp_path / "cut", {"model": tensors()}))
    expected = {"model": {"a.weight": torch.empty(6, 4)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(expected, checkpoint_id=str(folder), no_dist=True)
    found = read_model(folder)[0].arrays()["a.weight"]
    assert np.array_equal(found, expected["model"]["a.weight"].numpy())
    assert np.array_equal(found, tensors()["a.weight"].numpy())


def test_folders_are_measured(tmp_path: Path) -> None:
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2)]
    folders = [save(tmp_path / f"net-{k}", {"model": net.state_dict()}) for k, net in enumerate(nets)]
    x = torch.randn(20, 3)
    data = x, (x[:, 0] > 0).long()
    lines = [fedscope.line(models, model=nets[0], data=data, points=3) for models in (nets, folders)]
    assert np.array_equal(lines[0].loss, lines[1].loss)


class Code:
    """A pickle of it would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("open('ran', 'w')",)


def _listed(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / ".metadata"
        path.write_bytes(pickle.dumps(change(pickle.loads(path.read_bytes()))))

    return apply


def _with(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(listed: Any) -> Any:
        known = listed.state_dict_metadata
        return replace(listed, state_dict_metadata={**known, name: replace(known[name], **changes)})

    return _listed(change)


def _lying(**changes: Any) -> Callable[[Path], None]:
    def change(listed: Any) -> Any:
        lies = {
            index: replace(info, **changes) if index.fqn == "model.a.weight" else info
            for index, info in listed.storage_data.items()
        }
        return replace(listed, storage_data=lies)

    return _listed(change)


def _overwrite(content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / ".metadata").write_bytes(content) and None


TURNED = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([4, 6]))
WIDE = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2**30, 2**12]))
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "code": (
        _overwrite(pickle.dumps(Code())),
        r"would run code \(builtins.eval\), and a checkpoint must never run code",
    ),
    "code inside": (_listed(lambda listed: replace(listed, planner_data=Code())), r"would run code \(builtins.eval\)"),
    "cut": (
        lambda folder: _cut(folder / ".metadata"),
        "is truncated or not the list of a distributed checkpoint; copy",
    ),
    "memo": (_overwrite(b"\x80\x04Nr\xff\xff\xff\x7f."), "not the list of a distributed checkpoint"),
    "no list": (_overwrite(pickle.dumps([1, 2])), "not the list of a distributed checkpoint"),
    "a part": (lambda folder: next(folder.glob("__0*")).rename(folder / "__1_0.distcp"), "__0_0.distcp is not there"),
    "size": (
        _with("model.a.weight", size=torch.Size([2**30, 2**12]), chunks=[WIDE]),
        r"a.weight takes 18 TB, but its pieces have .*; copy the folder again",
    ),
    "outside": (
        _with("model.a.weight", size=torch.Size([5, 4])),
        "has a piece of model.a.weight that lies outside of it; copy or save it again",
    ),
    "less": (_with("model.a.weight", size=torch.Size([7, 4])), "the pieces of model.a.weight do not make it up; copy"),
    "elsewhere": (_lying(relative_path="../a.distcp"), r"names '../a.distcp', which is not a file beside it; copy or"),
    "beyond": (_lying(offset=10**9), r"bytes, but a tensor is said to lie from 1,000,000,000 to .*; copy it again"),
    "another": (
        _with("model.a.weight", size=torch.Size([4, 6]), chunks=[TURNED]),
        r"has another tensor than .metadata says where a.weight lies; copy the folder again",
    ),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_or_runs_code_is_refused(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "bad", {"model": tensors()})
    apply, sentence = DAMAGES[damage]
    apply(folder)
    with pytest.raises(FedscopeError, match=sentence):
        read_model(folder)
    assert not (tmp_path / "ran").exists()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    folder = save(tmp_path / "bad", {"model": {"a": torch.ones(1000)}})
    path = next(folder.glob("*.distcp"))
    content = bytearray(path.read_bytes())
    at = content.find(torch.ones(4).numpy().tobytes())
    content[at + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(FedscopeError, match="is truncated or not a checkpoint of torch; copy or save it again"):
        read_model(folder)
