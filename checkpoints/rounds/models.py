"""Models in a round's file, read into memory: one of them, clients' rows, or a layer of all; and what methods keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import h5py
import numpy as np

from ..io.errors import FedscopeError
from ..io.hdf5 import attribute
from ..io.hdf5_validation import ValidatedDataset
from ..models.weights import BFLOAT16, Layout, TensorEntry, Weights, from_bfloat16
from .reader import RoundFile
from .writer import CLIENTS, NUMBER, PYTHON, SAMPLED, SCALAR, STARTS, decode, is_encoded


def read_models(file: RoundFile, group: str, places: Sequence[int] | None) -> Weights:
    """Read the models of a group that has a row a client, [C, P], by the places of their rows; or with None the only
    one of another group, as ``start``, [P]."""
    layout, lead = file.layout, () if places is None else (len(places),)
    # all of it is validated before room is made for any of it
    opened = [open_entry(file, group, entry, stacked=places is not None) for entry in layout.entries]
    parameters = np.empty((*lead, layout.size), layout.dtype)
    buffers: dict[str, np.ndarray] = {}
    for entry, (stored, code) in zip(layout.entries, opened, strict=True):
        if entry.kind == "parameter":
            out = parameters[..., layout.slices[entry.name]]
        else:
            buffers[entry.name] = np.empty((*lead, *entry.shape), entry.dtype)
            out = buffers[entry.name].reshape((*lead, prod(entry.shape)))
        if places is None:
            _row(file, stored, code, None, out)
            continue
        for i, place in enumerate(places):
            _row(file, stored, code, place, out[i])
    return Weights(layout, parameters, buffers)


def read_buffers(file: RoundFile, places: Sequence[int]) -> dict[str, np.ndarray]:
    """Read the clients' buffers, [C, \\*shape] by name, by the places of their rows."""
    buffers: dict[str, np.ndarray] = {}
    for entry in file.layout.buffers:
        stored, code = open_entry(file, "clients", entry, stacked=True)
        buffers[entry.name] = np.empty((len(places), *entry.shape), entry.dtype)
        for out, place in zip(buffers[entry.name].reshape(len(places), prod(entry.shape)), places, strict=True):
            _row(file, stored, code, place, out)
    return buffers


def read_layer(file: RoundFile, which: str, layer: str) -> Iterator[np.ndarray]:
    """Read a parameter of every client, flat and one after the other, or of their ``starts``; or of ``start``,
    ``global`` or ``averaged``."""
    entry = file.layout.by_name[layer]
    stacked = which in (CLIENTS, STARTS)
    stored, code = open_entry(file, which, entry, stacked=stacked)
    for place in range(len(file.ids)) if stacked else (None,):
        row = np.empty(prod(entry.shape), file.layout.dtype)
        _row(file, stored, code, place, row)
        yield row


def read_state(file: RoundFile, group: str = "state") -> dict[str, Any]:
    """Read arrays (vectors are [P]), numbers, models, or mappings of them, by name; {} where there is no state."""
    layout, state = file.layout, {}
    for name in file.names(group):
        path = f"{group}/{name}"
        kind = _said(file, path, "kind", "of what kind it is")
        if not file.validated.is_group(path):
            state[name] = _as_kept(file, path, file.array(path))
        elif kind == "model":
            entries = {e.name: file.array(f"{path}/{e.name}", "biuf", e.shape)[None] for e in layout.entries}
            state[name] = _as_stored(layout, entries).row(0)
        elif kind == "vector":
            parts = [file.array(f"{path}/{e.name}", "biuf", e.shape).reshape(-1) for e in layout.parameters]
            state[name] = np.concatenate(parts)
        else:
            state[name] = read_state(file, path)
    return state


def read_client_state(file: RoundFile, name: str, places: Sequence[int]) -> Weights | np.ndarray:
    """Read some clients' models or vectors [C, P], or arrays [C, ...], by the places of their rows."""
    path = f"client_state/{name}"
    kind = _said(file, path, "kind", "of what kind it is")
    if not file.validated.is_group(path):
        return file.rows(path, places)
    if kind == "vector":
        parts = [file.rows(f"{path}/{e.name}", places, e.shape) for e in file.layout.parameters]
        return np.concatenate([part.reshape(len(places), -1) for part in parts], axis=1)
    entries = file.layout.entries
    if all(file.validated.dataset(f"{path}/{e.name}", "biuf").dtype.newbyteorder("=") == e.dtype for e in entries):
        return read_models(file, path, places)
    return _as_stored(file.layout, {e.name: file.rows(f"{path}/{e.name}", places, e.shape) for e in entries})


