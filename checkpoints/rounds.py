"""One round at rest: the file it is written to, once, and what can be read of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from . import delta
from .errors import FedscopeError, listed
from .hdf5 import read_row, reading, write_rows, writing
from .layout import Layout
from .metrics import from_json, to_json
from .weights import Weights

FORMAT, VERSION = "fedscope-round", 1
MODELS = ("start", "global", "averaged")

State = Mapping[str, Any]  # arrays, or mappings of them


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """A round as it is recorded; None where the recording policy or the method leaves a model out.

    Attributes:
        start, global_, averaged: models [P]; clients: [C, P] in the order of ``client_ids``.
        client_ids, client_samples, client_steps: [C] int64; client_loss: [C], mean over the local steps.
        weights: [C] float64, p.
        state: the server's, arrays or mappings of arrays by name.
        client_state: by name, this round's clients' [C, P].
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
    client_state: Mapping[str, Weights] = field(default_factory=dict)
    metrics: Mapping[str, float | int | None] = field(default_factory=dict)


def write_round(path: Path | str, record: RoundRecord, compression: Literal["none", "delta"] = "none") -> None:
    """Write a round's file durably; nothing is copied on the way to it, and it is never changed.

    Args:
        compression: ``delta`` stores float32 clients as bit-exact differences from ``start`` with shuffle + gzip-1.
    """
    compress = compression == "delta"
    with writing(path) as file:
        file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
        file.attrs["round"] = record.round
        file.attrs["metrics"] = to_json(record.metrics)
        for name, dtype in (("client_ids", "i8"), ("client_samples", "i8"), ("client_steps", "i8")):
            file[name] = np.asarray(getattr(record, name), dtype=dtype)
        file["client_loss"] = np.asarray(record.client_loss, dtype=np.float64)
        file["weights"] = np.asarray(record.weights, dtype=np.float64)
        for name, model in zip(MODELS, (record.start, record.global_, record.averaged), strict=True):
            if model is not None:
                _write_model(file.create_group(name), model)
        if record.clients is not None:
            _write_clients(file.create_group("clients"), record.clients, record.start, compress)
        _write_state(file, "state", record.state)
        for name, rows in record.client_state.items():
            _write_clients(file.create_group(f"client_state/{name}"), rows, None, compress)


def _write_model(group: Any, model: Weights) -> None:
    arrays = model.arrays()
    for entry in model.layout.entries:
        group.create_dataset(entry.name, data=np.asarray(arrays[entry.name], dtype=entry.dtype))


def _write_clients(group: Any, clients: Weights, start: Weights | None, compress: bool) -> None:
    layout = clients.layout
    for entry in layout.entries:
        if entry.kind == "buffer":
            rows = clients.buffers[entry.name].reshape(len(clients), prod(entry.shape))
            write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress)
            continue
        where = layout.slices[entry.name]
        rows = clients.parameters[:, where]
        if compress and start is not None and delta.encodes(np.dtype(entry.dtype)) and delta.encodes(rows.dtype):
            coded = delta.encode(start.parameters[where], rows)
            dataset = write_rows(group, entry.name, coded, entry.shape, "int32", compress)
            dataset.attrs["encoding"], dataset.attrs["dtype"] = "delta", "float32"
        else:
            write_rows(group, entry.name, rows, entry.shape, entry.dtype, compress)


def _write_state(parent: Any, name: str, state: State) -> None:
    for key, value in state.items():
        if isinstance(value, Mapping):
            parent.require_group(f"{name}/{key}")
            _write_state(parent, f"{name}/{key}", value)
        else:
            parent[f"{name}/{key}"] = np.asarray(value)


