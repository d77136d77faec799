"""Ways to spoil an HDF5 file that stays one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .drawing import HUGE, Draw


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
    dtype = file[name].dtype if file[name].dtype.kind in "fiu" else np.dtype("f4")  # texts take no number
    _replaced(file, name, shape=shape, dtype=dtype, chunks=True, compression="gzip", fillvalue=0)


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
