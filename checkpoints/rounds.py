"""One round at rest: what can be read of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from . import delta
from .errors import FedscopeError, listed
from .hdf5 import read_row, reading
from .layout import Layout
from .metrics import from_json
from .round_files import FORMAT, MODELS, VERSION
from .states import holds_arrays, read_client_arrays, read_state
from .weights import Weights


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
            head["has_mean"] = "state/average/clients_mean" in file
            head["client_states"] = tuple(sorted(file["client_state"])) if "client_state" in file else ()
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

    @property
    def is_packed(self) -> bool:
        """Whether its clients are stored in another form than they have in memory (``record.compression``)."""
        with self._open() as file:
            return any("encoding" in dataset.attrs or dataset.compression for dataset in file["clients"].values())

    def read(self, which: str) -> Weights:
        """One model [P]: ``start``, ``global`` or ``averaged``.

        Raises:
            FedscopeError: it was not recorded; says which were.
        """
        self.refuse_missing(which)
        with self._open() as file:
            return self._read(file[which], None)

    def refuse_missing(self, which: str) -> None:
        """Make sure that ``start``, ``global`` or ``averaged`` was recorded; raises as :meth:`read`."""
        if which not in self.models:
            have = listed([*self.models, *(["clients"] if self.has_clients else [])]) or "no model"
            raise FedscopeError(f"{self.label}/{which}: round {self.number} recorded {have}")

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
        return self._read_clients(self._places(ids))

    def _places(self, ids: Sequence[int] | np.ndarray) -> list[int]:
        place = {int(k): i for i, k in enumerate(self.client_ids)}
        for k in ids:
            if int(k) not in place:
                raise FedscopeError(
                    f"{self.label}/client-{int(k)}: round {self.number} recorded clients {listed(place)}"
                )
        return [place[int(k)] for k in ids]

    def client(self, id: int) -> Weights:
        """One client's model [P]; only its row is read. Raises as :meth:`clients`."""
        return self.clients([id]).row(0)

    def rows_of(self, which: str, layer: str) -> Iterator[np.ndarray]:
        """A parameter of every client, flat and one after the other; or of ``start``, ``global`` or ``averaged``."""
        with self._open() as file:
            dataset = file[which][layer]
            first = self._first(dataset, file.get("start"), layer)
            for k in range(len(self.client_ids)) if which == "clients" else (None,):
                where = self.layout.slices[layer]
                row = np.empty(where.stop - where.start, self.layout.dtype if first is None else np.int32)
                read_row(dataset, k, row)
                yield row if first is None else delta.decode(first, row)

    def state(self) -> dict[str, Any]:
        """The server's state after the round: arrays (vectors are [P]), models, or mappings of them, by name."""
        with self._open() as file:
            return read_state(file["state"], self.layout) if "state" in file else {}

    @property
    def has_mean(self) -> bool:
        """Whether the state of the average over rounds holds the clients' mean of the round."""
        return bool(self._head["has_mean"])

    @property
    def is_round(self) -> bool:
        """Whether it is the round's own file, not one of those kept beside it for a resume."""
        return self.path.parent.name == "rounds"

    @property
    def client_states(self) -> tuple[str, ...]:
        """The names of what this round's clients keep for their next participation."""
        names: tuple[str, ...] = self._head["client_states"]
        return names

    def client_state(self, name: str, ids: Sequence[int] | np.ndarray | None = None) -> Weights | np.ndarray:
        """What this round's clients keep: models or vectors [C, P], or arrays [C, ...], in the order asked for.

        Raises:
            FedscopeError: the method keeps none of that name; says which it keeps. A client that did not take part.
        """
        if name not in self.client_states:
            kept = listed(list(self.client_states)) or "none"
            raise FedscopeError(f"{self.label} has no client state {name!r}; it keeps {kept}")
        rows = range(len(self.client_ids)) if ids is None else self._places(ids)
        with self._open() as file:
            stored = file["client_state"][name]
            return read_client_arrays(stored, rows, self.layout) if holds_arrays(stored) else self._read(stored, rows)

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
