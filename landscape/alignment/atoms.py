"""Axes of tensors as products of atoms: sets of units of which it is found out which are permuted together.

A dimension of a tensor is a list of factors, the outermost first: the 4,096 numbers of flattened maps [64, 8, 8] are
(64, 8, 8). A factor is an atom; or, where its units may be permuted otherwise for each unit of another factor of the
same tensor (units inside heads), one atom for each of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

#: the atom of all axes that stay as they are, of any size
FIXED = 0


@dataclass(frozen=True)
class Factor:
    """A factor of a dimension.

    Attributes:
        size: how many units.
        atoms: the atom, [], or one for each unit of the factors that it depends on, [size of ``over[0]``, ...].
        over: the keys of these.
        key: by which other factors depend on this one.
    """

    size: int
    atoms: np.ndarray
    over: tuple[int, ...]
    key: int


#: factors of one dimension, the outermost first; none where it has one entry
Axis = list[Factor]


@dataclass
class AtomSplit:
    """How an atom is divided: into equal blocks that may be permuted as a whole, each with an atom of its own, or into
    parts that stay where they are.

    Attributes:
        sizes: of the parts, which are equal where there is an ``outer``.
        parts: the atom of each part.
        outer: that of the blocks, FIXED for parts that stay.
        key: of the factor of the blocks.
    """

    sizes: tuple[int, ...]
    parts: list[int]
    outer: int
    key: int


@dataclass
class Atoms:
    """All atoms of a trace, and which of them are one."""

    sizes: list[int] = field(default_factory=lambda: [0])
    parents: list[int] = field(default_factory=lambda: [FIXED])
    splits: dict[int, AtomSplit] = field(default_factory=dict)
    #: by key, the key that it is one with; and the keys (outer, inner) that it was divided into, with their sizes
    keys: list[int] = field(default_factory=lambda: [0])
    divided: dict[int, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    #: keys of the dimensions along which tensors lie one above the other
    stacked: set[int] = field(default_factory=set)

    # --- atoms ---

    def new(self, size: int) -> int:
        """Make an atom of its own."""
        if size == 1:
            return FIXED
        self.sizes.append(size)
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, atom: int) -> int:
        """Return the one that stands for all that this is one with."""
        while self.parents[atom] != atom:
            self.parents[atom] = self.parents[self.parents[atom]]
            atom = self.parents[atom]
        return atom

    def fix(self, atom: int) -> None:
        """Leave all units of an atom where they are."""
        atom = self.find(atom)
        if atom == FIXED:
            return
        split = self.splits.pop(atom, None)
        self.parents[atom] = FIXED
        if split is not None:
            for one in (split.outer, *split.parts):
                self.fix(one)

    def unite(self, first: int, second: int) -> None:
        """Permute two atoms together."""
        first, second = self.find(first), self.find(second)
        if first == second:
            return
        if FIXED in (first, second):
            self.fix(max(first, second))
            return
        first, second = min(first, second), max(first, second)
        mine, other = self.splits.get(first), self.splits.pop(second, None)
        self.parents[second] = first
        if other is None:
            return
        if mine is None:
            self.splits[first] = other
        elif mine.sizes == other.sizes:
            if mine.outer == FIXED or other.outer == FIXED:
                self.fix(mine.outer)
                self.fix(other.outer)
                mine.outer = FIXED
            else:
                self.unite(mine.outer, other.outer)
            self.unite_keys(mine.key, other.key)
            for one, two in zip(mine.parts, other.parts, strict=True):
                self.unite(one, two)
        else:
            self._unite_cuts(first, mine, other)

    def _unite_cuts(self, atom: int, mine: AtomSplit, other: AtomSplit) -> None:
        """Of two divisions at other places, take the cuts of both; blocks that move as a whole stay then."""
        for split in (mine, other):
            self.fix(split.outer)
            split.outer = FIXED
        cuts = [set(np.cumsum(split.sizes).tolist()) for split in (mine, other)]
        both = sorted(cuts[0] | cuts[1])
        sizes = tuple(int(size) for size in np.diff([0, *both]))
        parts = [self.new(size) for size in sizes]
        for split in (mine, other):
            start = 0
            for end, part in zip(np.cumsum(split.sizes).tolist(), split.parts, strict=True):
                inside = [i for i, cut in enumerate(both) if start < cut <= end]
                start = end
                if len(inside) == 1:
                    self.unite(part, parts[inside[0]])
                else:
                    self.cut(part, tuple(sizes[i] for i in inside), [parts[i] for i in inside])
        self.splits[self.find(atom)] = AtomSplit(sizes, parts, FIXED, self.new_key())

    def cut(self, atom: int, sizes: tuple[int, ...], parts: Sequence[int] | None = None) -> list[int]:
        """Divide an atom into parts that stay where they are, and return their atoms."""
        atom = self.find(atom)
        if atom == FIXED:
            for part in parts or ():
                self.fix(part)
            return [FIXED] * len(sizes)
        own = list(parts) if parts is not None else [self.new(size) for size in sizes]
        made = AtomSplit(sizes, own, FIXED, self.new_key())
        held = self.splits.get(atom)
        if held is None:
            self.splits[atom] = made
        elif held.sizes == sizes:
            self.fix(held.outer)
            held.outer = FIXED
            for one, two in zip(held.parts, own, strict=True):
                self.unite(one, two)
        else:
            self._unite_cuts(atom, held, made)
        return own

    def divide(self, atom: int, outer: int, inner: int) -> tuple[int, list[int], int]:
        """Divide an atom into ``outer`` blocks of ``inner`` units: the atom of the blocks, of each its units, the
        key."""
        atom = self.find(atom)
        if atom == FIXED:
            return FIXED, [FIXED] * outer, self.new_key()
        sizes = (inner,) * outer
        held = self.splits.get(atom)
        if held is None:
            made = AtomSplit(sizes, [self.new(inner) for _ in range(outer)], self.new(outer), self.new_key())
            self.splits[atom] = made
            return made.outer, made.parts, made.key
        if held.sizes == sizes:
            return held.outer, held.parts, held.key
        parts = self.cut(atom, sizes)
        return FIXED, parts, self.new_key()

    # --- keys ---

    def new_key(self) -> int:
        """Make a key of its own."""
        self.keys.append(len(self.keys))
        return len(self.keys) - 1

    def key(self, key: int) -> int:
        """Return the one that stands for it."""
        while self.keys[key] != key:
            key = self.keys[key]
        return key

    def unite_keys(self, first: int, second: int) -> None:
        """Let what depends on one depend on the other."""
        first, second = self.key(first), self.key(second)
        if first == second:
            return
        low, high = min(first, second), max(first, second)
        self.keys[high] = low
        one, two = self.divided.get(low), self.divided.pop(high, None)
        if two is not None and one is None:
            self.divided[low] = two
        elif two is not None and one is not None and [n for _, n in one] == [n for _, n in two]:
            for (mine, _), (other, _) in zip(one, two, strict=True):
                self.unite_keys(mine, other)

    # --- factors ---

    def factor(self, size: int, atom: int | None = None) -> Axis:
        """Make an axis of one new factor; of none where it has one entry."""
        if size == 1:
            return []
        return [Factor(size, np.array(self.new(size) if atom is None else atom), (), self.new_key())]

    def fixed(self, size: int) -> Axis:
        """Make an axis that stays as it is."""
        return self.factor(size, FIXED)

    def current(self, factor: Factor) -> Factor:
        """Return a factor by the present keys of those that it depends on."""
        over, atoms = [self.key(key) for key in factor.over], factor.atoms
        at = 0
        while at < len(over):
            parts = self.divided.get(over[at])
            if parts is None:
                at += 1
                continue
            (outer, a), (inner, b) = parts
            over[at : at + 1] = [self.key(outer), self.key(inner)]
            atoms = atoms.reshape(*atoms.shape[:at], a, b, *atoms.shape[at + 1 :])
        return Factor(factor.size, atoms, tuple(over), self.key(factor.key))

    def pieces(self, factor: Factor) -> Axis:
        """Return a factor, or those that it was divided into elsewhere by its key."""
        factor = self.current(factor)
        parts = self.divided.get(factor.key)
        if parts is None:
            return [factor]
        (_, a), (_, b) = parts
        return [piece for one in self.divide_factor(factor, a, b) for piece in self.pieces(one)]

    def divide_factor(self, factor: Factor, outer: int, inner: int) -> Axis:
        """Divide a factor into two: ``outer`` blocks of ``inner`` units."""
        factor = self.current(factor)
        if outer == 1 or inner == 1:
            return [factor]
        shape = factor.atoms.shape
        made = [self.divide(int(atom), outer, inner) for atom in factor.atoms.reshape(-1)]
        known = self.divided.get(factor.key)
        if known is not None and (known[0][1], known[1][1]) == (outer, inner):
            outer_key, inner_key = known[0][0], known[1][0]
        else:
            outer_key, inner_key = self.new_key(), self.new_key()
            if known is None:
                self.divided[factor.key] = ((outer_key, outer), (inner_key, inner))
        for _, _, key in made:
            self.unite_keys(key, outer_key)
        blocks = np.array([one for one, _, _ in made]).reshape(shape)
        units = np.array([parts for _, parts, _ in made]).reshape(*shape, outer)
        return [
            Factor(outer, blocks, factor.over, outer_key),
            Factor(inner, units, (*factor.over, outer_key), inner_key),
        ]

    def fix_factor(self, factor: Factor) -> None:
        """Leave a factor where it is."""
        for atom in factor.atoms.reshape(-1):
            self.fix(int(atom))

    def fix_axis(self, axis: Axis) -> None:
        """Leave a dimension as it is."""
        for factor in axis:
            self.fix_factor(factor)

    def tie_factors(self, first: Factor, second: Factor) -> None:
        """Permute two factors of one size together; where only one depends on another factor, it no longer does."""
        self.unite_keys(first.key, second.key)
        first, second = self.current(first), self.current(second)
        for key in first.over:
            if key not in second.over:
                first = self.independent(first, key)
        for key in second.over:
            if key not in first.over:
                second = self.independent(second, key)
        order = [second.over.index(key) for key in first.over]
        other = second.atoms.transpose(order) if order else second.atoms
        for one, two in zip(first.atoms.reshape(-1), other.reshape(-1), strict=True):
            self.unite(int(one), int(two))

    def independent(self, factor: Factor, key: int) -> Factor:
        """Permute a factor alike for all units of the one that it depends on."""
        at = factor.over.index(key)
        rows = np.moveaxis(factor.atoms, at, 0)
        for row in rows[1:]:
            for one, two in zip(rows[0].reshape(-1), row.reshape(-1), strict=True):
                self.unite(int(one), int(two))
        over = (*factor.over[:at], *factor.over[at + 1 :])
        return Factor(factor.size, np.asarray(rows[0]), over, factor.key)

    def tie(self, first: Axis, second: Axis) -> Axis:
        """Permute two dimensions of one size together, and return them as one."""
        one = [piece for factor in first for piece in self.pieces(factor)]
        two = [piece for factor in second for piece in self.pieces(factor)]
        tied: Axis = []
        while one and two:
            a, b = one[0], two[0]
            if a.size == b.size:
                self.tie_factors(a, b)
                tied.append(self.current(a))
                one, two = one[1:], two[1:]
            elif a.size % b.size == 0:
                one = [*self.divide_factor(a, b.size, a.size // b.size), *one[1:]]
            elif b.size % a.size == 0:
                two = [*self.divide_factor(b, a.size, b.size // a.size), *two[1:]]
            else:
                self.fix_axis([*one, *two])
                return [*tied, *one]
        return [*tied, *one, *two]

    def regroup(self, axes: Sequence[Axis], shape: Sequence[int]) -> list[Axis]:
        """Return the dimensions of the same entries in another shape."""
        left = [piece for axis in axes for factor in axis for piece in self.pieces(factor)]
        made: list[Axis] = []
        for size in shape:
            own: Axis = []
            while prod(factor.size for factor in own) < size:
                lacking = size // prod(factor.size for factor in own)
                head = left[0]
                if lacking % head.size == 0:
                    own.append(head)
                    left = left[1:]
                elif head.size % lacking == 0:
                    left = [*self.divide_factor(head, lacking, head.size // lacking), *left[1:]]
                else:  # over the edge of a factor: nothing can be said
                    for axis in axes:
                        self.fix_axis(axis)
                    return [self.fixed(one) for one in shape]
            made.append(own)
        return made
