"""One layer of all clients, whether they lie in memory or in a recorded round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round, Weights, read_pieces


def layer_of(clients: Weights | Round, name: str) -> np.ndarray:
    """A parameter of all clients, [K, M]."""
    where = clients.layout.slices[name]
    if isinstance(clients, Weights):
        return np.asarray(clients.parameters[:, where])
    size = where.stop - where.start
    for piece in read_pieces(clients, max(1, size), [name]):
        return piece.read()
    return no_columns(clients)


def no_columns(clients: Weights | Round) -> np.ndarray:
    """[K, 0]."""
    if isinstance(clients, Weights):
        return np.asarray(clients.parameters[:, :0])
    return np.empty((len(clients.client_ids), 0), clients.layout.dtype)


def broken_rows(rows: np.ndarray) -> npt.NDArray[np.bool_]:
    """Which clients have a value that is not finite, [K]; row by row, so that no mask of a layer is made.

    >>> broken_rows(np.array([[1.0, 2.0], [np.nan, 0.0], [3.0, -np.inf]])).tolist()
    [False, True, True]
    """
    return np.array([not np.isfinite(row).all() for row in rows], np.bool_)
