"""A round's file made in memory from models as they were given: the one copy that recording makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from ..io.blocks import BlockFile
from ..io.checksums import ChecksumWriter
from ..models.weights import BFLOAT16, Layout, TensorEntry
from ..rounds.metrics import Metrics
from ..rounds.writer import (
    CLIENTS,
    OWN_STARTS,
    SAMPLED,
    SAMPLED_STARTS,
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
) -> Iterator[memoryview]:
    """Make the bytes of a round's file; the caller may change the models afterwards.

    What is returned yields each block of them once, and forgets it then.

    Args:
        layout: of the run; models may have its entries in another order.
        client_ids: [C], ascending; ``clients`` are in their order.
        single: ``start`` and ``global``; None is left out.
        columns: by name, [C]; None is left out.
        kept: the places of the clients whose models are kept, ascending; by default all of them.
        sketches: of their updates, [C, k], and of single models by name, [k].
        identity: of the run, where it has one.
        own: the models that the clients started from, where these are not one; those of the clients that are kept are.
        release: whether all tensors are dropped as they are written, so that not two rounds are held.
    """
    ids, room = np.asarray(client_ids, np.int64), BlockFile()
    sums = ChecksumWriter(ids)
    places = np.arange(len(ids)) if kept is None else kept
    for place in set(range(len(ids))) - set(places.tolist()) if release else ():
        clients[place].arrays.clear()
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
                    values = np.asarray(_taken(model, entry.name, release))
                    dataset = group.create_dataset(entry.name, data=values)
                    _say_type(dataset, entry)
                    sums.add(dataset, values)
        some = 0 < len(places) < len(ids)
        if some:
            write_sampled_ids(file, ids[places], sums)
        stacked = {SAMPLED if some else CLIENTS: clients}
        if own is not None:
            stacked[SAMPLED_STARTS if some else STARTS] = own.models
        for name, models in stacked.items() if len(places) else ():
            group = file.create_group(name)
            for entry in layout.entries:
                dtype = "uint16" if entry.stored == BFLOAT16 else entry.stored or entry.dtype
                rows = _Rows([models[place] for place in places.tolist()], entry.name, release)
                _say_type(write_rows(group, entry.name, rows, entry.shape, dtype, sums=sums, ids=ids[places]), entry)
        sums.write(file)
    return room.pour()


class _Rows:
    """A tensor of several models, as rows that are taken one at a time."""

    def __init__(self, models: Sequence[ModelTensors], name: str, release: bool) -> None:
        self._models, self._name, self._release = models, name, release

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (_taken(model, self._name, self._release).reshape(-1) for model in self._models)


def _taken(model: ModelTensors, name: str, release: bool) -> np.ndarray:
    return model.arrays.pop(name) if release else model.arrays[name]


def _say_type(dataset: Any, entry: TensorEntry) -> None:
    if entry.stored == BFLOAT16:
        dataset.attrs["dtype"] = BFLOAT16
