"""A round as it is recorded, and the file it is written to, once: models, and what methods keep between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from ..io.checksums import ChecksumWriter
from ..io.hdf5 import write_hdf5
from ..models.weights import Layout, Weights
from . import run_identity
from .metrics import Metrics, to_json

FORMAT, VERSION = "fedscope-round", 1
#: the version of rounds whose clients start from models of their own; others keep the first, which every fedscope reads
OWN_STARTS = 2
MODELS = ("start", "global", "averaged")
#: groups that have a row a client: all of the round's, or a few of them, whose ids are a dataset of their own
CLIENTS, SAMPLED, SAMPLED_IDS = "clients", "sampled_clients", "sampled_client_ids"
#: of a round whose clients start from models of their own: these models, or where not all clients are kept those of the
#: kept ones, how they are mixed afterwards, and how many rounds old each start is
STARTS, SAMPLED_STARTS, MIXING, STALENESS = "starts", "sampled_starts", "mixing", "client_staleness"
_COLUMNS = {"client_ids": "i8", "client_samples": "i8", "client_steps": "i8", "client_loss": "f8", "weights": "f8"}

#: the attribute of a single number's dataset, and what it says of one of Python's or one of NumPy's scalars; an array
#: [] has none
NUMBER, PYTHON, SCALAR = "number", "python", "scalar"

#: arrays, models, or mappings of them
State = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """A round as it is recorded; None where the recording policy or the method leaves a model out.

    Attributes:
        start, global_, averaged: models [P]; clients: [C, P] in the order of ``client_ids``.
        client_ids, client_samples, client_steps: [C] int64; client_loss: [C], mean over the local steps.
        weights: [C] float64, p.
        state: the server's, arrays, models or mappings of them by name.
        client_state: by name, what this round's clients keep: models or vectors [C, P], or arrays [C, ...].
        metrics: numbers by column of ``metrics.csv``.
        all_client_test_error: [N], of every client of the run on its own test part; NaN of one without.
        sketch: [C, k] float32, of the clients' updates, see :func:`fedscope.checkpoints.rounds.sketches.sketch`.
        whole_sketches: [k] float64 each, by ``start``, ``global`` and ``averaged``, of these models themselves, see
            :func:`fedscope.checkpoints.rounds.sketches.sketch_whole`; also where a model is left out.
        sampled: [m, P], in place of ``clients``: those of the places ``sampled_places`` [m], ascending, among
            ``client_ids``.
    """

    round: int
    start: Weights | None
    clients: Weights | None
    global_: Weights | None
    averaged: Weights | None
    client_ids: np.ndarray
    client_samples: np.ndarray
    client_steps: np.ndarray
    client_loss: np.ndarray
    weights: np.ndarray
    state: State = field(default_factory=dict)
    client_state: Mapping[str, Weights | np.ndarray] = field(default_factory=dict)
    metrics: Mapping[str, float | int | None] = field(default_factory=dict)
    all_client_test_error: np.ndarray | None = None
    sketch: np.ndarray | None = None
    whole_sketches: Mapping[str, np.ndarray] = field(default_factory=dict)
    sampled: Weights | None = None
    sampled_places: np.ndarray | None = None


def write_round(
    path: Path | str,
    record: RoundRecord,
    compression: Literal["none", "delta"] = "none",
    layout: Layout | None = None,
    identity: str = "",
) -> None:
    """Write a round's file durably, with its checksums; nothing is copied on the way to it, and it is never changed.

    Args:
        compression: ``delta`` stores float32 clients as bit-exact differences from ``start`` with shuffle + gzip-1.
        layout: of the run, where the record holds no model that would tell it.
        identity: of the run, where it has one.
    """
    models = (record.start, record.global_, record.averaged)
    others = (record.clients, record.sampled)
    layout = layout or next((model.layout for model in (*models, *others) if model is not None), None)
    compress, sums = compression == "delta", ChecksumWriter(np.asarray(record.client_ids))
    with write_hdf5(path) as file:
        columns = {name: getattr(record, name) for name in _COLUMNS}
        write_metadata(file, record.round, record.metrics, columns, sums, identity)
        if record.all_client_test_error is not None:
            values = np.asarray(record.all_client_test_error, dtype="f8")
            sums.add(file.create_dataset("all_client_test_error", data=values), values)
        if record.sketch is not None:
            write_sketches(file, record.sketch, record.whole_sketches, sums)
        for name, model in zip(MODELS, models, strict=True):
            if model is not None:
                _write_model(file.create_group(name), model, sums)
        if record.clients is not None:
            _write_clients(file.create_group(CLIENTS), record.clients, record.start, compress, sums)
        if record.sampled is not None:
            ids = np.asarray(record.client_ids)[record.sampled_places]
            write_sampled_ids(file, ids, sums)
            _write_clients(file.create_group(SAMPLED), record.sampled, record.start, compress, sums, ids)
        if record.state:
            write_state(file.create_group("state"), record.state, layout, sums)
        if record.client_state:
            write_client_states(file.create_group("client_state"), record.client_state, layout, sums)
        sums.write(file)


def write_metadata(
    file: Any,
    number: int,
    metrics: Metrics,
    columns: Mapping[str, np.ndarray | None],
    sums: ChecksumWriter,
    identity: str = "",
    version: int = VERSION,
) -> None:
    """Write what a round's file says of itself, its numbers, and the columns of its clients but those that are None."""
    file.attrs["format"], file.attrs["version"] = FORMAT, version
    file.attrs["round"], file.attrs["metrics"] = number, to_json(metrics)
    sums.add_attribute(file, "round", number)
    sums.add_attribute(file, "metrics", to_json(metrics))
    if identity:
        file.attrs[run_identity.NAME] = identity
        sums.add_attribute(file, run_identity.NAME, identity)
    for name, dtype in _COLUMNS.items():
        if (column := columns.get(name)) is not None:
            values = np.asarray(column, dtype=dtype)
            sums.add(file.create_dataset(name, data=values), values)


