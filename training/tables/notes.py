"""What is said under a table: what its numbers are of, what they lack, and what else its runs differ in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few, spans
from ..curves.diverged import describe_diverged
from ..curves.measures import TOTALS, CurveMeasure, measure_of
from ..curves.run_curve import window_of
from ..curves.summary import describe_stale
from ..data.same_data import same_data
from .asked_model import OF_DEPLOYED, curve_of_model, has_average, stands_below
from .code_notes import code_notes
from .layout import says, unsaid_settings, words_of
from .seed_notes import notes_on_seeds
from .shared_settings import SharedSetting, shared_settings
from .table_runs import Gathered, TableRun

if TYPE_CHECKING:
    from .comparison import Cell


def refuse_other_data(entries: Sequence[TableRun], *, apart: bool) -> None:
    """Refuse to compare runs on different data.

    Args:
        apart: whether rows or columns are data sets on purpose; then runs of one ``data.name`` alone are compared: a
            file may have changed since the first of them was trained.

    Raises:
        FedscopeError: runs on different data.
    """
    named: dict[object, list[TableRun]] = {}
    for entry in entries:
        named.setdefault(entry.settings.get("data.name") if apart else None, []).append(entry)
    for own in named.values():
        kinds: dict[str, TableRun] = {}
        for entry in own:
            kinds.setdefault(json.dumps(entry.data, sort_keys=True), entry)
        for one, other in combinations(kinds.values(), 2):
            if same_data(one.data, other.data) is False:
                raise FedscopeError(_describe_other_data(one, other))


def _describe_other_data(one: TableRun, other: TableRun) -> str:
    were = "recorded as trained" if one.is_recorded or other.is_recorded else "trained"
    both = f"{one.name} and {other.name} were {were} on different data"
    names = [str(entry.data.get("name", "without a name")) for entry in (one, other)]
    if one.settings.get("data.name") != other.settings.get("data.name"):
        return (
            f"{both} ({' and '.join(names)}), so their numbers do not compare; leave one out, or say so with --columns "
            "data.name"
        )
    sums = [str(entry.data.get("sha256") or entry.data.get("file_sha256") or "not said")[:12] for entry in (one, other)]
    return (
        f"{both} that are both called {names[0]} (sha256 {sums[0]}... and {sums[1]}...), so their numbers do not "
        "compare; leave one out, or train both on the same"
    )


def notes_on_data(gathered: Gathered) -> list[str]:
    """Say where the data are not known."""
    silent = [entry.name for entry in gathered.entries if not entry.data.get("name")]
    if not silent or len(gathered.entries) < 2:
        return []
    do = "do" if len(silent) > 1 else "does"
    return [f"{list_few(silent, 5)} {do} not say on which data; whether all are of the same is not known"]


def notes_on_short_runs(gathered: Gathered, measures: Sequence[CurveMeasure], of: str, last: int) -> list[str]:
    """Say where the last rounds are all that there are: such a mean holds the first ones, too."""
    kinds = ("global", "averaged") if of == "both" else (of,)
    short = {}
    for entry in gathered.entries:
        for measure in measures:
            counts = [curve_of_model(entry.curve, kind, measure).tail(measure.name, last)[2] for kind in kinds]
            if measure.name not in TOTALS and 0 < (most := max(counts)) < last:
                short[entry.name] = most
    if not short:
        return []
    few = (
        f"{min(short.values())} to {max(short.values())}" if len(set(short.values())) > 1 else f"{min(short.values())}"
    )
    who = "all runs have" if len(short) == len(gathered.entries) else f"{list_few(short, 5)} have"
    return [f"{who} {few} measured rounds in all, fewer than --last {last}: the mean holds the first ones, too"]


def notes_on_last_numbers(gathered: Gathered, measures: Sequence[CurveMeasure], of: str) -> list[str]:
    """Say where the last numbers are not of the last rounds."""
    kinds = ("global", "averaged") if of == "both" else (of,)
    notes = (
        describe_stale([curve_of_model(entry.curve, kind, measure) for entry in gathered.entries], measure)
        for measure in measures
        for kind in kinds
    )
    return list(dict.fromkeys(filter(None, notes)))


def notes_on_diverged(
    gathered: Gathered, measures: Sequence[CurveMeasure], of: str, last: int | None = None
) -> list[str]:
    """Say which runs enter a mean with the error of a model that has diverged."""
    notes: list[str] = []
    for measure in measures:
        for kind in ("global", "averaged") if of == "both" else (of,):
            if kind == "averaged" and measure.is_deployed:  # the loss beside is the average's, too
                own, curves = measure_of(f"averaged_{measure.name}"), [entry.curve for entry in gathered.entries]
            else:
                own, curves = measure, [curve_of_model(entry.curve, kind, measure) for entry in gathered.entries]
            notes += describe_diverged(curves, own, last)
    return list(dict.fromkeys(notes))


def notes_on_infinite(
    gathered: Gathered, measures: Sequence[CurveMeasure], of: str, last: int | None = None
) -> list[str]:
    """Say which runs enter a mean with an infinite number."""
    notes = []
    for measure in measures:
        found: dict[str, None] = {}
        for kind in ("global", "averaged") if of == "both" else (of,):
            for entry in gathered.entries:
                rounds, values = curve_of_model(entry.curve, kind, measure).measured(measure)
                window = last or window_of(len(rounds))
                own = rounds[-window:][np.isinf(values[-window:])].tolist()
                if own:
                    found[f"{entry.name} (round{'s' if len(own) > 1 else ''} {spans(own)})"] = None
        if found:
            notes.append(
                f"{measure.name} is infinite in {list_few(found, 5)}, so a mean with that is, too, and its difference "
                "to another one has no interval"
            )
    return notes


def notes_on_other_settings(gathered: Gathered, said: Sequence[str], chosen: Sequence[str] = ()) -> list[str]:
    """Say in which settings rows differ that no row and no column names.

    Args:
        said: the keys of rows and columns; chosen: those of which each row has its best value.
    """
    notes = []
    for key in unsaid_settings(gathered.entries, (*said, *chosen)):
        values = dict.fromkeys(words_of((key,), entry) for entry in gathered.entries if says(entry, key))
        notes.append(f"rows differ in {key}, too: {list_few(values, 5)}; --columns {key} sets them apart")
    if "label" not in said:
        notes += map(_describe_shared, shared_settings(gathered.entries, (*said, *chosen)))
    return notes + _silent(gathered)


def _describe_shared(one: SharedSetting) -> str:
    values = list_few(dict.fromkeys(words_of((one.key,), entry) for entry in one.entries), 5)
    if one.by_default:
        return f"rows differ in {one.key} by the defaults of their methods: {values}"
    return f"rows differ in {one.key}, too: {values}; --columns {one.key} sets them apart"


def notes_on_later_measurements(gathered: Gathered, measures: Sequence[CurveMeasure]) -> list[str]:
    """Say which runs have numbers of the table's measures that ``fedscope measure`` has filled in, and on what."""
    shown = {name for measure in measures for name in (measure.column, f"averaged_{measure.column}")}
    names: dict[str, list[str]] = {}
    for entry in gathered.entries:
        for one in entry.run.measured.measurements if entry.run is not None else ():
            if shown & set(one.columns):
                names.setdefault(one.words, []).append(entry.name)
    return [f"{list_few(own, 5)}: measured afterwards: {words}" for words, own in names.items()]


