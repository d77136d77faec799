"""A server by layer: layers that patterns name are aggregated by servers of their own, or stay each client's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import Layout, TensorEntry, Weights, as_disk_matrix
from ...training.guards.returned_arrays import is_own_method
from ...training.loop.federation import mean_buffers
from ...training.loop.server import step_server
from ...training.methods.base import Served

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...training.methods.base import Cohort, State
    from .requested_servers import LayerPart


def step_parts(
    parts: Sequence[tuple[LayerPart, State, Cohort]], start: Weights, clients: Weights
) -> tuple[Weights, list[np.ndarray | None]]:
    """Make the model whose parts are what their servers make of them, with the bits that they give the whole.

    A server is given the columns of its layers alone: of the clients, of ``start`` and of every vector [P] in its
    state. Clients on the disk are read once, in blocks of columns as :func:`step_server` reads them; a server that
    reads layers reads its own. Statistics of a layer are averaged with the p of its server.

    Returns:
        The model, and of each part the weights [C] that its server has of its own; None where it has none.
    """
    layout, rows = clients.layout, as_disk_matrix(clients.parameters)
    parameters, buffers = np.empty(layout.size, layout.dtype), dict[str, np.ndarray]()
    by_block, own_p = [], dict[int, np.ndarray | None]()
    for at, (part, state, cohort) in enumerate(parts):
        pieces = _pieces(layout, part.names, together=rows is None)
        if not pieces and is_own_method(
            part.config.server
        ):  # whose weights may be those of the numbers that it is given
            continue
        if not pieces:  # of statistics alone, which are averaged with what any column has
            columns = (TensorEntry("columns", (1,), layout.dtype.name, "parameter"),)
            models = (Weights(Layout(columns), one.parameters[..., :1], {}) for one in (start, clients))
            own_p[at] = _step(part, state, cohort, layout.size, slice(0, 1), *models).p
        elif part.config.server.needs_all:  # it is given no part of a model, and so this one is all of it
            served = _step(part, state, cohort, layout.size, slice(None), start, clients)
            parameters[:], own_p[at] = served.parameters, served.p
        elif rows is not None and part.config.server.reads == "columns":
            taken = np.zeros(layout.size, bool)
            for name in part.names & layout.slices.keys():
                taken[layout.slices[name]] = True
            by_block.append((at, taken))
        else:
            for entries in pieces:
                where = _columns(layout, entries)
                models = (Weights(Layout(entries), one.parameters[..., where], {}) for one in (start, clients))
                served = _step(part, state, cohort, layout.size, where, *models)
                parameters[where], own_p[at] = served.parameters, served.p
    for block, values in rows.blocks() if rows is not None and by_block else ():
        for at, taken in by_block:
            part, state, cohort = parts[at]
            own = np.flatnonzero(taken[block])
            if len(own):
                entries = (TensorEntry("columns", (len(own),), layout.dtype.name, "parameter"),)
                where = own + block.start
                given = values if len(own) == values.shape[1] else values[:, own]
                models = (Weights(Layout(entries), one, {}) for one in (start.parameters[where], given))
                served = _step(part, state, cohort, layout.size, where, *models)
                parameters[where], own_p[at] = served.parameters, served.p
    for at, (part, _, cohort) in enumerate(parts):
        some = {entry.name: clients.buffers[entry.name] for entry in layout.buffers if entry.name in part.names}
        buffers |= mean_buffers(Weights(layout, clients.parameters, some), cohort, Served(parameters, p=own_p.get(at)))
    made = Weights(layout, parameters, {entry.name: buffers[entry.name] for entry in layout.buffers})
    return made, [own_p.get(at) for at in range(len(parts))]


def _step(
    part: LayerPart,
    state: State,
    cohort: Cohort,
    size: int,
    where: np.ndarray | slice,
    start: Weights,
    clients: Weights,
) -> Served:
    """Return what a server makes of some columns, of a state whose vectors have all ``size``."""
    own = {name: value[where] if np.shape(value) == (size,) else value for name, value in state.items()}
    return step_server(part.config.server, own, start, clients, cohort)


def own_versions(made: Weights, clients: Weights, parts: Sequence[LayerPart]) -> tuple[Callable[[], Weights], ...]:
    """Return each client's model, where clients keep layers: those of its own, and the rest of ``made``; none else.

    Each is put together when it is asked for, from one row of the clients.
    """
    kept = frozenset(name for part in parts if part.personal for name in part.names)
    return tuple(partial(_version, made, clients, kept, k) for k in range(len(clients))) if kept else ()


def _version(made: Weights, clients: Weights, kept: frozenset[str], k: int) -> Weights:
    parameters, row = made.parameters.copy(), clients.parameters[k]
    for name, where in made.layout.slices.items():
        if name in kept:
            parameters[where] = row[where]
    buffers = {name: clients.buffers[name][k] if name in kept else value for name, value in made.buffers.items()}
    return Weights(made.layout, parameters, buffers)


def _pieces(layout: Layout, chosen: frozenset[str], *, together: bool) -> list[tuple[TensorEntry, ...]]:
    """Return the parameters of a part, in the dtype of the whole vector: together, or those that follow each other."""
    pieces, follows = list[list[TensorEntry]](), False
    for entry in layout.parameters:
        if entry.name in chosen:
            if not pieces or not (follows or together):
                pieces.append([])
            pieces[-1].append(replace(entry, dtype=layout.dtype.name))
        follows = entry.name in chosen
    return [tuple(piece) for piece in pieces]


def _columns(layout: Layout, entries: Sequence[TensorEntry]) -> np.ndarray | slice:
    """Return where parameters are: a slice where they follow each other, else their numbers."""
    slices = [layout.slices[entry.name] for entry in entries]
    if all(one.stop == other.start for one, other in pairwise(slices)):
        return slice(slices[0].start, slices[-1].stop)
    return np.concatenate([np.arange(one.start, one.stop) for one in slices])
