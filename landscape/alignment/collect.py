"""From atoms to groups: where the units that are permuted together lie in each tensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from .atoms import FIXED, Atoms, Axis, Factor
from .groups import Group, Specification, Tap, TensorAxis, Units
from .operations import Value, join

#: the tensor, or the number of an operation; and the dimension
_Where = tuple[str | int, int]
#: that, the entries [size, m], and the rows of a kernel
_Lies = tuple[_Where, np.ndarray, np.ndarray | None]


@dataclass
class _Found:
    """What lies where.

    Attributes:
        places: of each atom; order of atoms as they are met.
        families: by the atom of blocks, the atoms inside of them, a tuple a place.
        inside: of each atom in a family the families that it is in.
        single: atoms that are met outside of any family.
    """

    places: dict[int, list[_Lies]] = field(default_factory=dict)
    families: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    inside: dict[int, set[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    single: set[int] = field(default_factory=set)


def collect(
    atoms: Atoms,
    parameters: Mapping[str, Value],
    taps: Sequence[tuple[int, Value, tuple[int, ...]]],
    shapes: Mapping[str, tuple[int, ...]],
    aliases: Mapping[str, str],
    stopped: Sequence[str],
    calls: int,
) -> Specification:
    """Build the specification of a trace."""
    seen = _seen(atoms, taps)
    _fix_many_blocks(atoms, parameters)
    while (wrong := _inconsistent(atoms, found := _walk(atoms, parameters))) is not None:
        atoms.fix(wrong)
    groups: list[Group] = []
    number: dict[int, tuple[int, tuple[int, int] | None]] = {}
    inner = {atom for known in found.families.values() for family in known if len(set(family)) > 1 for atom in family}
    for atom, places in found.places.items():
        if atom in inner or atom == FIXED:
            continue
        number[atom] = len(groups), None
        families = list(dict.fromkeys(f for f in found.families.get(atom, ()) if len(set(f)) > 1))
        units = []
        for k, family in enumerate(families):
            for block, one in enumerate(family):
                number[one] = len(groups), (k, block)
            size = atoms.sizes[family[0]]
            units.append(Units(size, tuple(tuple(_place(where) for where in found.places[one]) for one in family)))
        first = str(places[0][0][0])
        groups.append(Group(first, atoms.sizes[atom], tuple(map(_place, places)), tuple(units)))
    made = []
    for call, dim, atom, value in seen:
        shown, length = _Found(), value.shape[dim]
        _walk_atom(atoms, shown, atom, (call, dim), np.arange(length)[:, None], None, None)
        known = {one: places for one, places in shown.places.items() if one in number}
        others = _others(atoms, value, dim, number.keys()) if known else None
        if others is not None:
            for one, places in known.items():
                made += [Tap(call, dim, length, index, *number[one], others) for _, index, _ in places]
    return Specification(tuple(groups), tuple(stopped), dict(shapes), dict(aliases), tuple(made), calls)


def _seen(atoms: Atoms, taps: Sequence[tuple[int, Value, tuple[int, ...]]]) -> list[tuple[int, int, int, Value]]:
    """Return of each result the dimensions, from the last one on, that may show units, with an atom for each."""
    found = []
    for call, value, dims in taps:
        for k, dim in enumerate(dims):
            dim = dim % len(value.shape) - len(value.shape)
            axis = value.axes[dim]
            # where units are not expected, several factors may be samples, whose number is another one elsewhere
            if axis and _alone(atoms, axis) and (k == 0 or len(axis) == 1):
                found.append((call, dim, join(atoms, axis), value))
    return found


def _others(atoms: Atoms, value: Value, dim: int, units: Collection[int]) -> tuple[tuple[int, int, bool], ...] | None:
    """Return the other dimensions that hold units, as :class:`~.groups.Tap` has them; None where samples lie between
    these."""
    found = []
    for at, axis in enumerate(value.axes, -len(value.shape)):
        holds = [_holds(atoms, factor, units) for factor in axis]
        if at == dim or not any(holds):
            continue
        outside = holds[0] and not all(holds)  # as attention without batch_first has its tokens
        first = holds.index(False) if outside else 0
        if outside and any(holds[first:]):
            return None
        some = axis[:first] if outside else axis if holds[0] else axis[1:]
        found.append((at, prod(factor.size for factor in some), outside))
    return tuple(found)


def _holds(atoms: Atoms, factor: Factor, units: Collection[int]) -> bool:
    """Tell whether a factor holds some of these atoms."""
    left = [int(atom) for atom in factor.atoms.reshape(-1)]
    while left:
        atom = _effective(atoms, left.pop())
        if atom in units:
            return True
        if (split := atoms.splits.get(atom)) is not None:
            left += [split.outer, *split.parts]
    return False


def _alone(atoms: Atoms, axis: Axis) -> bool:
    keys = {atoms.key(factor.key) for factor in axis}
    return all(set(atoms.current(factor).over) <= keys or _alike(atoms, factor) for factor in axis)


def _alike(atoms: Atoms, factor: Factor) -> bool:
    """Tell whether units of tensors that lie one above the other are permuted alike in all."""
    stacked = {atoms.key(key) for key in atoms.stacked}
    roots = {atoms.find(int(atom)) for atom in factor.atoms.reshape(-1)}
    return len(roots) == 1 and set(atoms.current(factor).over) <= stacked


def _place(found: _Lies) -> TensorAxis:
    (tensor, dim), index, rows = found
    return TensorAxis(str(tensor), dim, index, rows)


def _walk(atoms: Atoms, parameters: Mapping[str, Value]) -> _Found:
    found = _Found()
    for name, value in parameters.items():
        for dim, axis in enumerate(value.axes):
            if not axis:
                continue
            if len(axis) == 1 and axis[0].over:
                _walk_kernel(atoms, found, name, value, dim)
                continue
            atom = join(atoms, axis)
            size = value.shape[dim]
            _walk_atom(atoms, found, atom, (name, dim), np.arange(size)[:, None], None, None)
    return found


def _blocks_of(atoms: Atoms, key: int) -> set[int]:
    """Return the atoms of blocks by the key of the units inside of them."""
    return {atoms.find(split.outer) for split in atoms.splits.values() if atoms.key(split.key) == key}


def _fix_many_blocks(atoms: Atoms, parameters: Mapping[str, Value]) -> None:
    """Leave the groups of kernels where they are that are blocks inside of blocks."""
    for value in parameters.values():
        for axis in value.axes:
            for factor in axis:
                several = [_blocks_of(atoms, atoms.key(key)) for key in factor.over]
                for blocks in several:
                    if len(several) > 1 or len(blocks) != 1:
                        for one in blocks:
                            atoms.fix(one)


def _walk_kernel(atoms: Atoms, found: _Found, name: str, value: Value, dim: int) -> None:
    """The second dimension of a grouped kernel, by the groups of the first."""
    (factor,) = value.axes[dim]
    key = atoms.key(factor.over[0])
    blocks = next(iter(_blocks_of(atoms, key)), FIXED)
    if blocks == FIXED:  # each group is one unit, which is an atom itself
        lead = atoms.find(join(atoms, value.axes[0]))
        blocks = lead if atoms.sizes[lead] == len(factor.atoms) else FIXED
    rows = np.arange(value.shape[0]).reshape(len(factor.atoms), -1)
    family = tuple(_effective(atoms, int(one)) for one in factor.atoms)
    if blocks != FIXED:
        found.families.setdefault(blocks, []).append(family)
    for own, one in zip(rows, factor.atoms.tolist(), strict=True):
        about = (blocks, family) if blocks != FIXED and len(set(family)) > 1 else None
        _walk_atom(atoms, found, one, (name, dim), np.arange(factor.size)[:, None], own, about)


def _walk_atom(
    atoms: Atoms,
    found: _Found,
    atom: int,
    where: _Where,
    index: np.ndarray,
    rows: np.ndarray | None,
    about: tuple[int, tuple[int, ...]] | None,
) -> None:
    """Note where an atom lies, and its parts.

    Args:
        index: its entries, [size, m]; about: the family that it is in.
    """
    effective = _effective(atoms, atom)
    if effective == FIXED:
        return
    if effective != atoms.find(atom):  # each unit is a block of entries that stay
        atom, index = effective, index.reshape(atoms.sizes[effective], -1)
    atom = atoms.find(atom)
    split = atoms.splits.get(atom)
    if split is None:
        found.places.setdefault(atom, []).append((where, index, rows))
        if about is None:
            found.single.add(atom)
        else:
            found.inside.setdefault(atom, set()).add(about)
        return
    if about is not None:  # blocks in blocks
        found.inside.setdefault(atom, set()).update({about, (-1, ())})
    family = tuple(_effective(atoms, part) for part in split.parts)
    outer, inside = atoms.find(split.outer), None
    if outer != FIXED:
        blocks = index.reshape(len(split.parts), -1)
        found.places.setdefault(outer, []).append((where, blocks, rows))
        found.families.setdefault(outer, []).append(family)
        found.single.add(outer)
        inside = (outer, family) if len(set(family)) > 1 else None
    start = 0
    for size, part in zip(split.sizes, split.parts, strict=True):
        _walk_atom(atoms, found, part, where, index[start : start + size], rows, inside)
        start += size


def _effective(atoms: Atoms, atom: int) -> int:
    """Return the atom of blocks in the place of one whose blocks hold nothing that is permuted: pixels of a channel."""
    atom = atoms.find(atom)
    while (split := atoms.splits.get(atom)) is not None:
        if any(_effective(atoms, part) != FIXED for part in split.parts):
            return atom
        atom = atoms.find(split.outer)
    return atom


def _inconsistent(atoms: Atoms, found: _Found) -> int | None:
    """Return blocks that cannot be permuted with what is inside of them, after which less is permuted; None where all
    is consistent."""
    for outer, families in found.families.items():
        if outer in atoms.splits or outer in found.inside:
            return outer
        for family in families:
            parts = set(family)
            if len(parts) == 1:
                continue
            if len(parts) != len(family) or FIXED in parts:
                return outer
            for part in family:
                if part in found.single or found.inside.get(part, set()) != {(outer, family)}:
                    return outer
    return None