def write_sketches(file: Any, clients: np.ndarray, whole: Mapping[str, np.ndarray], sums: ChecksumWriter) -> None:
    """Write the sketches of a round: of the clients' updates, and of its single models by name."""
    for name, values in {"sketch": clients, **{f"{name}_sketch": values for name, values in whole.items()}}.items():
        sums.add(file.create_dataset(name, data=values), values)


def write_own_starts(file: Any, staleness: np.ndarray | None, mixing: np.ndarray | None, sums: ChecksumWriter) -> None:
    """Write the numbers of a round whose clients start from models of their own, but those that are None."""
    for name, given, dtype in ((STALENESS, staleness, "i8"), (MIXING, mixing, "f8")):
        if given is not None:
            values = np.asarray(given, dtype)
            sums.add(file.create_dataset(name, data=values), values)


def write_sampled_ids(file: Any, ids: np.ndarray, sums: ChecksumWriter) -> None:
    """Write whose models a round's file has, where it has not those of all."""
    values = np.asarray(ids, "i8")
    sums.add(file.create_dataset(SAMPLED_IDS, data=values), values)


def _write_model(group: Any, model: Weights, sums: ChecksumWriter) -> None:
    arrays = model.arrays()
    for entry in model.layout.entries:
        values = np.asarray(arrays[entry.name], dtype=entry.dtype)
        sums.add(group.create_dataset(entry.name, data=values), values)


def _write_clients(
    group: Any,
    clients: Weights,
    start: Weights | None,
    compress: bool,
    sums: ChecksumWriter,
    ids: np.ndarray | None = None,
) -> None:
    layout = clients.layout
    for entry in layout.entries:
        if entry.kind == "buffer":
            rows = clients.buffers[entry.name].reshape(len(clients), prod(entry.shape))
            write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress, sums, ids)
            continue
        where = layout.slices[entry.name]
        rows = clients.parameters[:, where]
        if compress and start is not None and is_encoded(np.dtype(entry.dtype)) and is_encoded(rows.dtype):
            coded = _Coded(start.parameters[where], rows)
            dataset = write_rows(group, entry.name, coded, entry.shape, "int32", compress, sums, ids)
            dataset.attrs["encoding"], dataset.attrs["dtype"] = "delta", "float32"
        else:
            write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress, sums, ids)


def write_state(parent: Any, state: State, layout: Layout | None, sums: ChecksumWriter) -> None:
    """Write a state into a group: a vector [P] and a model parameter by parameter, as models lie, all else as it is.

    With a single number goes what it was: 0.5 leaves float32 arrays what they are, and ``np.array(0.5)`` does not.
    """
    for name, value in state.items():
        if isinstance(value, Mapping):
            write_state(parent.require_group(name), value, layout, sums)
        elif isinstance(value, Weights):
            group = _group(parent, name, "model", sums)
            for key, array in value.arrays().items():
                sums.add(group.create_dataset(key, data=np.asarray(array)), array)
        elif layout is not None and _is_vector(np.asarray(value), layout, 1):
            group = _group(parent, name, "vector", sums)
            for key, array in layout.views(np.asarray(value)).items():
                sums.add(group.create_dataset(key, data=array), array)
        else:
            dataset = parent.create_dataset(name, data=np.asarray(value))
            sums.add(dataset, value)
            if number := _number(value):
                dataset.attrs[NUMBER] = number
                sums.add_attribute(dataset, NUMBER, number)


def _number(value: Any) -> str:
    """Return what a single number is, "" of an array."""
    if isinstance(value, np.generic):  # before Python's: np.float64 is a float, too
        return SCALAR
    return PYTHON if isinstance(value, bool | int | float) else ""


