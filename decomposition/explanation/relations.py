"""Whether two numbers move together over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from .intervals import above, finite
from .phases import FEWEST
from .records import Reading

# Up to 7! = 5,040 orders are counted, of more rounds so many are drawn, and of very many rounds fewer.
ORDERS, FEW_ORDERS, MANY = 9999, 999, 20
LEVEL = 0.05


@dataclass(frozen=True)
class Relation:
    """Of two numbers over n rounds, pair by pair of rounds.

    Attributes:
        rounds: n, with finite values of both.
        together: pairs in which the round with the greater first number has the greater second one.
        against: pairs in which it has the smaller one.
        level: pairs in which the intervals of one of both touch.
        tau: Kendall's, (together - against) / all pairs; None below five rounds, or where no pair is apart.
        p: two-sided, the share of orders of the second number with such a tau or a farther one.
    """

    rounds: int
    together: int
    against: int
    level: int
    tau: float | None = None
    p: float | None = None

    @property
    def pairs(self) -> int:
        """All of them."""
        return self.together + self.against + self.level

    @property
    def sign(self) -> int:
        """1 where both move together, -1 where they move against each other, 0 where that may be chance (p > 5 %)."""
        if self.tau is None or self.p is None or self.p > LEVEL:
            return 0
        return 1 if self.tau > 0 else -1


def relate(a: Sequence[Reading], b: Sequence[Reading]) -> Relation:
    """Kendall's rank correlation of two numbers, round by round, where intervals that touch are a tie.

    With a_ij = 1 where the whole interval of a_j lies above that of a_i, -1 where it lies below, else 0; b_ij alike;

        tau = sum_{i<j} a_ij b_ij / (n (n - 1) / 2)

    so a number without intervals has no relation. p takes the rounds for exchangeable. Those of one run are not: two
    numbers that both fall steadily are in perfect order. p keeps a few rounds that are in
    order by chance from deciding, and no more.

    Source: Kendall, A new measure of rank correlation (1938).

    >>> falling = [Reading("x", t, 1.0 / t, 1.0 / t, 1.0 / t) for t in (1, 2, 3, 4, 5)]
    >>> found = relate(falling, falling)
    >>> found.tau, round(found.p * 120, 6), found.sign
    (1.0, 2.0, 1)
    """
    both = [(x, y) for x, y in zip(a, b, strict=True) if finite(x) and finite(y)]
    pairs = list(combinations(range(len(both)), 2))
    of_a, of_b = ([_sign(both[i][side], both[j][side]) for i, j in pairs] for side in (0, 1))
    products = [x * y for x, y in zip(of_a, of_b, strict=True)]
    counts = len(both), products.count(1), products.count(-1), products.count(0)
    if len(both) < FEWEST or not any(of_a) or not any(of_b):
        return Relation(*counts)
    return Relation(*counts, sum(products) / len(pairs), _share_of_orders(len(both), pairs, of_a, of_b))


def _sign(first: Reading, second: Reading) -> int:
    return int(above(second, first)) - int(above(first, second))


def _share_of_orders(n: int, pairs: Sequence[tuple[int, int]], of_a: Sequence[int], of_b: Sequence[int]) -> float:
    from scipy.stats import permutation_test

    table = np.zeros((n, n), dtype=np.int64)
    for (i, j), sign in zip(pairs, of_b, strict=True):
        table[i, j], table[j, i] = sign, -sign

    def score(order: npt.NDArray[np.float64], axis: int = -1) -> Any:
        # which round's b stands at each place
        places = order.astype(np.int64)
        return sum(sign * table[places[..., i], places[..., j]] for (i, j), sign in zip(pairs, of_a, strict=True))

    # An order of places, not values: a tie of intervals is no equivalence, so values could not be ranked.
    found = permutation_test(
        (np.arange(n, dtype=np.float64),),
        score,
        permutation_type="pairings",
        n_resamples=ORDERS if n <= MANY else FEW_ORDERS,
        vectorized=True,
        random_state=0,
    )
    return float(found.pvalue)
