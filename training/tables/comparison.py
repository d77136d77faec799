"""``table``: runs side by side, mean ± deviation over seeds, and the difference to a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from ...analysis.runs import several
from ...checkpoints import FedscopeError, Run, nearest
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.visible_text import visible
from ...results import Table, TableResult, deviation_over, group_rows, number
from ..curves.measures import CurveMeasure, measure_of, reachable, refuse_unknown
from ..sweeps.sweep import Sweep
from .adapter_notes import adapter_notes
from .asked_model import OF, curve_of_model, stands_below
from .distinct_draws import Placed, about_rows, place_runs
from .history_notes import history_notes
from .layout import axes_of, position, words_of
from .losses import notes_on_losses, refuse_choice_by_loss, tasks_of, unlike_losses
from .notes import (
    notes_on_average,
    notes_on_cells,
    notes_on_data,
    notes_on_diverged,
    notes_on_infinite,
    notes_on_last_numbers,
    notes_on_later_measurements,
    notes_on_models,
    notes_on_other_settings,
    notes_on_short_runs,
    refuse_other_data,
)
from .row_labels import LABELS, find_row, labels_of_rows, with_labels
from .source_rows import apart_by_source
from .statistics import ROUNDING, PairedDifference, paired_difference
from .statistics import best_of as best_of_grid
from .table_runs import Gathered, TableRun, gather

#: rows that a table is compared with where none is named
BASELINES = ("fma", "FedAvg", "no average")


@dataclass(frozen=True)
class Cell:
    """One cell: a number a seed.

    Attributes:
        row, column, measure: where it stands.
        values: by seed the mean of the measure over a run's last measured rounds; errors and accuracies as shares.
        reached: by seed the first measured round with the target, None where there is none; {} without a target,
            and of a measure that leaves no accuracy.
    """

    row: str
    column: str
    measure: str
    values: Mapping[str, float]
    reached: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(list(self.values.values())))

    @property
    def deviation(self) -> float:
        """Over the seeds (n - 1); NaN of one."""
        return float(deviation_over(list(self.values.values())))

    @property
    def round(self) -> float:
        """The mean over the seeds of the round with the target; NaN where a seed never has it."""
        rounds = list(self.reached.values())
        there = [round for round in rounds if round is not None]
        return float(np.mean(there)) if rounds and len(there) == len(rounds) else float("nan")


@dataclass(frozen=True)
class Comparison(TableResult):
    """Runs side by side.

    Attributes:
        cells: in the order of rows, columns and measures.
        last: of how many measured rounds the mean is, None for a tenth of each run's, 10 at most.
        target: the accuracy that is to be reached.
        baseline: the row that others are compared with; "" for none.
        notes: what the numbers alone do not say: runs and seeds that are missing.
        commands: of each row what makes its runs.
    """

    command = "table"
    format = "fedscope-table"
    suffixes = (".table.csv", ".table.json")
    tables = (
        Table(
            ".table.csv",
            {"row": str, "column": str, "measure": str, "seed": str, "value": number, "reached": number},
        ),
    )

    cells: tuple[Cell, ...]
    last: int | None
    target: float | None = None
    baseline: str = ""
    notes: tuple[str, ...] = ()
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def rows_named(self) -> tuple[str, ...]:
        """The rows, in order."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def called(self) -> Mapping[str, str]:
        """What rows with labels are called by their settings."""
        olds = self.attrs.get(LABELS, {})
        return olds if isinstance(olds, Mapping) else {}

    def list_names(self) -> tuple[str, ...]:
        """List the rows."""
        return self.rows_named

    def renamed(self, labels: Mapping[str, str]) -> Self:
        """Return the same table with other names for its rows.

        Args:
            labels: by the names of :attr:`rows_named`.

        Raises:
            FedscopeError: a row that is not in it; an empty label, or one for two.
        """
        return cast(Self, with_labels(self, labels))

    @cached_property
    def columns_named(self) -> tuple[tuple[str, str], ...]:
        """The columns and their measures, in order."""
        return tuple(dict.fromkeys((cell.column, cell.measure) for cell in self.cells))

    @cached_property
    def _places(self) -> dict[tuple[str, str, str], Cell]:
        return {(cell.row, cell.column, cell.measure): cell for cell in self.cells}

    def cell(self, row: str, column: str, measure: str) -> Cell | None:
        """One cell; None where no run is."""
        return self._places.get((row, column, measure))

    def best(self, column: str, measure: str) -> tuple[str, ...]:
        """Return the rows with the best mean of a column: the greatest accuracy, the least loss, error or cost; none
        where fewer than two rows have one, as one alone is better than nothing, where all are equal, where neither
        more nor less is better, or of losses of different tasks."""
        sign = 0 if self._is_unlike(column, measure) else measure_of(measure).direction
        there = [cell for cell in self.cells if (cell.column, cell.measure) == (column, measure)]
        there = [cell for cell in there if not np.isnan(cell.mean)]
        if not sign or len(there) < 2:
            return ()
        best = min(sign * cell.mean for cell in there)
        rows = tuple(cell.row for cell in there if abs(sign * cell.mean - best) <= ROUNDING * abs(best))
        return rows if len(rows) < len(there) else ()

    def difference(self, cell: Cell) -> PairedDifference | None:
        """To the baseline's cell of the same column, paired over the seeds; None of losses of different tasks."""
        other = self.cell(self.baseline, cell.column, cell.measure)
        unlike = self._is_unlike(cell.column, cell.measure)
        return None if other is None or other is cell or unlike else paired_difference(cell.values, other.values)

    def _is_unlike(self, column: str, measure: str) -> bool:
        """True if the rows of a column have the losses of different tasks."""
        unlike = self.attrs.get("unlike_losses", ())
        return measure_of(measure).is_loss and any(
            own in ("", column) or column.startswith(f"{own}, ") for own in unlike
        )

    def ratio(self, cell: Cell) -> float:
        """Return the baseline's rounds to the target over this one's; NaN where one never has it."""
        other = self.cell(self.baseline, cell.column, cell.measure)
        return float("nan") if other is None else other.round / cell.round

    def text(self, form: str = "text") -> str:
        """Write the table as ``text``, ``markdown``, ``csv``, ``latex`` or ``typst``.

        Raises:
            FedscopeError: another form.
        """
        from .forms import format_table

        return format_table(self, form)

    def rows(self) -> list[Any]:
        """BASE.table.csv: a row a cell and seed."""
        return [
            [
                (cell.row, cell.column, cell.measure, seed, value, cell.reached.get(seed))
                for cell in self.cells
                for seed, value in cell.values.items()
            ]
        ]

    def head(self) -> dict[str, Any]:
        """Collect what the rows do not say."""
        return {
            "last": self.last,
            "target": self.target,
            "baseline": self.baseline,
            "notes": list(self.notes),
            "commands": {row: list(own) for row, own in self.commands.items()},
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        cells = []
        for (name, column, measure), own in group_rows(tables[0], "row", "column", "measure").items():
            rounds = {row["seed"]: None if row["reached"] is None else int(row["reached"]) for row in own}
            values = {row["seed"]: float("nan") if row["value"] is None else row["value"] for row in own}
            is_asked = head["target"] is not None and measure_of(measure).is_reachable
            cells.append(Cell(name, column, measure, values, rounds if is_asked else {}))
        commands = {row: tuple(own) for row, own in head["commands"].items()}
        return cls(
            tuple(cells),
            None if head["last"] is None else int(head["last"]),
            head["target"],
            visible(head["baseline"]),
            tuple(head["notes"]),
            commands,
            head["attrs"],
        )

    def summary(self) -> str:
        """Format the table as text."""
        return self.text()

    def findings(self) -> dict[str, Any]:
        """Every cell with its mean, its deviation, and its difference to the baseline."""
        cells = []
        for cell in self.cells:
            found = self.difference(cell)
            said = {"row": cell.row, "column": cell.column, "measure": cell.measure, "mean": cell.mean}
            said |= {"deviation": cell.deviation, "seeds": dict(cell.values)}
            if self.target is not None and measure_of(cell.measure).is_reachable:
                said |= {"rounds": dict(cell.reached), "ratio": self.ratio(cell)}
            if found is not None:
                said["difference"] = asdict(found)
            cells.append(said)
        return {"baseline": self.baseline, "last": self.last, "cells": cells, "notes": list(self.notes)}

    @property
    def is_drawable(self) -> bool:
        """True if the columns are numbers of a setting."""
        return len({place[0] for place in self.attrs.get("places", {}).values()}) > 1


@speak_keywords
def table(
    runs: Run | Sweep | Path | str | Sequence[Run | Sweep | Path | str],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    measures: Sequence[str] = (),
    best_of: Sequence[str] = (),
    of: str = "deployed",
    last: int | None = None,
    target: float | None = None,
    baseline: str | None = None,
    labels: Sequence[str] | Mapping[str, str] | None = None,
) -> Comparison:
    """Compare runs side by side: mean ± deviation over seeds, and the difference to a baseline, paired over seeds.

    A run's number is the mean of a measure over its last measured rounds. Runs that differ in ``run.seed`` and
    ``data.seed`` alone are one cell.

    Args:
        runs: runs or sweeps, or their folders.
        rows, columns: settings, as ``method`` or ``run.participation``; by default the method, and all others in which
            the runs differ, but those that go with the method. Of these a note names what methods have in common, as
            ``client.epochs``.
        measures: columns of ``metrics.csv``, or ``accuracy`` for its error; by default ``test_accuracy``, or the test
            loss of a task without an error.
        best_of: settings of a grid, as ``client.mu``: of every cell the runs of the value with the best mean of the
            first measure, as papers tune a method; which was chosen is in the notes.
        of: ``deployed``, ``global``, ``averaged``, or ``both`` of these as columns.
        last: of how many measured rounds; by default a tenth of each run's, 10 at most.
        target: an accuracy, 0 to 1: the first round with it, and the baseline's rounds over these; of the errors and
            accuracies among ``measures``.
        baseline: a row; by default FMA's where there is one, else none.
        labels: what rows are called, in their order or by their names, as ``{"fma": "FedAvg"}``.

    Raises:
        FedscopeError: runs on different data, also of one name; a run without rounds; settings or measures that there
            are not; a target of measures that leave no accuracy; a run that is there twice; labels that do not fit
            the rows.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [cell.row for cell in fedscope.table(run).cells]
    ['fma']
    >>> folder.cleanup()
    """
    if isinstance(runs, Mapping):
        raise FedscopeError(
            "a table calls its rows by methods and settings, and not by runs; give a list of runs, and other names of "
            "rows as labels=['FedAvg', 'ours'] (recorded runs are called by Recorder(method=))"
        )
    given = several(runs, Sweep)
    gathered = gather(given)
    gathered = replace(gathered, entries=apart_by_source(gathered.entries))
    rows, columns, best_of = ([keys] if isinstance(keys, str) else keys for keys in (rows, columns, best_of))
    by_data = "data.name" in gathered.varied or "data.name" in (*rows, *columns)
    if not by_data:  # before the data become columns by themselves
        refuse_other_data(gathered.entries, apart=False)
    rows, columns = axes_of(gathered.entries, rows, columns, best_of)
    # a label stands for whatever it was given to; what --best-of chooses from is compared with each other
    refuse_other_data(gathered.entries, apart=by_data and bool({"data.name", "label"} & {*rows, *columns}))
    chosen = _chosen_measures(gathered, measures, best_of, of, last, target)

    def badness(entry: TableRun) -> float:
        value = curve_of_model(entry.curve, "deployed" if of == "both" else of, chosen[0]).tail(chosen[0].name, last)[0]
        return chosen[0].direction * value

    def place(entry: TableRun) -> str:
        return ", ".join(part for part in (words_of(rows, entry), words_of(columns, entry)) if part)

    refuse_choice_by_loss(gathered.entries, best_of, place, chosen[0])
    tuned, choices = best_of_grid(gathered.entries, best_of, place, badness)
    gathered = replace(gathered, entries=tuple(tuned))

    def row_of(entry: TableRun) -> str:
        return words_of(rows, entry)

    there = place_runs(gathered.entries, row_of, lambda entry: words_of(columns, entry))
    commands: dict[str, list[str]] = {}
    for one in there:
        commands.setdefault(one.row, []).append(one.entry.command)
    cells, windows = _cells(there, chosen, of, last, target)
    unlike = unlike_losses(there, chosen)
    named = list(dict.fromkeys(cell.row for cell in cells))
    called = labels_of_rows(labels, named)
    baseline = _baseline(baseline, named, called)
    made = Comparison(
        cells=tuple(cells),
        last=last,
        target=target,
        baseline=baseline,
        notes=(
            *choices,
            *notes_on_data(gathered),
            *about_rows(there, row_of),
            *notes_on_losses(gathered.entries, unlike),
            *notes_on_average(gathered.entries, (*rows, *columns)),
            *notes_on_cells(gathered, cells, baseline),
            *notes_on_models(gathered, chosen, of),
            *(notes_on_short_runs(gathered, chosen, of, last) if last is not None else ()),
            *notes_on_last_numbers(gathered, chosen, of),
            *notes_on_diverged(gathered, chosen, of, last),
            *notes_on_infinite(gathered, chosen, of, last),
            *notes_on_other_settings(gathered, (*rows, *columns), best_of),
            *history_notes(gathered.entries),
            *adapter_notes(gathered.entries),
            *notes_on_later_measurements(gathered, chosen),
        ),
        commands={row: tuple(own) for row, own in commands.items()},
        attrs={
            **{"rows": list(rows), "columns": list(columns), "of": of},
            **_attrs(gathered, columns, cells, windows, unlike),
        },
    )
    return made.renamed(called)


def _chosen_measures(
    gathered: Gathered,
    measures: str | Sequence[str],
    best_of: Sequence[str],
    of: str,
    last: int | None,
    target: float | None,
) -> list[CurveMeasure]:
    """Return the measures of a table: those that were asked for, or the usual one.

    Raises:
        FedscopeError: a measure that there is not; another option that there cannot be, or that does not go with them.
    """
    asked = [measures] if isinstance(measures, str) else list(measures)
    refuse_unknown(asked, [name for entry in gathered.entries for name in entry.curve.values])
    chosen = [measure_of(name) for name in asked or _usual(gathered)]
    _refuse_options(of, last, target)
    if target is not None:
        reachable(chosen, target)
    if best_of and not chosen[0].direction:
        raise FedscopeError(
            f"--best-of {' '.join(best_of)} chooses by {chosen[0].name}, of which it is not known whether more or "
            "less is better; give an accuracy, an error or a loss as the first --measure"
        )
    return chosen


def _attrs(
    gathered: Gathered, columns: Sequence[str], cells: Sequence[Cell], windows: set[int], unlike: Iterable[str]
) -> dict[str, Any]:
    """Return what the provenance of a table says of its runs and columns."""
    return {
        "runs": [entry.name for entry in gathered.entries],
        "windows": sorted(windows - {0}),
        **tasks_of(gathered.entries),
        **({"unlike_losses": list(unlike)} if unlike else {}),
        **_axis(gathered, columns, {cell.column for cell in cells}),
    }


def _refuse_options(of: str, last: int | None, target: float | None) -> None:
    """Refuse another model, number of rounds or accuracy than there can be.

    Raises:
        FedscopeError: names it.
    """
    if of not in OF:
        raise FedscopeError(f"--of {of!r} is not a model{nearest(of, OF)}; give {', '.join(OF)}")
    if last is not None and (not isinstance(last, Integral) or last < 1):
        raise FedscopeError(f"--last {last} is not a number of rounds; give 1 or more")
    if target is not None and not (isinstance(target, Real) and 0 < target <= 1):
        raise FedscopeError(f"--target {target} is not an accuracy; give one above 0 and at most 1, as 0.8 for 80 %")


def _cells(
    there: Sequence[Placed], chosen: Sequence[CurveMeasure], of: str, last: int | None, target: float | None
) -> tuple[list[Cell], set[int]]:
    """Return the cells of runs that have their places, and over how many rounds their means are.

    Raises:
        FedscopeError: no run has measured what was chosen.
    """
    places: dict[tuple[str, str, str], dict[str, TableRun]] = {}
    kinds = ("global", "averaged") if of == "both" else (of,)
    for one in there:
        for kind in kinds:
            named = ", ".join(part for part in (one.column, kind if of == "both" else "") if part)
            for measure in chosen:
                places.setdefault((one.row, named, measure.name), {})[one.seed] = one.entry
    cells, windows = list[Cell](), set[int]()
    for (row, column, name), seeds in places.items():
        measure, kind = measure_of(name), column.rpartition(", ")[2] if of == "both" else of
        values: dict[str, float] = {}
        reached: dict[str, int | None] = {}
        for seed, entry in seeds.items():
            curve = curve_of_model(entry.curve, kind, measure)
            if of == "both" and not stands_below(kind, measure):
                curve = replace(curve, values={})
            values[seed], _, window = curve.tail(name, last)
            windows.add(window)
            if target is not None and measure.is_reachable:
                reached[seed] = curve.reach(measure, target).round
        cells.append(Cell(row, column, name, values, reached))
    if all(np.isnan(cell.mean) for cell in cells):
        names = ", ".join(measure.name for measure in chosen)
        known = {name for one in there for name, found in one.entry.curve.values.items() if np.isfinite(found).any()}
        known -= {name for name in known if name.startswith("server_")}
        remedy = f"give another --measure, of {list_few(sorted(known), 12)}" if known else "fedscope measure RUN does"
        if all(one.entry.curve.no_server for one in there):
            remedy = (
                "of runs without a server give --measure client_error_mean, which fedscope measure RUN --clients gives "
                "them, or ask fedscope consensus"
            )
        raise FedscopeError(f"no run has measured {names}; {remedy}")
    return cells, windows


def _baseline(asked: str | None, rows: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return the row that others are compared with, which may be called by its label; "" for none.

    Raises:
        FedscopeError: a row that is not there.
    """
    if asked is None:
        return next((name for name in BASELINES if name in rows and len(rows) > 1), "")
    found = next((row for row, label in labels.items() if label == asked), None) or find_row(asked, rows)
    if found is None:
        raise FedscopeError(f"--baseline {asked!r} is not a row{nearest(asked, rows)}; the rows are {list_few(rows)}")
    return found


def _axis(gathered: Gathered, columns: Sequence[str], named: set[str]) -> dict[str, Any]:
    """Return the first setting of the columns that is a number in all runs, and of each column its value and what else
    it is called."""
    for key in columns:
        at = [position(key, entry.settings.get(key)) for entry in gathered.entries]
        if None in at or len(set(at)) < 2:
            continue
        others = [other for other in columns if other != key]
        places: dict[str, list[Any]] = {}
        for entry, x in zip(gathered.entries, at, strict=True):
            own, rest = words_of(columns, entry), words_of(others, entry)
            places |= {
                name: [x, ", ".join(part for part in (rest, name.removeprefix(own).strip(", ")) if part)]
                for name in named
                if name == own or name.startswith(f"{own}, ")
            }
        return {"axis": key, "places": places}
    return {}


def _usual(gathered: Gathered) -> tuple[str, ...]:
    errors = any(entry.curve.tail("test_error")[2] for entry in gathered.entries)
    return ("test_accuracy",) if errors else ("test_loss",)
