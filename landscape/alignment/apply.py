"""Permuting a network's units: the same function, with other numbers in the same places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .groups import Group, Specification

#: a group's number; of units inside of blocks their table and block; the dimension; entries; rows of a kernel
_Moves = tuple[int, tuple[int, int] | None, int, np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Permutation:
    """How the units of a group move: unit i becomes the one that was number ``outer[i]``.

    Attributes:
        outer: of units, or of blocks, [size].
        inner: of the units inside each block, by the block's old number, [size, units]: a table for each of the
            group's ``inner``.
    """

    outer: np.ndarray
    inner: tuple[np.ndarray, ...] = ()

    @property
    def moved(self) -> int:
        """How many units are not where they were."""
        blocks = self.outer != np.arange(len(self.outer))
        if not self.inner:
            return int(blocks.sum())
        same = [table == np.arange(table.shape[1]) for table in self.inner]
        stayed = sum(int(one[~blocks].sum()) for one in same)
        return sum(int(one.size) for one in same) - stayed


def identity(group: Group) -> Permutation:
    """All units stay."""
    inner = tuple(np.tile(np.arange(units.size), (group.size, 1)) for units in group.inner)
    return Permutation(np.arange(group.size), inner)


def random_permutation(group: Group, draw: np.random.Generator) -> Permutation:
    """Draw one of the permutations that a group allows, all alike."""
    inner = tuple(np.stack([draw.permutation(units.size) for _ in range(group.size)]) for units in group.inner)
    return Permutation(draw.permutation(group.size), inner)


class Mover:
    """Applies permutations to the tensors of a network."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        self.places: dict[str, list[_Moves]] = {}
        for g, group in enumerate(specification.groups):
            for k, units in enumerate(group.inner):
                for block, places in enumerate(units.places):
                    for place in places:
                        own = (g, (k, block), place.dim, place.index, place.rows)
                        self.places.setdefault(place.tensor, []).append(own)
            for place in group.places:
                self.places.setdefault(place.tensor, []).append((g, None, place.dim, place.index, place.rows))

    def moves(self, name: str) -> bool:
        """Tell whether a tensor holds units that may be permuted."""
        return self.specification.aliases.get(name, name) in self.places

    def tensor(
        self,
        name: str,
        values: np.ndarray,
        permutations: Sequence[Permutation],
        skip: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Return a tensor with its units permuted; ``skip`` is a group and the dimension in which it does not move."""
        places = [
            one
            for one in self.places.get(self.specification.aliases.get(name, name), ())
            if skip is None or (one[0], one[2]) != skip
        ]
        # units inside of blocks first, where these were; then blocks
        for kernel in (True, False):
            for at in sorted({dim for _, _, dim, _, rows in places if (rows is not None) == kernel}):
                mine = [one for one in places if one[2] == at and (one[4] is not None) == kernel]
                mine.sort(key=lambda one: one[1] is None)
                if kernel:
                    values = self._by_rows(values, at, mine, permutations)
                    continue
                order = np.arange(values.shape[at])
                for place in mine:
                    order = _reordered(order, place, permutations)
                if not np.array_equal(order, np.arange(len(order))):
                    values = values.take(order, at)
        return values

    def _by_rows(
        self, values: np.ndarray, dim: int, places: Sequence[_Moves], permutations: Sequence[Permutation]
    ) -> np.ndarray:
        """The second dimension of a grouped kernel, other in each group of rows."""
        made = values.copy()
        for place in places:
            rows = place[4]
            made[rows] = made[rows].take(_reordered(np.arange(values.shape[dim]), place, permutations), dim)
        return made

    def arrays(self, arrays: Mapping[str, np.ndarray], permutations: Sequence[Permutation]) -> dict[str, np.ndarray]:
        """Return all tensors of a network with its units permuted."""
        return {name: self.tensor(name, np.asarray(values), permutations) for name, values in arrays.items()}


def _reordered(order: np.ndarray, place: _Moves, permutations: Sequence[Permutation]) -> np.ndarray:
    """Return where the entries of a dimension come from once a group's units have moved, too: those of several groups
    may be the same entries, as of a product of two layers' units."""
    g, inner, _, index, _ = place
    moves = permutations[g].outer if inner is None else permutations[g].inner[inner[0]][inner[1]]
    made = order.copy()
    made[index] = order[index[moves]]
    return made
