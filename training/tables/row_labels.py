"""Other names for the rows of a table: all that is printed and drawn is called by them, and no number changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ...plotting.printed import printed_words
from ...results.labels import labels_of, listed_labels, refuse_misfits
from ..settings.registry import canonical_method
from .notes import notes_on_numbers
from .statistics import CHOSEN

if TYPE_CHECKING:
    from .comparison import Comparison

#: in a table's ``attrs`` what its rows with labels are called by their settings
LABELS = "labels"


def printed_row(table: Comparison, row: str) -> str:
    """Return a row's name as it is printed; a label as it is."""
    return row if row in table.called else printed_words(row, table.attrs.get("rows", ()))


def find_row(asked: str, rows: Collection[str]) -> str | None:
    """Return the row that is called so: as it is, as the field calls its method, as a table prints it, or as ``ls``
    calls its runs.

    >>> find_row("FedAvg", ["fma", "ima"]), find_row("FMA (FedAvg)", ["fma"]), find_row("imaa", ["fma"])
    ('fma', 'fma', None)
    >>> find_row("fedsam-ima", ["fma", "fedsam+ima"])
    'fedsam+ima'
    """
    said = [row for row in rows if printed_words(row, ("method",)).lower() == asked.lower()]
    listed = [row for row in rows if row.replace("+", "-") == asked]
    return next((name for name in (asked, canonical_method(asked), *said, *listed) if name in rows), None)


def labels_of_rows(given: Sequence[str] | Mapping[str, str] | str | None, rows: Sequence[str]) -> dict[str, str]:
    """Take labels of rows: by their names, as ``OLD=NEW``, or new ones in the order of the rows.

    >>> labels_of_rows(["FedAvg", "ours"], ["fma", "ima"]), labels_of_rows("FMA (FedAvg)=FedAvg", ["fma", "ima"])
    ({'fma': 'FedAvg', 'ima': 'ours'}, {'fma': 'FedAvg'})

    Raises:
        FedscopeError: another number of them than there are rows; no such row; one that is empty or given twice.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        labels = {}
        for asked, label in given.items():
            row = find_row(str(asked), rows) or str(asked)
            if row in labels:
                raise FedscopeError(f"{row!r} is given two labels; give one")
            labels[row] = label
    else:
        typed = listed_labels(given)
        for label in typed:
            if not isinstance(label, str):
                raise FedscopeError(f"labels hold {label!r}, which is no text; give a word for each row")
        labels = labels_of([_of_row(label, rows) for label in typed], rows, rows=True)
    refuse_misfits(labels, rows)
    return labels


def _of_row(label: str, rows: Sequence[str]) -> str:
    """Return ``OLD=NEW`` with the row's own name, however it is called."""
    if any(label.startswith(f"{row}=") for row in rows):
        return label
    for old in (label[:i] for i, sign in enumerate(label) if sign == "="):
        if (row := find_row(old, rows)) is not None:
            return f"{row}{label[len(old) :]}"
    return label


def with_labels(table: Comparison, labels: Mapping[str, str]) -> Comparison:
    """Return a table whose rows are called so; see :meth:`~fedscope.results.base.Result.renamed`.

    Raises:
        FedscopeError: two rows would be printed alike.
    """
    refuse_misfits(labels, table.rows_named)
    if not labels:
        return table
    cells = tuple(replace(cell, row=labels.get(cell.row, cell.row)) for cell in table.cells)
    baseline = labels.get(table.baseline, table.baseline)
    made = replace(
        table,
        cells=cells,
        baseline=baseline,
        commands={labels.get(row, row): own for row, own in table.commands.items()},
        attrs=_attrs(table, labels),
    )
    printed = [printed_row(made, row) for row in made.rows_named]
    if twice := next((row for row in printed if printed.count(row) > 1), None):
        raise FedscopeError(f"two of the rows would be called {twice!r}; give each a label of its own")
    told = dict(zip(_told_by_cells(table), _told_by_cells(made), strict=True))
    return replace(made, notes=tuple(told.get(note) or _chosen(note, labels) for note in table.notes))


def _told_by_cells(table: Comparison) -> list[str]:
    return notes_on_numbers(table.cells, table.baseline)


def without_labels(table: Comparison) -> Comparison:
    """Return the table as its rows are called by their settings."""
    return with_labels(table, table.called)


def _attrs(table: Comparison, labels: Mapping[str, str]) -> dict[str, Any]:
    """Say what rows with labels are called by their settings; nothing of a row that is called so again."""
    olds = {labels.get(row, row): table.called.get(row, row) for row in table.rows_named}
    attrs = {key: value for key, value in table.attrs.items() if key != LABELS}
    kept = {label: old for label, old in olds.items() if label != old}
    return {**attrs, LABELS: kept} if kept else attrs


def _chosen(note: str, labels: Mapping[str, str]) -> str:
    """Return what was chosen of a grid in a row, which the note begins with."""
    if CHOSEN in note:
        for row in sorted(labels, key=len, reverse=True):
            if note.startswith((f"{row}: ", f"{row}, ")):
                return f"{labels[row]}{note[len(row) :]}"
    return note
