"""A server's step from clients that may be on the disk: in blocks of columns where each parameter is on its own."""

from __future__ import annotations

import numpy as np

from ...checkpoints import Layout, TensorEntry, Weights, as_disk_matrix
from ...checkpoints.rounds.disk_matrix import NUMBERS
from ..methods.base import Cohort, Served, ServerMethod, State


def step(server: ServerMethod, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
    """``server.step(state, start, clients, cohort)``, to the last bit, whatever the clients' rows take.

    Clients in memory are given to the server as they are. Of rows on the disk a server that ``reads`` columns is given
    a block of columns at a time, with these columns of ``start`` and of every vector [P] in its state, as if the block
    were a model of one layer: 16 MiB of clients and their float64 in memory, whatever C and P. Another server is given
    the rows as they are, and reads what it needs.

    Raises:
        FedscopeError: as the server; a file that cannot be read.
    """
    rows, size = as_disk_matrix(clients.parameters), start.layout.size
    if rows is None or server.reads != "columns":
        return server.step(state, start, clients, cohort)
    parameters = np.empty(size, start.layout.dtype)
    kept: dict[str, np.ndarray] = {}
    for where, values in rows.blocks(NUMBERS):
        width = where.stop - where.start
        layout = Layout((TensorEntry("columns", (width,), start.layout.dtype.name, "parameter"),))
        own = {name: value[where] if np.shape(value) == (size,) else value for name, value in state.items()}
        served = server.step(own, Weights(layout, start.parameters[where], {}), Weights(layout, values, {}), cohort)
        parameters[where] = served.parameters
        for name, value in served.state.items():
            if np.shape(value) != (width,):
                kept[name] = value
                continue
            if name not in kept:
                kept[name] = np.empty(size, value.dtype)
            kept[name][where] = value
    return Served(parameters, kept)