class Round:
    """A recorded round. Cheap to make: the file is opened, without locks, when something is read, and closed again.

    Args:
        path: of its file.
        layout: of the run's models.
        run_label: how to call the run in sentences, ``runs/ima``.
    """

    def __init__(self, path: Path | str, layout: Layout, run_label: str) -> None:
        self.path, self.layout, self.run_label = Path(path), layout, run_label

    def __repr__(self) -> str:
        return f"Round({self.label})"

    @property
    def number(self) -> int:
        """The round, counted from 1."""
        return int(self.path.stem)

    @property
    def label(self) -> str:
        """Its address, ``runs/ima@40``."""
        return f"{self.run_label}@{self.number}"

    @cached_property
    def _head(self) -> dict[str, Any]:
        """All that is small: a round's file never changes."""
        head: dict[str, Any] = {}
        with self._open() as file:
            for name in ("client_ids", "client_samples", "client_steps"):
                head[name] = np.asarray(file[name][()], dtype=np.int64) if name in file else None
            for name in ("client_loss", "weights"):
                head[name] = np.asarray(file[name][()], dtype=np.float64) if name in file else None
            head["metrics"] = from_json(file.attrs["metrics"]) if "metrics" in file.attrs else {}
            head["models"] = tuple(name for name in MODELS if name in file)
            head["has_clients"] = "clients" in file
        return head

    def _open(self) -> Any:
        return reading(self.path, FORMAT, VERSION, "a round of a fedscope run")

    def has(self, name: str) -> bool:
        """Whether the file holds a column of numbers: ``client_steps`` and ``client_loss`` may be missing."""
        return self._head[name] is not None

    def _need(self, name: str) -> np.ndarray:
        value: np.ndarray | None = self._head[name]
        if value is None:
            raise FedscopeError(f"{self.label} has no {name}: the program that recorded it left them out")
        return value

    @property
    def client_ids(self) -> np.ndarray:
        """Who took part, [C] int64, ascending."""
        return self._need("client_ids")

    @property
    def client_samples(self) -> np.ndarray:
        """How many samples each had, [C] int64."""
        return self._need("client_samples")

    @property
    def client_steps(self) -> np.ndarray:
        """How many local steps each took, [C] int64; a foreign run may lack them."""
        return self._need("client_steps")

    @property
    def client_loss(self) -> np.ndarray:
        """Each one's mean training loss over its local steps, [C]; a foreign run may lack them."""
        return self._need("client_loss")

    @property
    def weights(self) -> np.ndarray:
        """p, [C] float64."""
        return self._need("weights")

    @property
    def metrics(self) -> dict[str, float | int | None]:
        """The round's numbers by name; NaN where there is none."""
        return dict(self._head["metrics"])

    @property
    def models(self) -> tuple[str, ...]:
        """Which of ``start``, ``global`` and ``averaged`` were recorded."""
        models: tuple[str, ...] = self._head["models"]
        return models

    @property
    def has_clients(self) -> bool:
        """Whether the clients' models were recorded."""
        return bool(self._head["has_clients"])

    def read(self, which: str) -> Weights:
        """One model [P]: ``start``, ``global`` or ``averaged``.

        Raises:
            FedscopeError: it was not recorded; says which were.
        """
        if which not in self.models:
            have = listed([*self.models, *(["clients"] if self.has_clients else [])]) or "no model"
            raise FedscopeError(f"{self.label}/{which}: round {self.number} recorded {have}")
        with self._open() as file:
            return self._read(file[which], None)

    def clients(self, ids: Sequence[int] | np.ndarray | None = None) -> Weights:
        """The clients' models after local training, [C, P]: all in the order of ``client_ids``, or those asked for.

        Raises:
            FedscopeError: they were not recorded; a client that did not take part (says who did).
        """
        if not self.has_clients:
            raise FedscopeError(
                f"{self.label}: round {self.number} did not record its clients (record.clients leaves it out); "
                "`fedscope ls` says which rounds have them"
            )
        if ids is None:
            return self._read_clients(range(len(self.client_ids)))
        place = {int(k): i for i, k in enumerate(self.client_ids)}
        for k in ids:
            if int(k) not in place:
                raise FedscopeError(
                    f"{self.label}/client-{int(k)}: round {self.number} recorded clients {listed(place)}"
                )
        return self._read_clients([place[int(k)] for k in ids])

    def client(self, id: int) -> Weights:
        """One client's model [P]; only its row is read. Raises as :meth:`clients`."""
        return self.clients([id]).row(0)

    def state(self) -> dict[str, Any]:
        """The server's state after the round: arrays, or mappings of arrays, by name."""
        with self._open() as file:
            return _read_state(file["state"]) if "state" in file else {}

    def client_state(self, name: str) -> Weights:
        """A state of this round's clients, [C, P].

        Raises:
            FedscopeError: the method keeps none of that name; says which it keeps.
        """
        with self._open() as file:
            kept = sorted(file["client_state"]) if "client_state" in file else []
            if name not in kept:
                raise FedscopeError(f"{self.label} has no client state {name!r}; it keeps {listed(kept) or 'none'}")
            return self._read(file[f"client_state/{name}"], range(len(self.client_ids)))

    def _read_clients(self, rows: Sequence[int]) -> Weights:
        with self._open() as file:
            return self._read(file["clients"], rows, file.get("start"))

    def _read(self, group: Any, rows: Sequence[int] | None, start: Any = None) -> Weights:
        """The given rows of a group of clients, or with None a group's only model."""
        lead = () if rows is None else (len(rows),)
        parameters = np.empty((*lead, self.layout.size), self.layout.dtype)
        buffers: dict[str, np.ndarray] = {}
        for entry in self.layout.entries:
            dataset = group[entry.name]
            if dataset.shape[len(lead) :] != entry.shape:
                raise FedscopeError(
                    f"{self.path}: {group.name}/{entry.name} has shape {dataset.shape[len(lead) :]}, but run.json says "
                    f"{entry.shape}; the file belongs to another run"
                )
            if entry.kind == "parameter":
                out = parameters[..., self.layout.slices[entry.name]]
            else:
                buffers[entry.name] = np.empty((*lead, *entry.shape), entry.dtype)
                out = buffers[entry.name].reshape((*lead, prod(entry.shape)))
            if rows is None:
                read_row(dataset, None, out)
                continue
            first = self._first(dataset, start, entry.name)
            for i, k in enumerate(rows):
                if first is None:
                    read_row(dataset, k, out[i])
                else:
                    coded = np.empty(first.size, np.int32)
                    read_row(dataset, k, coded)
                    out[i] = delta.decode(first, coded)
        return Weights(self.layout, parameters, buffers)

    def _first(self, dataset: Any, start: Any, name: str) -> np.ndarray | None:
        """What a dataset's rows are differences from, [n]; None where they are stored as they are."""
        encoding = dataset.attrs.get("encoding")
        if encoding is None:
            return None
        if encoding != "delta":
            raise FedscopeError(
                f"{self.path}: {dataset.name} is encoded as {encoding!r}, which this fedscope does not know; "
                "upgrade it: pip install --upgrade fedscope"
            )
        if start is None:
            raise FedscopeError(f"{self.path} is damaged: its clients are differences from start, which is missing")
        return np.asarray(start[name][()]).reshape(-1)


def _read_state(group: Any) -> dict[str, Any]:
    return {
        name: _read_state(value) if isinstance(value, h5py.Group) else np.asarray(value[()])
        for name, value in group.items()
    }
