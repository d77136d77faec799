"""Which subsets of a cohort are averaged."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from ...checkpoints import FedscopeError

#: cohorts of up to so many clients have averages of every size, larger ones of so many sizes
ALL, SPREAD = 20, 12


def spread_sizes(clients: int) -> tuple[int, ...]:
    """The sizes m of subsets of C clients to look at: every one up to 20 clients, else at most 12 from 1 to C.

    Of the 12, equal ratios lie between 2 and C, because an average changes most where it has few models.

    >>> spread_sizes(4)
    (1, 2, 3, 4)
    >>> spread_sizes(100)
    (1, 2, 3, 4, 6, 10, 14, 21, 31, 46, 68, 100)
    """
    if clients <= ALL:
        return tuple(range(1, clients + 1))
    return tuple(sorted({1, *(int(m) for m in np.geomspace(2, clients, SPREAD - 1).round())}))


def choose(clients: int, size: int, most: int, draw: np.random.Generator) -> list[tuple[int, ...]]:
    """``most`` different subsets of m of the C clients, drawn uniformly; all of them, each once, where there are no
    more. Each is rows of the cohort, ascending.

    Raises:
        FedscopeError: a size outside 1..C, or no subset asked for.

    >>> choose(3, 2, 20, np.random.default_rng(0))
    [(0, 1), (0, 2), (1, 2)]
    >>> len(set(choose(100, 50, 20, np.random.default_rng(0))))
    20
    """
    if not 1 <= size <= clients:
        of, give = (f"{clients} clients", "sizes from 1 to") if clients > 1 else ("one client", "size")
        raise FedscopeError(f"there is no subset of {size} of {of}; give {give} {clients}")
    if most < 1:
        raise FedscopeError(f"{most} subsets of a size have no mean; give 1 or more")
    if comb(clients, size) <= most:
        return list(combinations(range(clients), size))
    # What was drawn before is drawn again: uniform over sets of subsets, and more of them begin with the same.
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < most:
        chosen[tuple(sorted(draw.permutation(clients)[:size].tolist()))] = None
    return list(chosen)
