"""Draws of one thing, which share a cell of a table, told apart from runs that only have the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.rounds.run_identity import shared_rounds
from ..curves.other_seeds import seed_words
from ..curves.run_names import is_copy
from .table_runs import TableRun

CellPlace = tuple[str, str]
#: begins what a run without a seed has in the place of one
UNSAID = "run "


@dataclass(frozen=True)
class Placed:
    """A run in its row and column, under its seed; ``shares``: of a row of its own the rounds that it has in common
    with a run of another seed that would be in its cell."""

    entry: TableRun
    row: str
    column: str
    seed: str
    shares: int = 0


def place_runs(
    entries: Sequence[TableRun], row: Callable[[TableRun], str], column: Callable[[TableRun], str]
) -> list[Placed]:
    """Every run's place. Runs of one place share a cell if they say different seeds and were trained apart. One that
    says no seed, or the seed of another run that is none of its copies, has a row of its own, with its folder's name.
    So have branches of one run, and a run and its branch: over rounds that both have from one training, a deviation is
    none over seeds.

    Raises:
        FedscopeError: a run that is there twice; two trained runs of the same settings and seeds, which are one draw.
    """
    cells: dict[CellPlace, list[TableRun]] = {}
    for entry in entries:
        cells.setdefault((row(entry), column(entry)), []).append(entry)
    alone: dict[int, str] = {}
    shares: dict[int, int] = {}
    for own in cells.values():
        for one, other in combinations(own, 2):
            known = seed_of(one) is not None and seed_of(other) is not None
            rounds = _shared(one, other)
            if known and seed_of(one) != seed_of(other):
                # what says a seed is another draw than what says another, unless both go on from one training
                both = [one, other] if rounds else []
            else:
                _refuse_same(one, other)
                both = [entry for entry in (one, other) if known or rounds or seed_of(entry) is None]
            for entry in both:
                alone[id(entry)] = entry.name
                shares[id(entry)] = max(rounds, shares.get(id(entry), 0))
    names = list(alone.values())
    made = []
    for entry in entries:
        name = alone.get(id(entry))
        if name is not None and names.count(name) > 1 and entry.run is not None:
            name = str(entry.run.path)
        words = row(entry) if name is None else f"{row(entry)} ({name})"
        # of a run without a seed no other is a pair
        seed = seed_of(entry) or f"{UNSAID}{entry.name}"
        made.append(Placed(entry, words, column(entry), seed, shares.get(id(entry), 0)))
    return made


def about_rows(places: Sequence[Placed], row: Callable[[TableRun], str]) -> list[str]:
    """Describe why runs of one method have rows of their own, a sentence."""
    alone = [one.entry for one in places if one.row != row(one.entry) and not one.shares]
    unsaid = [entry.name for entry in alone if seed_of(entry) is None]
    seeded = [entry for entry in alone if seed_of(entry) is not None]
    notes = []
    if unsaid:
        say, each = ("say", "each has") if len(unsaid) > 1 else ("says", "it has")
        notes.append(
            f"{list_few(unsaid, 5)} {say} no seed, so {each} a row of its own; record runs with Recorder(method=, "
            "seed=) for a mean over seeds"
        )
    if seeded:
        remedy = "; record what differs in Recorder(settings=)" if any(one.is_recorded for one in seeded) else ""
        names = list_few([one.name for one in seeded], 5)
        notes.append(
            f"{names} have the seed of another run in their cell, but other models, so each has a row of its "
            f"own{remedy}"
        )
    if shared := [one for one in places if one.shares]:
        rounds = sorted({one.shares for one in shared})
        first = "first rounds" if len(rounds) > 1 else f"rounds up to {rounds[0]}"
        notes.append(
            f"{list_few([one.entry.name for one in shared], 5)} have their {first} from one training, so they are no "
            "seeds of their own and each has a row of its own; for a mean over seeds give runs that were trained apart"
        )
    return [*notes, *_about_pairs(places)]


def _about_pairs(places: Sequence[Placed]) -> list[str]:
    """Say which runs of two rows, with two seeds that both rows have, go on from one training: then the differences of
    these seeds depend on each other, and a test takes them for independent ones."""
    seeds: dict[CellPlace, set[str]] = {}
    for one in places:
        seeds.setdefault((one.row, one.column), set()).add(one.seed)
    for one, other in combinations(places, 2):
        if one.column != other.column or one.row == other.row or one.seed == other.seed:
            continue
        paired = seeds[one.row, one.column] & seeds[other.row, other.column]
        if {one.seed, other.seed} <= paired and (rounds := _shared(one.entry, other.entry)):
            return [
                f"{one.entry.name} and {other.entry.name} have their rounds up to {rounds} from one training and other "
                "seeds, so differences that are paired over seeds depend on each other, and their interval and p are "
                "those of independent ones"
            ]
    return []


def seed_of(entry: TableRun) -> str | None:
    """``3``, or ``3/0`` where run and data have two; None where the run says none."""
    return seed_words(entry.seed)


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


def _shared(one: TableRun, other: TableRun) -> int:
    """Return the rounds that two runs have from one training."""
    return 0 if one.run is None or other.run is None else shared_rounds(one.run.info, other.run.info)


def _history(entry: TableRun) -> object:
    return None if entry.run is None else entry.run.info.get("branch", {}).get("history")
