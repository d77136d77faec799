"""Draws of one thing, which share a cell of a table, told apart from runs that only have the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ..curves.run_names import is_copy
from .table_runs import TableRun

Place = tuple[str, str]


@dataclass(frozen=True)
class Placed:
    """A run in its row and column, under its seed."""

    entry: TableRun
    row: str
    column: str
    seed: str


def place_runs(
    entries: Sequence[TableRun], row: Callable[[TableRun], str], column: Callable[[TableRun], str]
) -> list[Placed]:
    """Every run's place. Runs of one place share a cell if they say different seeds. One that says no seed, or the seed
    of another run that is none of its copies, has a row of its own, with its folder's name.

    Raises:
        FedscopeError: a run that is there twice; two trained runs of the same settings and seeds, which are one draw.
    """
    cells: dict[Place, list[TableRun]] = {}
    for entry in entries:
        cells.setdefault((row(entry), column(entry)), []).append(entry)
    alone: dict[int, str] = {}
    for own in cells.values():
        for one, other in combinations(own, 2):
            # what says a seed is another draw than what says another, whatever is in it
            if seed_of(one) is not None and seed_of(other) is not None and seed_of(one) != seed_of(other):
                continue
            _refuse_same(one, other)
            if seed_of(one) is None or seed_of(one) == seed_of(other):
                alone[id(one)] = one.name
            if seed_of(other) is None or seed_of(one) == seed_of(other):
                alone[id(other)] = other.name
    names = list(alone.values())
    made = []
    for entry in entries:
        name = alone.get(id(entry))
        if name is not None and names.count(name) > 1 and entry.run is not None:
            name = str(entry.run.path)
        words = row(entry) if name is None else f"{row(entry)} ({name})"
        # of a run without a seed no other is a pair
        made.append(Placed(entry, words, column(entry), seed_of(entry) or f"run {entry.name}"))
    return made


def about_rows(places: Sequence[Placed], row: Callable[[TableRun], str]) -> list[str]:
    """Describe why runs of one method have rows of their own, a sentence."""
    alone = [one.entry for one in places if one.row != row(one.entry)]
    unsaid = [entry.name for entry in alone if seed_of(entry) is None]
    same = [entry.name for entry in alone if seed_of(entry) is not None]
    notes = []
    if unsaid:
        say, each = ("say", "each has") if len(unsaid) > 1 else ("says", "it has")
        notes.append(
            f"{list_few(unsaid, 5)} {say} no seed, so {each} a row of its own; record runs with Recorder(method=, "
            "seed=) for a mean over seeds"
        )
    if same:
        notes.append(
            f"{list_few(same, 5)} have the seed of another run in their cell, but other models, so each has a row of "
            "its own; record what differs in Recorder(settings=)"
        )
    return notes


def seed_of(entry: TableRun) -> str | None:
    """``3``, or ``3/0`` where run and data have two; None where the run says none."""
    run, data = entry.seed
    if run is None:
        return None
    return str(run) if run == data or data is None else f"{run}/{data}"


def _refuse_same(one: TableRun, other: TableRun) -> None:
    seed = seed_of(one) or seed_of(other)
    with_seed = f" (seed {seed})" if seed is not None else ""
    if one.run is None or other.run is None:
        return
    if is_copy(one.run, other.run):
        raise FedscopeError(f"{one.name} and {other.name} are the same run in two places{with_seed}; leave one out")
    trained = not one.is_recorded and not other.is_recorded
    if trained and one.settings == other.settings and _history(one) == _history(other) and one.data == other.data:
        raise FedscopeError(
            f"{one.name} and {other.name} were trained with the same settings and seeds{with_seed}, so they are one "
            "draw and no two; leave one out"
        )


def _history(entry: TableRun) -> object:
    return None if entry.run is None else entry.run.info.get("branch", {}).get("history")
