"""Single parameters by name: ``conv1.weight[3,0,2,2]``, as torch indexes a tensor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Layout
from ...checkpoints.errors import listed, nearest


@dataclass(frozen=True, order=True)
class Place:
    """One parameter: its ``column`` in the flat vector [P], its ``layer`` (a ``state_dict`` key) and its ``index`` in
    the layer's tensor, from 0."""

    column: int
    layer: str
    index: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its name, which :func:`parse_place` reads.

        >>> Place(7, "fc1.weight", (3, 17)).name
        'fc1.weight[3,17]'
        """
        return f"{self.layer}[{','.join(map(str, self.index))}]"


def place_of(layout: Layout, layer: str, flat: int) -> Place:
    """The parameter at ``flat`` of the flattened layer.

    >>> from fedscope.checkpoints import Entry
    >>> place_of(Layout((Entry("w", (2, 3), "float32", "parameter"),)), "w", 4).name
    'w[1,1]'
    """
    index = tuple(int(i) for i in np.unravel_index(flat, _shape(layout, layer)))
    return Place(layout.slices[layer].start + flat, layer, index)


def parse_place(text: str, layout: Layout) -> Place:
    """The parameter of a name: ``layer[i,j,...]``, an index for each dimension of the layer's tensor, from 0.

    A layer without dimensions has one parameter, ``layer[]``, and ``layer`` alone names it too.

    Raises:
        FedscopeError: no such layer (says the nearest), another number of indices than dimensions, or an index outside
            of the layer's shape, which is said.

    >>> from fedscope.checkpoints import Entry
    >>> parse_place("w[1,1]", Layout((Entry("w", (2, 3), "float32", "parameter"),))).column
    4
    """
    layer, bracket, inside = text.strip().partition("[")
    if layer not in layout.slices:
        hint = nearest(layer, layout.slices) or f"; the layers are {listed(layout.slices)}"
        raise FedscopeError(f"there is no layer {layer!r} for the parameter {text!r}{hint}")
    shape = _shape(layout, layer)
    example = f"{layer}[{','.join('0' for _ in shape)}]"
    indices = [word.strip() for word in inside.removesuffix("]").split(",")] if inside.strip("] ") else []
    if (bracket and not inside.endswith("]")) or not all(re.fullmatch(r"-?[0-9]+", word) for word in indices):
        raise FedscopeError(f"{text!r} is no parameter: name a layer and whole numbers in brackets, as in {example}")
    if len(indices) != len(shape):
        what = f"{len(indices) or 'no'} {'index' if len(indices) == 1 else 'indices'}"
        raise FedscopeError(f"{text!r} has {what}, but {layer} has the shape {_spoken(shape)}; write {example}")
    index = tuple(map(int, indices))
    if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise FedscopeError(f"{text!r} lies outside of {layer}, whose shape is {_spoken(shape)}; indices count from 0")
    flat = int(np.ravel_multi_index(index, shape)) if shape else 0
    return Place(layout.slices[layer].start + flat, layer, index)


def _shape(layout: Layout, layer: str) -> tuple[int, ...]:
    return next(entry.shape for entry in layout.parameters if entry.name == layer)


def _spoken(shape: tuple[Any, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