def write_client_states(
    parent: Any, states: Mapping[str, Weights | np.ndarray], layout: Layout | None, sums: ChecksumWriter
) -> None:
    """Write what each of C clients keeps: models and vectors [C, P] by parameter, arrays [C, ...] as they are."""
    for name, rows in states.items():
        if isinstance(rows, Weights):
            group = _group(parent, name, "model", sums)
            _write_entries(group, rows.parameters, rows.layout, sums)
            for entry in rows.layout.buffers:
                values = rows.buffers[entry.name].reshape(len(rows), prod(entry.shape))
                write_rows(group, entry.name, values, entry.shape, entry.dtype, False, sums)
        elif layout is not None and _is_vector(rows, layout, 2):
            _write_entries(_group(parent, name, "vector", sums), rows, layout, sums)
        else:
            sums.add_rows(parent.create_dataset(name, data=rows), rows)


def _is_vector(array: np.ndarray, layout: Layout, dimensions: int) -> bool:
    return array.ndim == dimensions and array.shape[-1] == layout.size


def _group(parent: Any, name: str, kind: str, sums: ChecksumWriter) -> Any:
    group = parent.create_group(name)
    group.attrs["kind"] = kind
    sums.add_attribute(group, "kind", kind)
    return group


def _write_entries(group: Any, rows: np.ndarray, layout: Layout, sums: ChecksumWriter) -> None:
    for entry in layout.parameters:
        values = rows[:, layout.slices[entry.name]]
        write_rows(group, entry.name, values, entry.shape, rows.dtype.name, False, sums)


@dataclass(frozen=True)
class _Coded:
    """Clients' rows of a parameter as differences from its start, made when their turn comes."""

    start: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (encode(self.start, row) for row in self.rows)


class Rows(Protocol):
    """Rows that may be made, or given up, as they are taken."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __iter__(self) -> Iterator[np.ndarray]:
        """Each of them once."""
        ...


def write_rows(
    group: Any,
    name: str,
    rows: np.ndarray | Rows,
    shape: tuple[int, ...],
    dtype: str,
    compress: bool = False,
    sums: ChecksumWriter | None = None,
    ids: np.ndarray | None = None,
) -> Any:
    """One dataset [C, \\*shape] of rows [C, n], chunk (1, \\*shape), each row written straight from where it lies.

    Rows may be on the disk: one of them is in memory at a time.

    Args:
        sums: takes the rows' checksums; ids: whose rows they are, where not all clients'.
    """
    whole = (len(rows), *shape)
    dataset: Any
    if 0 in whole:
        dataset = group.create_dataset(name, data=np.empty(whole, dtype))
    elif compress:
        gzip: dict[str, Any] = {"shuffle": True, "compression": "gzip", "compression_opts": 1}
        dataset = group.create_dataset(name, shape=whole, dtype=dtype, chunks=(1, *shape), **gzip)
    else:
        dataset = group.create_dataset(name, shape=whole, dtype=dtype, chunks=(1, *shape))
    for k, row in enumerate(rows if sums is None else sums.passing(dataset, rows, ids)):
        if 0 in whole:
            continue
        values = np.ascontiguousarray(row, dtype=dtype)
        if compress:
            dataset[k] = values.reshape(shape)
        else:
            # no conversion and no selection: the chunk goes from the matrix to the file
            dataset.id.write_direct_chunk((k, *(0,) * len(shape)), values)
    return dataset


def encode(start: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Compute the zigzag code of the difference between bit patterns, int32, for float32; other dtypes stay as they
    are.

    d = bits(client) - bits(start) mod 2^32, stored as (d << 1) ^ (d >> 31): small differences of either sign become
    small codes, whose high bytes are zero, which shuffle + gzip shrinks (1.6 to 2.0 times as measured).

    Args:
        start: [P]; clients: [P] or [C, P].

    >>> encode(np.float32([1.0]), np.float32([[1.0], [1.0000001]]))
    array([[0],
           [2]], dtype=int32)
    """
    if not is_encoded(clients.dtype):
        return clients
    difference = clients.view(np.int32) - start.view(np.int32)
    return (difference << 1) ^ (difference >> 31)


def decode(start: np.ndarray, coded: np.ndarray) -> np.ndarray:
    """Invert :func:`encode`, bit for bit (NaN payloads and the sign of zero included)."""
    if not is_encoded(start.dtype):
        return coded
    code = coded.view(np.uint32)
    difference = (code >> 1).view(np.int32) ^ -(code & 1).view(np.int32)
    clients: np.ndarray = (start.view(np.int32) + difference).view(np.float32)
    return clients


def is_encoded(dtype: np.dtype[np.generic]) -> bool:
    """Check whether values of this dtype are stored as differences."""
    return dtype == np.dtype(np.float32)
