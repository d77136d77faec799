"""A server by layer: layers that patterns name are aggregated by servers of their own, or stay each client's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError, Layout, TensorEntry, Weights, as_disk_matrix
from ...checkpoints.io.errors import list_few, nearest
from ...checkpoints.models.layers import chosen_layers, layers_of
from ...training.loop.federation import mean_buffers
from ...training.loop.server import step_server
from ...training.methods.base import Served
from ...training.settings.registry import method_name, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...training.config.config import Config
    from ...training.methods.base import Cohort, State

#: in the place of a server: each client keeps its own layers
PERSONAL = "personal"


@dataclass(frozen=True, eq=False)
class LayerPart:
    """Layers that are aggregated together, as a model of their own.

    Attributes:
        pattern: that named them; "" for those that no pattern names.
        names: of their tensors, statistics among them.
        config: with their server; where clients keep them, with plain FMA, which gives what a new client would get.
        personal: whether clients keep them.
    """

    pattern: str
    names: frozenset[str]
    config: Config
    personal: bool = False


def layers_given(layers: Mapping[str, Any] | Sequence[str] | str | None) -> list[tuple[str, Any]]:
    """Return patterns and what each names: a server, or ``personal``.

    A pattern ends at the last ``=``, because a regular expression may hold others, and no server's name holds one.

    Raises:
        FedscopeError: a word without a server; a pattern that is given twice.

    >>> layers_given(["head=personal", "/(?=conv)/=fedadam"])
    [('head', 'personal'), ('/(?=conv)/', 'fedadam')]
    """
    if isinstance(layers, Mapping):
        return [(str(pattern).strip(), server) for pattern, server in layers.items()]
    given: dict[str, str] = {}
    for word in [layers] if isinstance(layers, str) else layers or ():
        pattern, _, server = (part.strip() for part in word.rpartition("="))
        if not pattern or not server:
            raise FedscopeError(
                f"--layers {word} gives no layers a server; write PATTERN=SERVER, as in 'head={PERSONAL}' or "
                "'conv*=fedadam'"
            )
        if pattern in given:
            raise FedscopeError(f"--layers {pattern} is given twice; give each layer one server")
        given[pattern] = server
    return list(given.items())


def refuse_unknown(pattern: str, server: Any) -> None:
    """Refuse a word that is nearly ``personal``, which the sentence on unknown servers does not know.

    Raises:
        FedscopeError: names it.
    """
    known = (*names("servers"), PERSONAL)
    if isinstance(server, str) and server not in known and PERSONAL in nearest(server, [PERSONAL]):
        raise FedscopeError(f"--layers {pattern}={server} names no server{nearest(server, [PERSONAL])}")


def parts_of(
    layout: Layout, base: Config, servers: Iterable[tuple[str, Config, bool]], *, base_given: bool = False
) -> tuple[LayerPart, ...]:
    """Return the parts of a model: those that patterns name, in their order, and the others, by the base's server.

    Args:
        servers: patterns, each with a configuration and whether clients keep the layers.
        base_given: whether the user has named the base's server, so that it must have a layer left.

    Raises:
        FedscopeError: a pattern that names no layer; a layer that two name; a server that has to see the whole model
            and is given a part; a named base without layers.
    """
    parts, owner = list[LayerPart](), dict[str, str]()
    for pattern, config, personal in servers:
        chosen = chosen_layers(layout, pattern)
        for layer in chosen:
            if layer.name in owner:
                raise FedscopeError(
                    f"--layers {owner[layer.name]} and --layers {pattern} both name {layer.name}; give each layer one "
                    "server"
                )
            owner[layer.name] = pattern
        tensors = frozenset(entry.name for layer in chosen for entry in layer.entries)
        parts.append(LayerPart(pattern, tensors, config, personal))
    others = [layer for layer in layers_of(layout) if layer.name not in owner]
    if others:
        parts.append(LayerPart("", frozenset(entry.name for one in others for entry in one.entries), base))
    elif base_given:
        raise FedscopeError(
            f"--layers name every layer, so none is left for --server {method_name(base.server)}; leave --server out"
        )
    whole = [method_name(part.config.server) for part in parts if part.config.server.needs_all]
    if len(parts) > 1 and whole:
        raise FedscopeError(
            f"{list_few(dict.fromkeys(whole))} looks at whole models, so it cannot aggregate some layers alone; "
            "give fma or another server that goes layer by layer"
        )
    return tuple(parts)


def step_parts(parts: Sequence[tuple[LayerPart, State, Cohort]], start: Weights, clients: Weights) -> Weights:
    """Make the model whose parts are what their servers make of them, with the bits that they give the whole.

    A server is given the columns of its layers alone: of the clients, of ``start`` and of every vector [P] in its
    state. Clients on the disk are read once, in blocks of columns as :func:`step_server` reads them; a server that
    reads layers reads its own. Statistics of a layer are averaged with the p of its server.
    """
    layout, rows = clients.layout, as_disk_matrix(clients.parameters)
    parameters, buffers = np.empty(layout.size, layout.dtype), dict[str, np.ndarray]()
    by_block = []
    for part, state, cohort in parts:
        if rows is not None and part.config.server.reads == "columns":
            taken = np.zeros(layout.size, bool)
            for name in part.names & layout.slices.keys():
                taken[layout.slices[name]] = True
            by_block.append((part, state, cohort, taken))
        else:
            for entries in _pieces(layout, part.names, together=rows is None):
                where = _columns(layout, entries)
                models = (Weights(Layout(entries), one.parameters[..., where], {}) for one in (start, clients))
                parameters[where] = _step(part, state, cohort, layout.size, where, *models)
        some = {entry.name: clients.buffers[entry.name] for entry in layout.buffers if entry.name in part.names}
        buffers |= mean_buffers(Weights(layout, clients.parameters, some), cohort, Served(parameters))
    for block, values in rows.blocks() if rows is not None and by_block else ():
        for part, state, cohort, taken in by_block:
            own = np.flatnonzero(taken[block])
            if len(own):
                entries = (TensorEntry("columns", (len(own),), layout.dtype.name, "parameter"),)
                where = own + block.start
                given = values if len(own) == values.shape[1] else values[:, own]
                models = (Weights(Layout(entries), one, {}) for one in (start.parameters[where], given))
                parameters[where] = _step(part, state, cohort, layout.size, where, *models)
    return Weights(layout, parameters, {entry.name: buffers[entry.name] for entry in layout.buffers})


def _step(
    part: LayerPart,
    state: State,
    cohort: Cohort,
    size: int,
    where: np.ndarray | slice,
    start: Weights,
    clients: Weights,
) -> np.ndarray:
    """Return what a server makes of some columns, of a state whose vectors have all ``size``."""
    own = {name: value[where] if np.shape(value) == (size,) else value for name, value in state.items()}
    return step_server(part.config.server, own, start, clients, cohort).parameters


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
