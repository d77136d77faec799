"""A round's file made in memory from models as they were given: the one copy that recording makes of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from ..io.checksums import ChecksumWriter
from ..models.weights import BFLOAT16, Layout, TensorEntry
from ..rounds.metrics import Metrics
from ..rounds.writer import (
    CLIENTS,
    OWN_STARTS,
    SAMPLED,
    STARTS,
    VERSION,
    write_metadata,
    write_own_starts,
    write_rows,
    write_sampled_ids,
    write_sketches,
)
from .coerce_models import ModelTensors
from .own_starts import OwnStarts


def in_memory_file(
    number: int,
    layout: Layout,
    client_ids: Sequence[int],
    clients: Sequence[ModelTensors],
    single: Mapping[str, ModelTensors | None],
    columns: Mapping[str, np.ndarray | None],
    metrics: Metrics,
    *,
    kept: np.ndarray | None = None,
    sketches: tuple[np.ndarray, Mapping[str, np.ndarray]] | None = None,
    identity: str = "",
    own: OwnStarts | None = None,
    release: bool = False,
) -> memoryview:
    """Make the bytes of a round's file; the caller may change the models afterwards.

    Args:
        layout: of the run; models may have its entries in another order.
        client_ids: [C], ascending; ``clients`` are in their order.
        single: ``start`` and ``global``; None is left out.
        columns: by name, [C]; None is left out.
        kept: the places of the clients whose models are kept, ascending; by default all of them.
        sketches: of their updates, [C, k], and of single models by name, [k].
        identity: of the run, where it has one.
        own: the models that the clients started from, where these are not one; kept with the clients'.
        release: whether the clients' tensors are dropped as they are written, so that not two rounds are held.
    """
    ids, room = np.asarray(client_ids, np.int64), io.BytesIO()
    sums = ChecksumWriter(ids)
    places = np.arange(len(ids)) if kept is None else kept
    with h5py.File(room, "w") as file:
        version = VERSION if own is None else OWN_STARTS
        write_metadata(file, number, metrics, {"client_ids": ids, **columns}, sums, identity, version)
        if own is not None:
            write_own_starts(file, own.staleness, own.mixing, sums)
        if sketches is not None:
            write_sketches(file, *sketches, sums)
        for name, model in single.items():
            if model is not None:
                group = file.create_group(name)
                for entry in layout.entries:
                    values = np.asarray(model.arrays[entry.name])
                    dataset = group.create_dataset(entry.name, data=values)
                    _say_type(dataset, entry)
                    sums.add(dataset, values)
        some = 0 < len(places) < len(ids)
        if some:
            write_sampled_ids(file, ids[places], sums)
        stacked = {SAMPLED if some else CLIENTS: clients, **({} if own is None else {STARTS: own.models})}
        for name, models in stacked.items() if len(places) else ():
            group = file.create_group(name)
            for entry in layout.entries:
                dtype = "uint16" if entry.stored == BFLOAT16 else entry.stored or entry.dtype
                whole = [models[place].arrays[entry.name].reshape(-1) for place in places.tolist()]
                rows: Sequence[np.ndarray] = whole
                if release and models is clients:
                    rows = _Dropped(whole)
                    for client in clients:
                        client.arrays.pop(entry.name)
                _say_type(write_rows(group, entry.name, rows, entry.shape, dtype, sums=sums, ids=ids[places]), entry)
        sums.write(file)
    return room.getbuffer()


class _Dropped(Sequence[Any]):
    """Rows that are dropped as they are read, once: one tensor may be most of a model.

    Args:
        rows: emptied, so that nothing else holds them.
    """

    def __init__(self, rows: list[np.ndarray]) -> None:
        self._rows: list[np.ndarray | None] = list(rows)
        rows.clear()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        row, self._rows[place] = self._rows[place], None
        return row


def _say_type(dataset: Any, entry: TensorEntry) -> None:
    if entry.stored == BFLOAT16:
        dataset.attrs["dtype"] = BFLOAT16