def _as_stored(layout: Layout, rows: Mapping[str, np.ndarray]) -> Weights:
    """Make models [C, P] of the rows of all entries, in their own types: what a method keeps may be wider than the
    model."""
    parts = [rows[entry.name].reshape(len(rows[entry.name]), prod(entry.shape)) for entry in layout.parameters]
    return Weights(layout, np.concatenate(parts, axis=1), {e.name: rows[e.name] for e in layout.buffers})


def is_packed(file: RoundFile, path: str) -> bool:
    """Check whether a dataset is stored in another form than it has in memory."""
    if not file.validated.has(path):
        return False
    stored = file.validated.dataset(path, "biuf")
    return _is_coded(file, path) or stored.id.get_create_plist().get_nfilters() > 0


class ValueEncoding(NamedTuple):
    """A dataset's rows are no numbers but codes of this type; ``values`` makes numbers of a row, [n]."""

    dtype: np.dtype[Any]
    values: Callable[[np.ndarray], np.ndarray]


def open_entry(
    file: RoundFile, group: str, entry: TensorEntry, *, stacked: bool
) -> tuple[ValidatedDataset, ValueEncoding | None]:
    """Open an entry of a group of models; returns it and the encoding of its rows where they are no numbers: the bits
    of bfloat16, or differences from ``start``.

    Raises:
        FedscopeError: as :class:`~fedscope.checkpoints.io.hdf5_validation.ValidatedFile`; an encoding that is not
            known; a group with a tensor that the run's layout lacks.
    """
    file.refuse_unlisted(group)
    path, shape = f"{group}/{entry.name}", ((len(file.ids),) if stacked else ()) + entry.shape
    if entry.stored == BFLOAT16:
        bits = ValueEncoding(np.dtype(np.uint16), from_bfloat16)
        return file.validated.dataset(path, bits.dtype, shape), bits
    if not file.validated.has(path) or not _is_coded(file, path):
        return file.validated.dataset(path, np.dtype(entry.stored or entry.dtype), shape), None
    encoding = attribute(file.file[path], "encoding")
    if not isinstance(encoding, str) or encoding != "delta":
        raise FedscopeError(
            f"{file.path}: {path} is encoded as {encoding!r:.40}, which this fedscope does not know; upgrade it: "
            "pip install --upgrade fedscope"
        )
    if group not in (CLIENTS, SAMPLED) or entry.kind != "parameter" or not is_encoded(np.dtype(entry.dtype)):
        raise file.validated.damaged(
            f"{path} claims to be differences, which only float32 parameters of clients can be"
        )
    if not file.validated.has("start"):
        raise file.validated.damaged("its clients are differences from start, which is missing")
    start = file.array(f"start/{entry.name}", np.dtype(entry.dtype), entry.shape).reshape(-1)
    code = ValueEncoding(np.dtype(np.int32), lambda coded: decode(start, coded))
    return file.validated.dataset(path, code.dtype, shape), code


def _is_coded(file: RoundFile, path: str) -> bool:
    return bool(h5py.h5a.exists(file.file.id, b"encoding", obj_name=path.encode()))


def _row(file: RoundFile, stored: ValidatedDataset, code: ValueEncoding | None, place: int | None, out: Any) -> None:
    if code is None:
        file.read(stored, place, out)
        return
    coded = np.empty(out.size, code.dtype)
    file.read(stored, place, coded)
    out[...] = code.values(coded)


def _as_kept(file: RoundFile, path: str, value: np.ndarray) -> Any:
    """Return a single number as the method had it: Python's or a scalar of NumPy's where the file says so, else the
    array [] that it is. Earlier files say nothing of it.

    Raises:
        FedscopeError: it says what is not known.
    """
    number = "" if value.ndim else _said(file, path, NUMBER, "what number it is")
    if number not in ("", PYTHON, SCALAR):
        raise FedscopeError(
            f"{file.path}: {path} is a number of the kind {number!r:.40}, which this fedscope does not know; upgrade "
            "it: pip install --upgrade fedscope"
        )
    if number == PYTHON:
        return value.item()
    return value[()] if number == SCALAR else value


def _said(file: RoundFile, path: str, name: str, what: str) -> str:
    """Read what an attribute says of a part of a state, "" where it has none: of a group ``model``, ``vector``, or ""
    where it holds others."""
    if not file.validated.has(path):
        raise file.validated.damaged(f"it lacks {path}")
    said = ""
    if h5py.h5a.exists(file.file.id, name.encode(), obj_name=path.encode()):
        said = str(attribute(file.file[path], name))
        file.verify_attribute(f"{path}@{name}", said)
    elif file.has_table and f"{path}@{name}" in file.table.places:
        raise file.validated.damaged(f"{path} does not say any more {what}")
    return said
