"""Long runs on the pages: what is kept of them, told apart by commit, data file and machine, beside the short runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costs import plan
from long_rules import judged
from outcomes import UNTESTED, Outcome


@dataclass(frozen=True)
class Group:
    """Finished units of one identity.

    Attributes:
        said: which they are, and what they took; folders: of the units, by name.
        commands: of one seed of each kind of unit.
        outcomes: by figure, those that are tested; untested: the others, with the reason.
    """

    said: str
    folders: Mapping[str, Path]
    commands: Sequence[str]
    outcomes: Mapping[str, Sequence[Outcome]]
    untested: Mapping[str, Sequence[Outcome]]

    def shown(self, figure: str) -> list[Outcome]:
        """What stands under a figure: what is tested, and what is not although runs for it are finished."""
        return [*self.outcomes.get(figure, ()), *(one for one in self.untested.get(figure, ()) if one.ran)]


@dataclass(frozen=True)
class Settled:
    """A claim of a figure, as it counts.

    Attributes:
        outcome: the one that counts; long: whether it is of long runs; short: of the short ones beside it.
    """

    outcome: Outcome
    long: bool
    short: Outcome | None = None


def groups(kept: Path, paper: str) -> list[Group]:
    """Of each identity, that with the most units first; half-written units count for nothing.

    Args:
        kept: ``results/long``; paper: as ``ima``.
    """
    found: list[Group] = []
    parts: dict[Any, list[Mapping[str, Path]]] = {}
    for identity, folders in (every := _groups(kept)):
        parts.setdefault(identity, []).append(folders)
    for identity, folders in every:
        outcomes = judged(folders, plan()).get(paper, {})
        tested = {name: [one for one in own if one.kind != UNTESTED] for name, own in outcomes.items()}
        rest = {name: [one for one in own if one.kind == UNTESTED] for name, own in outcomes.items()}
        if any(tested.values()) or any(one.ran for own in rest.values() for one in own):
            about = [json.loads((folder / "unit.json").read_text(encoding="utf-8")) for folder in folders.values()]
            processors = ", ".join(sorted({str(one.get("processor", "")) for one in about} - {""}))
            said = (
                f"Commit {identity.commit[:10]}, data {identity.data[:8]}, {identity.machine}"
                + (f" ({processors})" if processors else "")
                + f"; finished: {', '.join(sorted(folders))}; {_hours(about)} in all. The rules were committed before "
                "these runs, except where a rule says that it was changed after the first seed."
                + _plans(folders, parts[identity])
            )
            found.append(Group(said, folders, _commands(about, paper), tested, rest))
    return found


def _plans(folders: Mapping[str, Path], parts: Sequence[Mapping[str, Path]]) -> str:
    """Of units of one identity whose commands differ in more than the seed, which stand apart, and a command.

    Args:
        folders: those that are shown; parts: all of the identity, by their plans.
    """
    from units import planned as plan_of

    first, *others = parts
    if folders is not first:
        theirs = {command for folder in first.values() for command in plan_of(folder)}
        own = (command for folder in folders.values() for command in plan_of(folder))
        new = next((f", as in `{command}`" for command in own if command not in theirs), "")
        return f" Their commands differ from those of the other units in more than the seed{new}."
    names = ", ".join(sorted(name for own in others for name in own))
    return f" Apart from them, because their commands differ in more than the seed: {names}." if names else ""


def _commands(about: Sequence[Mapping[str, Any]], paper: str) -> list[str]:
    """What was typed for the paper's units, each kind of its first seed; a run that two of them share stands once."""
    first: dict[str, Mapping[str, Any]] = {}
    for one in sorted(about, key=lambda one: str(one["unit"])):
        kind = re.sub(r"-\d+(-ima)?$", r"\1", str(one["unit"]))
        if kind.startswith("wima") is (paper == "wima"):
            first.setdefault(kind, one)
    return list(dict.fromkeys(str(command) for one in first.values() for command in one.get("commands", ())))


def _hours(about: list[dict[str, Any]]) -> str:
    """Return ``3.4 hours on one core``, and those on more cores or on an accelerator apart."""
    names = {1: "one core", 2: "two cores"}
    spent: dict[tuple[str, int], float] = {}
    for one in about:
        where = (str(one["device"]), 0) if one.get("device") else ("", int(one.get("cores", 1)))
        spent[where] = spent.get(where, 0.0) + float(one["seconds"]) / 3600
    return " and ".join(
        f"{hours:.1f} hours on {f'one {device}' if device else names.get(cores, f'{cores} cores')}"
        for (device, cores), hours in sorted(spent.items())
    )


def _groups(kept: Path) -> list[tuple[Any, dict[str, Path]]]:
    folder = str(Path(__file__).resolve().parents[1] / "long")
    if folder not in sys.path:
        sys.path.append(folder)
    from units import groups as of

    return list(of(kept))


def planned(paper: str) -> Mapping[str, Sequence[Outcome]]:
    """What the long runs will be judged by, of which none is finished."""
    outcomes: Mapping[str, Sequence[Outcome]] = judged({}, plan()).get(paper, {})
    return outcomes


def settled(short: Sequence[Outcome], figure: str, paper: str, found: Sequence[Group]) -> list[Settled]:
    """The claims of a figure, each once: the long runs' outcome where they have tested it with several seeds, where
    short runs could not test it, or where none is about it; else the short ones'."""
    own = found[0].outcomes.get(figure, ()) if found else ()
    open_ = {one.key for one in short if one.kind == UNTESTED}
    alone = {one.key: one for one in own}
    first = {one.key: one for one in own if one.key in open_ or any(len(number.seeds) > 1 for number in one.numbers)}
    rest = {one.key: one for one in (found[0].untested.get(figure, ()) if found else ())}
    known = {one.key for one in short if one.key}
    made = [
        Settled(first[one.key], long=True, short=one) if one.key in first else Settled(one, long=False) for one in short
    ]
    made += [
        Settled(alone.get(one.key, rest.get(one.key, one)), long=one.key in alone)
        for one in planned(paper).get(figure, ())
        if one.key not in known
    ]
    return made
