"""Of runs that differ in a grid's settings, those of the best one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .gathered import Entry
from .layout import refuse_unknown_keys, words_of


def best_of(
    entries: Sequence[Entry], keys: Sequence[str], place: Callable[[Entry], str], badness: Callable[[Entry], float]
) -> tuple[list[Entry], list[str]]:
    """(the runs of the best values, what was chosen, a sentence a place).

    As papers tune a method: of every place the values with the least mean over the seeds, the first of equal ones. They
    are chosen by the numbers that the table then shows, which flatters what had more values to choose from; the
    sentences say so.

    Args:
        keys: the settings of the grid; place: the cell of a run; badness: smaller is better, NaN is worst.

    Raises:
        FedscopeError: a setting that the runs do not have.
    """
    refuse_unknown_keys("--best-of", keys, entries)
    if not keys:
        return list(entries), []
    found: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        found.setdefault(place(entry), {}).setdefault(words_of(keys, entry), []).append(entry)
    kept, notes = [], []
    for where, grid in found.items():
        means = {words: float(np.mean([badness(entry) for entry in own])) for words, own in grid.items()}
        best = min(means, key=lambda words: (np.isnan(means[words]), means[words]))
        kept += grid[best]
        if len(grid) > 1:
            others = "; ".join(words for words in grid if words != best)
            notes.append(f"{where or 'best'}: {best}, chosen by these numbers before {others}")
    return kept, notes
