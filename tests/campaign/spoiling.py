"""Ways to spoil a file, each drawn from a seeded generator."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Draw = np.random.Generator
CANARY = "hacked"
HUGE = 2**40


class Canary:
    """A pickle of it makes a file when it is loaded by whoever runs code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


def flip(path: Path, draw: Draw) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(int(draw.integers(1, 4))):
        data[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
    path.write_bytes(data)


def truncate(path: Path, draw: Draw) -> None:
    os.truncate(path, int(draw.integers(path.stat().st_size)))


def zero(path: Path, draw: Draw) -> None:
    data = bytearray(path.read_bytes())
    size = min(len(data), int(draw.integers(16, 4096)))
    start = int(draw.integers(len(data) - size + 1))
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def noise(path: Path, draw: Draw) -> None:
    path.write_bytes(draw.bytes(path.stat().st_size))


def empty(path: Path, draw: Draw) -> None:
    path.write_bytes(b"")


def longer(path: Path, draw: Draw) -> None:
    path.write_bytes(path.read_bytes() + draw.bytes(1000))


def missing(path: Path, draw: Draw) -> None:
    path.unlink()


def folder(path: Path, draw: Draw) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path, draw: Draw) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to("/dev/zero" if draw.random() < 0.7 else "/dev/null")


def plug(path: Path, draw: Draw) -> None:
    path.unlink()
    with suppress(PermissionError):  # elsewhere than on Linux only the administrator may: it is missing then
        os.mknod(path, stat.S_IFSOCK | 0o600)


