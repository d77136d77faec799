"""What methods keep between rounds, read from a round's file; written by :mod:`fedscope.checkpoints.states`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from .round_models import read_models
from .round_reading import RoundFile
from .weights import Weights


def read_state(file: RoundFile, group: str = "state") -> dict[str, Any]:
    """Arrays (vectors are [P]), models, or mappings of them, by name; {} where there is no state."""
    layout, state = file.layout, {}
    for name in file.names(group):
        path = f"{group}/{name}"
        kind = _kind(file, path)
        if not file.gate.is_group(path):
            state[name] = file.array(path)
        elif kind == "model":
            entries = {e.name: file.array(f"{path}/{e.name}", np.dtype(e.dtype), e.shape) for e in layout.entries}
            state[name] = layout.flatten(entries)
        elif kind == "vector":
            parts = [file.array(f"{path}/{e.name}", "iuf", e.shape).reshape(-1) for e in layout.parameters]
            state[name] = np.concatenate(parts)
        else:
            state[name] = read_state(file, path)
    return state


def read_client_state(file: RoundFile, name: str, places: Sequence[int]) -> Weights | np.ndarray:
    """Some clients' models or vectors [C, P], or arrays [C, ...], by the places of their rows."""
    path = f"client_state/{name}"
    kind = _kind(file, path)
    if not file.gate.is_group(path):
        return file.rows(path, places)
    if kind == "vector":
        parts = [file.rows(f"{path}/{e.name}", places, e.shape) for e in file.layout.parameters]
        return np.concatenate([part.reshape(len(places), -1) for part in parts], axis=1)
    return read_models(file, path, places)


def _kind(file: RoundFile, path: str) -> str:
    """What a group is said to hold: ``model``, ``vector``, or "" where it holds others."""
    if not file.gate.has(path):
        raise file.gate.damaged(f"it lacks {path}")
    kind = ""
    if h5py.h5a.exists(file.file.id, b"kind", obj_name=path.encode()):
        kind = str(file.file[path].attrs["kind"])
        file.verify_attribute(f"{path}@kind", kind)
    elif file.is_listed(f"{path}@kind"):
        raise file.gate.damaged(f"{path} does not say any more of what kind it is")
    return kind
