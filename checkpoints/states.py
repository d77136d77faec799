"""What methods keep between rounds, at rest: vectors in parameter space, whole models, and other arrays."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from .checksums import Sums
from .hdf5 import write_rows
from .layout import Layout
from .weights import Weights

#: arrays, models, or mappings of them
State = Mapping[str, Any]


def write_state(parent: Any, state: State, layout: Layout | None, sums: Sums) -> None:
    """Write a state into a group: a vector [P] and a model parameter by parameter, as models lie, all else as it is."""
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
            sums.add(parent.create_dataset(name, data=np.asarray(value)), value)


def write_client_states(
    parent: Any, states: Mapping[str, Weights | np.ndarray], layout: Layout | None, sums: Sums
) -> None:
    """Write what each of C clients keeps: models and vectors [C, P] by parameter, arrays [C, ...] as they are."""
    for name, rows in states.items():
        if isinstance(rows, Weights):
            group = _group(parent, name, "model", sums)
            _write_entries(group, rows.parameters, rows.layout, sums)
            for entry in rows.layout.buffers:
                values = rows.buffers[entry.name].reshape(len(rows), prod(entry.shape))
                sums.add_rows(write_rows(group, entry.name, values, entry.shape, entry.dtype, False), values)
        elif layout is not None and _is_vector(rows, layout, 2):
            _write_entries(_group(parent, name, "vector", sums), rows, layout, sums)
        else:
            sums.add_rows(parent.create_dataset(name, data=rows), rows)


def _is_vector(array: np.ndarray, layout: Layout, dimensions: int) -> bool:
    return array.ndim == dimensions and array.shape[-1] == layout.size


def _group(parent: Any, name: str, kind: str, sums: Sums) -> Any:
    group = parent.create_group(name)
    group.attrs["kind"] = kind
    sums.add_attribute(group, "kind", kind)
    return group


def _write_entries(group: Any, rows: np.ndarray, layout: Layout, sums: Sums) -> None:
    for entry in layout.parameters:
        values = rows[:, layout.slices[entry.name]]
        sums.add_rows(write_rows(group, entry.name, values, entry.shape, rows.dtype.name, False), values)
