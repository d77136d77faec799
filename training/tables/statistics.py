"""Statistics of a table: the best values of a grid, and paired differences over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any

import numpy as np

from .layout import refuse_unknown_keys, words_of
from .table_runs import TableRun

#: between the values that were chosen and the others, in a sentence
CHOSEN = ", chosen by these numbers before "


def best_of(
    entries: Sequence[TableRun],
    keys: Sequence[str],
    place: Callable[[TableRun], str],
    badness: Callable[[TableRun], float],
) -> tuple[list[TableRun], list[str]]:
    """(the runs of the best values, what was chosen, a sentence a place).

    As papers tune a method: of every place the values with the least mean over the seeds that all values of the place
    have, the first of equal ones. They are chosen by the numbers that the table then shows, which flatters what had
    more values to choose from; the sentences say so, and where values have other seeds.

    Args:
        keys: the settings of the grid; place: the cell of a run; badness: smaller is better, NaN is worst.

    Raises:
        FedscopeError: a setting that the runs do not have.
    """
    refuse_unknown_keys("--best-of", keys, entries)
    if not keys:
        return list(entries), []
    found: dict[str, dict[str, list[TableRun]]] = {}
    for entry in entries:
        found.setdefault(place(entry), {}).setdefault(words_of(keys, entry), []).append(entry)
    kept, notes = [], []
    for where, grid in found.items():
        seeds = [{entry.seed for entry in own} for own in grid.values()]
        common, every = set.intersection(*seeds), set.union(*seeds)
        means = {
            words: float(np.mean([badness(entry) for entry in own if not common or entry.seed in common]))
            for words, own in grid.items()
        }
        best = min(means, key=lambda words: (np.isnan(means[words]), means[words]))
        kept += grid[best]
        if len(grid) > 1:
            others = "; ".join(words for words in grid if words != best)
            over = ""
            if not common:
                over = "; they have no seed in common, so that each was judged by seeds of its own"
            elif common != every:
                over = f"; by the {len(common)} of {len(every)} seeds that all of them have"
            notes.append(f"{where or 'best'}: {best}{CHOSEN}{others}{over}")
    return kept, notes


#: of numbers, as a share of the largest: differences that are apart by no more are the same
ROUNDING = 1e-12


@dataclass(frozen=True)
class PairedDifference:
    """A mean difference over n seeds.

    Attributes:
        mean: of the differences; low, high: its 95 % interval by Student's t with n − 1 degrees of freedom; NaN of one
            seed, and of differences that are not all finite; where all of them are the same p alone is NaN.
        p: of the two-sided paired t-test. seeds: n.
    """

    mean: float
    low: float
    high: float
    p: float
    seeds: int


def paired_difference(values: Mapping[Any, float], baseline: Mapping[Any, float]) -> PairedDifference | None:
    """Compute the mean of d_s = value_s − baseline_s over the seeds s that both have, its interval d̄ ± t s_d/√n, and
    the paired t-test's p; None without a common seed.

    The test supposes that differences over seeds are about normal. With two seeds t is 12.7 and with three 4.3, so that
    only differences far greater than their deviation show.

    >>> found = paired_difference({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    >>> found.mean, round(found.low, 2), round(found.high, 2), round(found.p, 3)
    (2.0, -0.48, 4.48, 0.074)
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to import

    seeds = [seed for seed in values if seed in baseline]
    if not seeds:
        return None
    differences = np.array([values[seed] - baseline[seed] for seed in seeds])
    with np.errstate(invalid="ignore"):  # of both infinities
        mean, n = float(differences.mean()), len(seeds)
    if n == 1 or not np.isfinite(differences).all():
        return PairedDifference(mean, nan, nan, nan, n)
    largest = max(abs(one[seed]) for one in (values, baseline) for seed in seeds)
    spread = float(differences.std(ddof=1))
    # equal differences of shares may differ in a last bit
    error = spread / sqrt(n) if spread > ROUNDING * largest else 0.0
    reach = float(stdtrit(n - 1, 0.975)) * error
    p = float(2 * stdtr(n - 1, -abs(mean) / error)) if error else nan
    return PairedDifference(mean, mean - reach, mean + reach, p, n)
