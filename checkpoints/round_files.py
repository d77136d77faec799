"""A round as it is recorded, and the file it is written to, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import delta
from .checksums import Sums
from .hdf5 import write_rows, writing
from .layout import Layout
from .metrics import to_json
from .states import State, write_client_states, write_state
from .weights import Weights

FORMAT, VERSION = "fedscope-round", 1
MODELS = ("start", "global", "averaged")
_COLUMNS = {"client_ids": "i8", "client_samples": "i8", "client_steps": "i8", "client_loss": "f8", "weights": "f8"}


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


def write_round(
    path: Path | str,
    record: RoundRecord,
    compression: Literal["none", "delta"] = "none",
    layout: Layout | None = None,
) -> None:
    """Write a round's file durably, with its checksums; nothing is copied on the way to it, and it is never changed.

    Args:
        compression: ``delta`` stores float32 clients as bit-exact differences from ``start`` with shuffle + gzip-1.
        layout: of the run, where the record holds no model that would tell it.
    """
    models = (record.start, record.global_, record.averaged)
    layout = layout or next((model.layout for model in (*models, record.clients) if model is not None), None)
    compress, sums = compression == "delta", Sums(np.asarray(record.client_ids))
    with writing(path) as file:
        file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
        file.attrs["round"], file.attrs["metrics"] = record.round, to_json(record.metrics)
        sums.add_attribute(file, "round", record.round)
        sums.add_attribute(file, "metrics", to_json(record.metrics))
        for name, dtype in _COLUMNS.items():
            values = np.asarray(getattr(record, name), dtype=dtype)
            sums.add(file.create_dataset(name, data=values), values)
        for name, model in zip(MODELS, models, strict=True):
            if model is not None:
                _write_model(file.create_group(name), model, sums)
        if record.clients is not None:
            _write_clients(file.create_group("clients"), record.clients, record.start, compress, sums)
        if record.state:
            write_state(file.create_group("state"), record.state, layout, sums)
        if record.client_state:
            write_client_states(file.create_group("client_state"), record.client_state, layout, sums)
        sums.write(file)


def _write_model(group: Any, model: Weights, sums: Sums) -> None:
    arrays = model.arrays()
    for entry in model.layout.entries:
        values = np.asarray(arrays[entry.name], dtype=entry.dtype)
        sums.add(group.create_dataset(entry.name, data=values), values)


def _write_clients(group: Any, clients: Weights, start: Weights | None, compress: bool, sums: Sums) -> None:
    layout = clients.layout
    for entry in layout.entries:
        if entry.kind == "buffer":
            rows = clients.buffers[entry.name].reshape(len(clients), prod(entry.shape))
            sums.add_rows(write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress), rows)
            continue
        where = layout.slices[entry.name]
        rows = clients.parameters[:, where]
        if compress and start is not None and delta.encodes(np.dtype(entry.dtype)) and delta.encodes(rows.dtype):
            coded = delta.encode(start.parameters[where], rows)
            dataset = write_rows(group, entry.name, coded, entry.shape, "int32", compress)
            dataset.attrs["encoding"], dataset.attrs["dtype"] = "delta", "float32"
            sums.add_rows(dataset, coded)
        else:
            sums.add_rows(write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress), rows)