def notes_on_average(entries: Sequence[TableRun], axes: Sequence[str]) -> list[str]:
    """Say over which average over rounds all runs are, where the axes name clients and servers alone."""
    (name, *others) = {str(entry.settings.get("average.method")) for entry in entries}
    if others or name in ("none", "None") or {"method", "average.method"} & {*axes}:
        return []
    of_methods = {"client.method", "server.method"} & {*axes}
    return [f"all runs average over rounds with {name}"] if of_methods else []


def notes_on_models(gathered: Gathered, measures: Sequence[CurveMeasure], of: str) -> list[str]:
    """Say of which measures the global models of some runs have no numbers."""
    names = [measure.name for measure in measures if measure.column.startswith(OF_DEPLOYED)]
    of_neither = [
        one.name for one in measures if not (stands_below("averaged", one) or one.column.startswith("averaged_"))
    ]
    notes = []
    if of in ("global", "both") and names and any(has_average(entry.curve) for entry in gathered.entries):
        notes.append(f"{list_few(names, 3)} {_is(names)} of the averaged model where there is one")
    if of == "both" and of_neither:
        notes.append(f"{list_few(of_neither, 3)} {_is(of_neither)} of neither model; see below global")
    return notes


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _silent(gathered: Gathered) -> list[str]:
    """Say which recorded runs do not say their settings, where others do."""
    silent = [entry.name for entry in gathered.entries if entry.is_recorded and not _own_settings(entry)]
    if not silent or len(silent) == len(gathered.entries):
        return []
    keep = "keep" if len(silent) > 1 else "keeps"
    return [f"{list_few(silent, 5)} {keep} no settings; whether theirs are those of the other runs is not known"]


def _own_settings(entry: TableRun) -> list[str]:
    return [key for key in entry.settings if key not in ("method", "average.method", "data.name")]


def notes_on_cells(gathered: Gathered, cells: Sequence[Cell], baseline: str) -> list[str]:
    """Say which runs are not complete, and what is to be known of their cells and their code."""
    notes = []
    if gathered.missing:
        few = ", ".join(gathered.missing[:5]) + (", ..." if len(gathered.missing) > 5 else "")
        several = f"{count} runs" if (count := len(gathered.missing)) > 1 else "1 run"
        notes.append(f"{several} of the sweep {'are' if count > 1 else 'is'} not complete: {few}")
    for entry in gathered.entries:
        done, of = entry.rounds
        if done < of:
            notes.append(f"{entry.name} has {done} of {of} rounds")
    return [
        *notes,
        *notes_on_numbers(cells, baseline),
        *code_notes([entry.run for entry in gathered.entries if entry.run is not None]),
    ]


def notes_on_numbers(cells: Sequence[Cell], baseline: str) -> list[str]:
    """Say what the cells alone say: which shares are none, and which lack seeds or have others than the baseline."""
    notes = []
    for cell in cells:
        measure = measure_of(cell.measure)
        if measure.is_reachable and any(not 0 <= value <= 1 for value in cell.values.values() if np.isfinite(value)):
            notes.append(
                f"{cell.row or cell.column}: {measure.column} is no share from 0 to 1; was it recorded in per cent?"
            )
    for cell in cells:
        lacking = [seed for seed, value in cell.values.items() if np.isnan(value)]
        if lacking and len(lacking) < len(cell.values):
            where = ", ".join(part for part in (cell.row, cell.column) if part)
            notes.append(f"{where}: no {cell.measure} of seed {list_few(lacking, 5)}, so there is no mean of it")
    return [*notes, *notes_on_seeds(cells, baseline)]
