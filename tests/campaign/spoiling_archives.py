"""Ways to spoil archives of arrays, pickles and safetensors; some hold code, which makes a file where it is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .drawing import CANARY, HUGE, Draw


class Canary:
    """A pickle of it makes a file when it is loaded by whoever runs code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


def _npy(header: str, payload: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + payload


def _zip(change: Callable[[dict[str, bytes], Draw], None]) -> Callable[[Path, Draw], None]:
    def spoil(path: Path, draw: Draw) -> None:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        change(parts, draw)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if change in (_stretched,) else zipfile.ZIP_STORED) as out:
            for name, data in parts.items():
                out.writestr(name, data)

    spoil.__name__ = change.__name__.lstrip("_")
    return spoil


def _one(parts: dict[str, bytes], draw: Draw) -> str:
    return sorted(parts)[int(draw.integers(len(parts)))]


def _part_gone(parts: dict[str, bytes], draw: Draw) -> None:
    del parts[_one(parts, draw)]


def _parts_exchanged(parts: dict[str, bytes], draw: Draw) -> None:
    one, other = _one(parts, draw), _one(parts, draw)
    parts[one], parts[other] = parts[other], parts[one]


def _part_cut(parts: dict[str, bytes], draw: Draw) -> None:
    name = _one(parts, draw)
    parts[name] = parts[name][: int(draw.integers(len(parts[name]) + 1))]


def _huge_header(parts: dict[str, bytes], draw: Draw) -> None:
    name = _one(parts, draw)
    parts[name] = _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({HUGE},), }}", b"\0" * 64)


def _stretched(parts: dict[str, bytes], draw: Draw) -> None:
    """Half a gigabyte of zeros, deflated to half a megabyte."""
    name = _one(parts, draw)
    parts[name] = _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**27},), }}", bytes(2**29))


def _objects(parts: dict[str, bytes], draw: Draw) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Canary()], dtype=object), allow_pickle=True)
    parts[_one(parts, draw)] = buffer.getvalue()


def _other_array(parts: dict[str, bytes], draw: Draw) -> None:
    arrays = (
        np.full(3, np.nan),
        np.zeros((0, 4)),
        np.array("word"),
        np.array(1 + 2j),
        np.zeros(5, "M8[s]"),
        np.arange(7),
    )
    buffer = io.BytesIO()
    np.save(buffer, arrays[int(draw.integers(len(arrays)))])
    parts[_one(parts, draw)] = buffer.getvalue()


NPZ = tuple(
    map(_zip, (_part_gone, _parts_exchanged, _part_cut, _huge_header, _stretched, _objects, _other_array, _other_array))
)


def pickled(path: Path, draw: Draw) -> None:
    """A pickle with code in it, as torch saves it, or a bare one."""
    import torch

    if draw.random() < 0.5:
        torch.save({"w": Canary()}, path)
    else:
        path.write_bytes(pickle.dumps({"w": Canary()}))


def strange_tensors(path: Path, draw: Draw) -> None:
    import torch

    one = torch.zeros(3)
    made = ({}, [], 3, {"w": 3}, {1: one}, {"w": one.to_sparse()}, {"w": one.to(torch.complex64)}, {"w": one.half()},
            {"w": torch.empty(3, device="meta")}, {"w": one.expand(2**20, 3)}, {"w": torch.zeros(1).expand(2**36)},
            {"state_dict": {"state_dict": {"w": one}}}, {"w": torch.full((3,), float("nan"))})  # fmt: skip
    torch.save(made[int(draw.integers(len(made)))], path)


def safe_header(path: Path, draw: Draw) -> None:
    """Another header of a .safetensors: a huge length, huge shapes, wrong types, no JSON."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, payload = json.loads(data[8 : 8 + size]), data[8 + size :]
    if draw.random() < 0.3:
        path.write_bytes(struct.pack("<Q", (2**40, 2**63, 0, 3)[int(draw.integers(4))]) + data[8:])
        return
    name = sorted(key for key in header if key != "__metadata__")[0]
    key, new = (
        *(("shape", [HUGE]), ("shape", -1), ("shape", [2, -3]), ("dtype", "F99"), ("dtype", "F16"), ("dtype", 3)),
        *(("data_offsets", [0, HUGE]), ("data_offsets", [8, 4]), ("data_offsets", None)),
    )[int(draw.integers(9))]
    header[name][key] = new
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


TORCH = (pickled, strange_tensors, strange_tensors, *map(_zip, (_part_gone, _parts_exchanged, _part_cut)))
