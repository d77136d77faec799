"""Over which seeds the cells of a table are, and what is said where these are not the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..curves.other_seeds import are_nested, count_common, list_seeds
from .distinct_draws import UNSAID

if TYPE_CHECKING:
    from .comparison import Cell

T = TypeVar("T")


def words_over_seeds(cells: Sequence[Cell]) -> str:
    """Say over how many seeds the numbers are, so that a mean over other seeds is not taken for one over the same."""
    counts = sorted({len(cell.values) for cell in cells})
    if are_nested(_seeds(cell) for cell in cells):
        return f"mean ± deviation over {counts[-1]} seeds of" if counts[-1] > 1 else "one seed,"
    unsaid = any(seed.startswith(UNSAID) for cell in cells for seed in cell.values)
    which = "not known to be the same" if unsaid else "not the same"
    if counts[-1] == 1:
        return f"one seed each, {which} one,"
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"mean ± deviation over {many} seeds each, {which} ones, of"


def notes_on_seeds(cells: Sequence[Cell], baseline: str) -> list[str]:
    """Say which cells lack seeds that others have; where not all that some lack others have, which seeds each has."""
    places = {(cell.row, cell.column): _seeds(cell) for cell in cells}
    if not are_nested(places.values()):
        return _notes_on_others(places, baseline)
    most = max(map(len, places.values()))
    return [f"{_place(*place)}: {len(own)} of {most} seeds" for place, own in places.items() if len(own) < most]


def _notes_on_others(places: Mapping[tuple[str, str], frozenset[str]], baseline: str) -> list[str]:
    named = _by_name({place: _known(seeds) for place, seeds in places.items()})
    if not any(named.values()):  # of runs that say no seed nothing is known
        return []
    return [f"{list_seeds(named)}; {_common(places, baseline)}"]


def _common(places: Mapping[tuple[str, str], frozenset[str]], baseline: str) -> str:
    """Say how many seeds are in common, with the baseline where there is one: differences are paired over these."""
    counts = {
        place: len(_known(seeds) & places[baseline, place[1]])
        for place, seeds in places.items()
        if place[0] != baseline and (baseline, place[1]) in places and seeds != places[baseline, place[1]]
    }
    if not counts:  # no baseline beside them, or each has the seeds of its own
        return f"{count_common([_known(seeds) for seeds in places.values()])} in common"
    beside = f" with {baseline}" if len({place[0] for place in places}) > 2 else ""
    if len(set(counts.values())) > 1:
        parts = ", ".join(f"{name} {count or 'none'}" for name, count in _by_name(counts).items())
        return f"in common{beside}: {parts}; there is a paired difference from 2 on"
    count = next(iter(counts.values()))
    so = "over which differences are paired" if count > 1 else "so there is no paired difference"
    return f"{count or 'none'} in common{beside}, {so}"


def _by_name(places: Mapping[tuple[str, str], T]) -> dict[str, T]:
    """Return what each has, by its row or its column alone where that decides it."""
    for axis in (0, 1):
        values: dict[str, set[T]] = {}
        for place, value in places.items():
            values.setdefault(place[axis], set()).add(value)
        if all(name and len(own) == 1 for name, own in values.items()):
            return {name: own.pop() for name, own in values.items()}
    return {_place(*place): value for place, value in places.items()}


def _place(row: str, column: str) -> str:
    return ", ".join(part for part in (row, column) if part)


def _seeds(cell: Cell) -> frozenset[str]:
    return frozenset(cell.values)


def _known(seeds: frozenset[str]) -> frozenset[str]:
    return frozenset(seed for seed in seeds if not seed.startswith(UNSAID))
