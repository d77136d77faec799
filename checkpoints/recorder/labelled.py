"""Numbers with an index, as pandas and xarray have them: what the index says of clients. Nothing of them is
imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set, ValuesView
from typing import Any

from ..io.errors import FedscopeError, list_few


def by_index(given: Any, said: str, give: str) -> Any:
    """Return numbers whose index names clients as a mapping, those with a default index as an array, and all else as it
    is.

    A default index (a ``RangeIndex`` from 0) names nobody, so that such a Series is a list.

    Args:
        given: a mapping, a list, a Series of pandas, an array of xarray.
        said: what it is of, for sentences: ``run@3: samples=``.
        give: what to give instead, for sentences: ``samples={number: ...}``.

    Raises:
        FedscopeError: an index that names one twice, or that is of a table's rows; a table; a text; a set or a
            dictionary's keys, whose order is that of no clients.

    >>> by_index({3: 10}, "samples=", "a dictionary"), by_index([10, 20], "samples=", "a dictionary")
    ({3: 10}, [10, 20])
    """
    if isinstance(given, ValuesView):  # in its dictionary's order
        return list(given)
    if isinstance(given, Set | str | bytes):
        why = "is no list" if isinstance(given, str | bytes) else "does not say which number is whose"
        raise FedscopeError(f"{said} is a {type(given).__name__}, which {why}; give {give}")
    given = _of_xarray(given)
    if not _has_index(given):
        return given
    if hasattr(given, "columns"):
        raise FedscopeError(f"{said} is a {type(given).__name__}, a table; give {give}, or one of its columns")
    if _is_default(given.index):
        return given.to_numpy()
    if getattr(given, "name", None) is not None and getattr(given.index, "name", given) is None:
        raise FedscopeError(
            f"{said} is the column {given.name!r} of a table, whose index ({list_few(given.index, 4)}) may name its "
            "rows or clients; give dict(column) if it names clients, else column.to_numpy() in the clients' order"
        )
    _refuse_twice(given.index, said, give)
    return dict(given.items())


def table_by_index(given: Any, said: str, give: str) -> Any:
    """Return a table whose index and columns name clients as ``{row: {column: value}}``; one with default ones as an
    array, and all else as it is.

    Raises:
        FedscopeError: a row or a column that is there twice.
    """
    given = _of_xarray(given)
    if not _has_index(given) or not hasattr(given, "columns"):
        return given
    if _is_default(given.index) and _is_default(given.columns):
        return given.to_numpy()
    for labels in (given.index, given.columns):
        _refuse_twice(labels, said, give)
    names = list(given.columns)
    return {
        row: dict(zip(names, values, strict=True)) for row, values in zip(given.index, given.to_numpy(), strict=True)
    }


def _of_xarray(given: Any) -> Any:
    """A named array as the Series or the table that it is."""
    named = hasattr(given, "dims") and hasattr(given, "coords") and callable(getattr(given, "to_pandas", None))
    return given.to_pandas() if named else given


def _has_index(given: Any) -> bool:
    """Check for a Series or a table of pandas, by what it can do."""
    able = all(callable(getattr(given, name, None)) for name in ("items", "to_numpy"))
    return able and not isinstance(given, Mapping) and not callable(getattr(given, "index", len))


def _is_default(index: Any) -> bool:
    """Check for the index that pandas gives where none is said: 0 to n - 1, by rule."""
    return [getattr(index, name, None) for name in ("start", "step", "stop")] == [0, 1, len(index)]


def _refuse_twice(labels: Iterable[Any], said: str, give: str) -> None:
    if twice := [label for label, times in Counter(labels).items() if times > 1]:
        raise FedscopeError(f"{said} has {twice[0]!r} twice in its index; give {give}, one of each client")