def circle(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to(path.name)


def another(path: Path, draw: Draw) -> None:
    """A file of the same ending that belongs elsewhere."""
    near = sorted(p for p in path.parents[2].rglob(f"*{path.suffix}") if p != path and p.is_file())
    path.write_bytes(near[int(draw.integers(len(near)))].read_bytes() if near else b"another")


ANY = (flip, flip, flip, truncate, truncate, zero, zero, noise, empty, longer, missing)
STRANGE = (folder, pipe, device, plug, circle, another)

# --- HDF5 ---


def _datasets(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


def _hdf5(change: Callable[[h5py.File, str, Draw], None]) -> Callable[[Path, Draw], None]:
    def spoil(path: Path, draw: Draw) -> None:
        with h5py.File(path, "r+") as file:
            names = _datasets(file)
            change(file, names[int(draw.integers(len(names)))], draw)

    spoil.__name__ = change.__name__.lstrip("_")
    return spoil


def _replaced(file: h5py.File, name: str, **made: Any) -> None:
    kept = dict(file[name].attrs) if "DIMENSION_LIST" not in file[name].attrs else {}
    del file[name]
    dataset = file.create_dataset(name, **made)
    for key, value in kept.items():
        if key not in ("CLASS", "NAME", "REFERENCE_LIST"):
            dataset.attrs[key] = value


def _deleted(file: h5py.File, name: str, draw: Draw) -> None:
    del file[name if draw.random() < 0.7 else name.split("/")[0]]


def _exchanged(file: h5py.File, name: str, draw: Draw) -> None:
    names = [other for other in (*_datasets(file), *file) if not other.startswith(name) and not name.startswith(other)]
    same = [other for other in names if isinstance(file[other], h5py.Dataset) and file[other].shape == file[name].shape]
    other = (same or names)[int(draw.integers(len(same or names)))]
    file.move(name, "aside")
    file.move(other, name)
    file.move("aside", other)


def _models_exchanged(file: h5py.File, name: str, draw: Draw) -> None:
    groups = [key for key in ("start", "global", "averaged") if key in file]
    if len(groups) < 2:
        return _exchanged(file, name, draw)
    file.move(groups[0], "aside")
    file.move(groups[1], groups[0])
    file.move("aside", groups[1])
    return None


def _rows_swapped(file: h5py.File, name: str, draw: Draw) -> None:
    names = [n for n in _datasets(file) if file[n].shape and file[n].shape[0] > 1 and file[n].dtype.kind in "fiu"]
    if names:
        name = names[int(draw.integers(len(names)))]
        values = file[name][()]
        values[[0, 1]] = values[[1, 0]]
        file[name][...] = values


def _renamed(file: h5py.File, name: str, draw: Draw) -> None:
    file.move(name, name + "x")


def _text(file: h5py.File, name: str, draw: Draw) -> None:
    _replaced(file, name, data=np.full(file[name].shape or (), "word", dtype=object), dtype=h5py.string_dtype())


def _other_dtype(file: h5py.File, name: str, draw: Draw) -> None:
    kinds = ("f2", "f8", "i1", "u8", "c16", "S3", "V7")
    kind = kinds[int(draw.integers(len(kinds)))]
    words = kind[0] in "SV" or file[name].dtype.kind not in "fiu"
    values = np.zeros(file[name].shape, "S3" if words else kind) if words else np.asarray(file[name][()]).astype(kind)
    _replaced(file, name, data=values)


def _other_shape(file: h5py.File, name: str, draw: Draw) -> None:
    values = np.asarray(file[name][()])
    if values.dtype.kind in "fiu":
        flat = values.reshape(-1)
        shapes = (values[None], flat, flat[:-1], np.zeros((0, *values.shape[1:])), values.sum())
        _replaced(file, name, data=np.asarray(shapes[int(draw.integers(5))], dtype=values.dtype))


def _nan(file: h5py.File, name: str, draw: Draw) -> None:
    names = [other for other in _datasets(file) if file[other].dtype.kind == "f" and file[other].size]
    if names:
        dataset = file[names[int(draw.integers(len(names)))]]
        values = np.array(dataset[()])
        values.reshape(-1)[: int(draw.integers(1, values.size + 1))] = (np.nan, np.inf, -1e30)[int(draw.integers(3))]
        dataset[...] = values


def _out_of_range(file: h5py.File, name: str, draw: Draw) -> None:
    names = [other for other in _datasets(file) if file[other].dtype.kind in "iu" and file[other].size]
    if names:
        dataset = file[names[int(draw.integers(len(names)))]]
        values = np.array(dataset[()])
        new = (-1, 2**62, 10**6, -(2**63))[int(draw.integers(4))]
        values.reshape(-1)[int(draw.integers(values.size))] = new
        dataset[...] = values


def _huge(file: h5py.File, name: str, draw: Draw) -> None:
    shape = file[name].shape
    chunked = draw.random() < 0.5 and shape
    big = (HUGE, *shape[1:]) if draw.random() < 0.7 or not shape else (*shape[:-1], HUGE)
    _replaced(file, name, shape=big, dtype=file[name].dtype, chunks=(1, *big[1:-1], 1)[: len(big)] if chunked else None)


def _bomb(file: h5py.File, name: str, draw: Draw) -> None:
    shape = (2**14, 2**14) if draw.random() < 0.5 else (2**28, *file[name].shape[1:])
    _replaced(file, name, shape=shape, dtype=file[name].dtype, chunks=True, compression="gzip", fillvalue=0)


def _group_there(file: h5py.File, name: str, draw: Draw) -> None:
    del file[name]
    file.create_group(name)["inside"] = 1


def _dataset_there(file: h5py.File, name: str, draw: Draw) -> None:
    group = name.split("/")[0]
    del file[group]
    file[group] = np.arange(3.0)


def _soft_link(file: h5py.File, name: str, draw: Draw) -> None:
    del file[name]
    links = (h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"), h5py.ExternalLink("/etc/passwd", "/x"))
    file[name] = links[int(draw.integers(3))]


def _null(file: h5py.File, name: str, draw: Draw) -> None:
    _replaced(file, name, data=h5py.Empty(file[name].dtype))


def _attribute(file: h5py.File, name: str, draw: Draw) -> None:
    owners = [owner for owner in (file, file[name]) if len(owner.attrs)]
    if not owners:
        return
    owner = owners[int(draw.integers(len(owners)))]
    key = sorted(owner.attrs)[int(draw.integers(len(owner.attrs)))]
    del owner.attrs[key]
    values = (
        None,
        3,
        -1,
        2.5,
        np.arange(3),
        "word",
        "[" * 5000,
        '{"a": [}',
        b"\xff\xfe",
        "9" * 5000,
        np.array(["a"], "S3"),
    )
    value = values[int(draw.integers(len(values)))]
    if value is not None:
        owner.attrs[key] = value


_CHANGES = (
    *(_deleted, _exchanged, _models_exchanged, _rows_swapped, _renamed, _text, _other_dtype, _other_shape, _nan),
    *(_out_of_range, _huge, _bomb, _group_there, _dataset_there, _soft_link, _null, _attribute, _attribute),
)
HDF5 = tuple(map(_hdf5, _CHANGES))

# --- text: JSON, TOML, CSV ---

VALUES = (
    *('"word"', "-1", "0", "3.5", "[]", "{}", "true", "[1, 2]", '""', "1e400", "nan", "9" * 5000, "9" * 25, "[" * 3000),
    *('{"a": 1}', "null", '"\\u0000"', "[" * 3000 + "]" * 3000, '"' + "x" * 10**6 + '"', '"../../../etc/passwd"'),
)


def value(path: Path, draw: Draw) -> None:
    """Another value, of whatever type, in the place of one."""
    lines = path.read_text().split("\n")
    mark = {".json": ":", ".toml": "=", ".csv": ","}[path.suffix]
    at = [i for i, line in enumerate(lines) if mark in line]
    i = at[int(draw.integers(len(at)))]
    new = VALUES[int(draw.integers(len(VALUES)))]
    if mark == ",":
        cells = lines[i].split(",")
        cells[int(draw.integers(len(cells)))] = new.replace(",", "")
        lines[i] = ",".join(cells)
    else:
        lines[i] = lines[i].split(mark, 1)[0] + f"{mark} {new}" + ("," if lines[i].rstrip().endswith(",") else "")
    path.write_text("\n".join(lines))


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, below in items for place in ((*at, key), *_places(below, (*at, key)))]


def member(path: Path, draw: Draw) -> None:
    """Another value, or none, somewhere in a JSON file that stays one."""
    if path.suffix != ".json":
        return value(path, draw)
    tree = json.loads(path.read_text())
    places = _places(tree)
    *way, last = places[int(draw.integers(len(places)))]
    holder = tree
    for key in way:
        holder = holder[key]
    values = (None, "word", -1, 0, 3.5, [], {}, True, [1, 2], [[1]], float("nan"), 2**70, {"a": {"b": 1}}, [None], "")
    if draw.random() < 0.2:
        del holder[last]
    else:
        holder[last] = values[int(draw.integers(len(values)))]
    path.write_text(json.dumps(tree, indent=1))
    return None


def digit(path: Path, draw: Draw) -> None:
    """One digit for another: the least change that is believed most easily."""
    text = path.read_text()
    at = [i for i, letter in enumerate(text) if letter.isdigit()]
    i = at[int(draw.integers(len(at)))]
    path.write_text(text[:i] + str((int(text[i]) + int(draw.integers(1, 10))) % 10) + text[i + 1 :])


def line_gone(path: Path, draw: Draw) -> None:
    lines = path.read_text().split("\n")
    del lines[int(draw.integers(len(lines)))]
    path.write_text("\n".join(lines))


def no_text(path: Path, draw: Draw) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"\xff\xfe", 1))


def deep(path: Path, draw: Draw) -> None:
    inside = "[" * 100_000 + "]" * 100_000
    path.write_text({".json": f'{{"format": {inside}}}', ".toml": f"x = {inside}"}.get(path.suffix, inside))


TEXT = (value, value, value, member, member, member, digit, digit, line_gone, no_text, deep)

# --- archives and pickles ---


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


BY_SUFFIX: dict[str, tuple[Callable[[Path, Draw], None], ...]] = {
    ".h5": HDF5,
    ".nc": HDF5,
    ".json": TEXT,
    ".toml": TEXT,
    ".csv": TEXT,
    ".npz": NPZ,
    ".pt": (pickled, strange_tensors, strange_tensors, *map(_zip, (_part_gone, _parts_exchanged, _part_cut))),
    ".safetensors": (safe_header, safe_header),
}


def ways(path: Path) -> tuple[Callable[[Path, Draw], None], ...]:
    """The ways to spoil a file of this ending: half of them know its format."""
    own = BY_SUFFIX[path.suffix]
    return (*own, *own, *ANY, *STRANGE)
