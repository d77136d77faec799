"""Single parameters by name, ``conv1.weight[3,0,2,2]`` as torch indexes a tensor, and their values in a round's clients
and models, streamed from disk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Layout, Round, Run, TensorEntry, Weights, read_columns, weighted_mean
from ...checkpoints.io.errors import list_few, nearest

Array = npt.NDArray[np.float64]

#: models of a round in the order in which they come about; ``fma`` is not recorded but the clients' weighted mean
MODELS = ("start", "fma", "global", "averaged")


@dataclass(frozen=True, order=True)
class ParameterPlace:
    """One parameter: its ``column`` in the flat vector [P], its ``layer`` (a ``state_dict`` key) and its ``index`` in
    the layer's tensor, from 0."""

    column: int
    layer: str
    index: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its name, which :func:`parse_place` reads.

        >>> ParameterPlace(7, "fc1.weight", (3, 17)).name
        'fc1.weight[3,17]'
        """
        return f"{self.layer}[{','.join(map(str, self.index))}]"


def place_of(layout: Layout, layer: str, flat: int) -> ParameterPlace:
    """Return the parameter at ``flat`` of the flattened layer.

    >>> from fedscope.checkpoints import TensorEntry
    >>> place_of(Layout((TensorEntry("w", (2, 3), "float32", "parameter"),)), "w", 4).name
    'w[1,1]'
    """
    index = tuple(int(i) for i in np.unravel_index(flat, _shape(layout, layer)))
    return ParameterPlace(layout.slices[layer].start + flat, layer, index)


def parse_place(text: str, layout: Layout) -> ParameterPlace:
    """Return the parameter of a name: ``layer[i,j,...]``, an index for each dimension of the layer's tensor, from 0.

    A layer without dimensions has one parameter, ``layer[]``, and ``layer`` alone names it too.

    Raises:
        FedscopeError: no such layer (says the nearest), another number of indices than dimensions, or an index outside
            of the layer's shape, which is said.

    >>> from fedscope.checkpoints import TensorEntry
    >>> parse_place("w[1,1]", Layout((TensorEntry("w", (2, 3), "float32", "parameter"),))).column
    4
    """
    layer, bracket, inside = text.strip().partition("[")
    if layer not in layout.slices:
        hint = nearest(layer, layout.slices) or f"; the layers are {list_few(layout.slices)}"
        raise FedscopeError(f"there is no layer {layer!r} for the parameter {text!r}{hint}")
    shape = _shape(layout, layer)
    example = f"{layer}[{','.join('0' for _ in shape)}]"
    indices = [word.strip() for word in inside.removesuffix("]").split(",")] if inside.strip("] ") else []
    if (bracket and not inside.endswith("]")) or not all(re.fullmatch(r"-?[0-9]+", word) for word in indices):
        raise FedscopeError(f"{text!r} is not a parameter: name a layer and whole numbers in brackets, as in {example}")
    if len(indices) != len(shape):
        what = f"{len(indices) or 'no'} {'index' if len(indices) == 1 else 'indices'}"
        raise FedscopeError(f"{text!r} has {what}, but {layer} has the shape {list(shape)}; write {example}")
    index = tuple(map(int, indices))
    if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise FedscopeError(f"{text!r} is outside of {layer}, whose shape is {list(shape)}; indices count from 0")
    flat = int(np.ravel_multi_index(index, shape)) if shape else 0
    return ParameterPlace(layout.slices[layer].start + flat, layer, index)


@dataclass(frozen=True, eq=False)
class RunValues:
    """n parameters in one round of one run.

    Attributes:
        run: its name; round: the number.
        client_ids: [C]; of none where the round's clients were not recorded.
        clients: their values, [C, n], as they were recorded.
        models: by name, see ``MODELS``, values [n] of those that there are: ``start`` was sent to the clients, ``fma``
            is Σ_k p_k w_k, ``global`` what the server made of them, ``averaged`` the average over rounds.
    """

    run: str
    round: int
    client_ids: npt.NDArray[np.int64]
    clients: Array
    models: Mapping[str, Array]


def client_values(round_: Round, columns: Sequence[int] | npt.NDArray[np.int64]) -> np.ndarray:
    """Return the clients' values [C, n] of n columns of the flat vector, in the order given; other layers are not read.

    Raises:
        FedscopeError: the round has no clients.
    """
    columns = np.asarray(columns, dtype=np.int64)
    slices = round_.layout.slices
    layers = [name for name, where in slices.items() if ((where.start <= columns) & (columns < where.stop)).any()]
    values = np.empty((len(round_.client_ids), len(columns)), round_.layout.dtype)
    for block in read_columns(round_, layers):
        here = np.flatnonzero((block.where.start <= columns) & (columns < block.where.stop))
        values[:, here] = block.values[:, columns[here] - block.where.start]
    return values


def read_values(round_: Round, places: Sequence[ParameterPlace], run: str) -> RunValues:
    """Parameters in the clients of a round, where there are any, and in its models; ``run`` names it in the result.

    ``fma`` is bit for bit what averaging the whole models gives.
    """
    columns = [place.column for place in places]
    models: dict[str, np.ndarray] = {}
    ids, clients = np.empty(0, np.int64), np.empty((0, len(columns)), round_.layout.dtype)
    if round_.has_clients:
        ids, clients = round_.client_ids, client_values(round_, columns)
        models["fma"] = mean_of(clients, round_.weights)
    for which in round_.models:
        models[which] = round_.read(which).parameters[columns]
    known = {which: np.asarray(models[which], np.float64) for which in MODELS if which in models}
    return RunValues(run, round_.number, ids, clients.astype(np.float64), known)


def mean_of(clients: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Σ_k p_k w_k of some columns [C, n], rounded as :func:`~fedscope.checkpoints.weighted_mean` rounds."""
    layout = Layout((TensorEntry("values", clients.shape[1:], clients.dtype.name, "parameter"),))
    return weighted_mean(Weights(layout, clients, {}), p).parameters


def refuse_other_layout(first: Round, other: Round) -> None:
    """Make sure that parameters of two runs are the same ones.

    Raises:
        FedscopeError: their models differ; says where.
    """
    if difference := first.layout.difference(other.layout):
        raise FedscopeError(
            f"{other.label} holds other models than {first.label}, so their parameters cannot be compared: of the "
            f"first, {difference}; give runs of one architecture"
        )


def same_starts(runs: Sequence[Run], rounds: Sequence[Round]) -> bool:
    """Tell whether the same clients with the same data were sent one model: then their servers can be compared."""

    def facts(run: Run, round_: Round) -> list[np.ndarray]:
        ids = round_.client_ids
        labels = [] if run.partition is None else [run.partition.counts_of(ids)]
        return [round_.read("start").parameters, ids, *labels]

    if any("start" not in round_.models for round_ in rounds):
        return False
    first, *others = (facts(run, round_) for run, round_ in zip(runs, rounds, strict=True))
    return all(
        len(first) == len(other) and all(np.array_equal(x, y) for x, y in zip(first, other, strict=True))
        for other in others
    )


def _shape(layout: Layout, layer: str) -> tuple[int, ...]:
    return layout.by_name[layer].shape
