"""A round's numbers as a loop gives them: read, and which of them questions misread or no table has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..io.errors import FedscopeError
from ..rounds.metrics import COLUMNS, COUNTED, MADE, MOST_OWN, is_column, is_own_column


def read_metrics(metrics: Mapping[str, Any], place: str) -> dict[str, float | None]:
    """Make a round's numbers plain floats, whatever they were given as.

    Raises:
        FedscopeError: they have no names, or those of what is recorded besides; what is no number.
    """
    if not isinstance(metrics, Mapping):
        raise FedscopeError(
            f"{place}: metrics= is {type(metrics).__name__}; give numbers by name, as metrics={{'test_error': 0.1}}"
        )
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise FedscopeError(f"{place}: the metric {name!r} is not a name; give a word, as 'test_error'")
        if name in COUNTED:
            continue  # as the run counts them itself
        if MADE.fullmatch(name):
            raise FedscopeError(
                f"{place}: the metric {name} is called like a column that the run makes itself; give it another name, "
                f"as 'my_{name}'"
            )
        try:
            found[name] = None if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise FedscopeError(f"{place}: the metric {name} is {value!r}, not a number; give float(...)") from None
    return found


def warn_of_numbers(numbers: Mapping[str, float | None]) -> str:
    """Warn of numbers that questions would misread or leave out: an error that is no share, an accuracy without the
    error; empty where there is nothing of the kind.

    >>> warn_of_numbers({"test_error": 4.7}).partition(",")[0], warn_of_numbers({"acc": 0.9}).partition(",")[0]
    ('test_error is 4.7', "no question takes 'acc'")
    >>> warn_of_numbers({"test_error": 0.047, "train_error": None, "acc": 0.953, "test_loss": 3})
    ''
    """
    for name, value in numbers.items():
        share = "error" in name and is_column(name) and not is_own_column(name)
        if share and value is not None and not math.isnan(value) and not 0 <= value <= 1:
            return (
                f"{name} is {value:g}, and an error is a share from 0 to 1; it is recorded so, and curves and table "
                "take it for a share"
            )
    taken = ("test_error", "averaged_test_error")
    accuracy = next((name for name in numbers if "acc" in name.lower().split("_") or "accuracy" in name.lower()), None)
    if accuracy is None or any(one in numbers for one in taken):
        return ""
    return (
        f"no question takes {accuracy!r}, which is a column of metrics.csv; give test_error, 1 less the accuracy, "
        "for curves, table and the comparison with the data"
    )


def warn_of_columns(numbers: Iterable[str], columns: Sequence[str]) -> str:
    """Warn of a name that no column has; empty where all are columns.

    Args:
        columns: further ones of the table.

    >>> warn_of_columns(["lr", "top 5"], []).partition(",")[0], warn_of_columns(["lr", "val/top-5"], ["val/top-5"])
    ("the metric 'top 5' stays in the rounds' files", '')
    """
    odd = next((name for name in numbers if name not in COLUMNS and name not in columns), None)
    if odd is None:
        return ""
    if is_own_column(odd):
        return (
            f"the metric {odd!r} stays in the rounds' files, and is in no table, which has {MOST_OWN} columns of a "
            "loop's own; give fewer names, as the mean over clients in place of one each"
        )
    return (
        f"the metric {odd!r} stays in the rounds' files, and is in no table; for a column give it a name of letters "
        "a-z, digits and _ . / @ -, 80 at most"
    )
