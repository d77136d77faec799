"""Which units of a network may be permuted: groups of them, and the parameters and buffers in which each lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class TensorAxis:
    """Where the units of a group lie in a tensor.

    Attributes:
        tensor: its name.
        dim: its dimension.
        index: of each unit its entries there, [size, m]: one, and of a channel that was flattened all its pixels.
        rows: of a grouped kernel: only in these entries of dimension 0.
    """

    tensor: str
    dim: int
    index: np.ndarray
    rows: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """Units inside the blocks of a group, permuted within each block: one list of places a block.

    Attributes:
        size: units in a block.
        places: [blocks], of each block where its units lie.
    """

    size: int
    places: tuple[tuple[TensorAxis, ...], ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Units that are permuted together; or blocks of units (heads, groups of a GroupNorm), with the units inside.

    Attributes:
        name: after the first parameter in whose output they lie.
        size: how many units, or blocks.
        places: where they lie.
        inner: the units inside the blocks, which are permuted apart from those of other entries.
    """

    name: str
    size: int
    places: tuple[TensorAxis, ...]
    inner: tuple[Units, ...] = ()

    @property
    def units(self) -> int:
        """How many units there are, with those inside of blocks."""
        return sum(self.size * units.size for units in self.inner) or self.size


@dataclass(frozen=True, eq=False)
class Specification:
    """All groups of a network.

    Attributes:
        groups: in the order in which they are met from the input on.
        stopped: operations that could not be followed, as ``aten.x in layer``: what they take stays where it is.
        shapes: of all tensors by name.
        aliases: tensors that are held under another name, too, by it (tied weights).
        taps: the numbers of the operations whose results show the units, with the dimension of each group.
        calls: how many operations might show units.
        unmet: parameters that nothing was computed with.
    """

    groups: tuple[Group, ...]
    stopped: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    aliases: Mapping[str, str]
    taps: tuple[Tap, ...] = ()
    calls: int = 0
    unmet: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        """How many units may be permuted."""
        return sum(group.units for group in self.groups)


@dataclass(frozen=True, eq=False)
class Tap:
    """An operation's result in which units of groups are seen.

    Attributes:
        call: its number among those that show units.
        dim: the dimension of the units, from the last one, -1, on; length: how many entries it has.
        index: of each unit its entries there, [size, m].
        group: the number of the group; inner: that of the units inside, with their block; None for the group itself.
        others: the other dimensions that hold units, which another network has in another order, each with how many of
            these there are, and whether the samples in it lie inside of each of these.
    """

    call: int
    dim: int
    length: int
    index: np.ndarray
    group: int
    inner: tuple[int, int] | None = None
    others: tuple[tuple[int, int, bool], ...] = ()
