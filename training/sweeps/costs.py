"""What a run costs in seconds: of its beginning, of each round and of each step, from a few rounds that were timed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

#: sizes of cohorts that are tried of each kind of run; those between are scaled
MOST_TRIED = 3


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a run whose cohorts are of one size.

    Attributes:
        begin: before its first round; round: of each round, whatever its steps; step: of a step, with all workers at
            work; test: of a test of the models after a round.
    """

    begin: float
    round: float
    step: float
    test: float

    def of(self, rounds: int, steps: float, tests: int) -> float:
        """Return the seconds of so many rounds, each of so many steps, of which so many are followed by a test.

        >>> Costs(begin=2, round=0.5, step=0.01, test=1).of(rounds=10, steps=20, tests=3)
        12.0
        """
        return self.begin + rounds * (self.round + steps * self.step) + tests * self.test


def fitted(few: tuple[float, float], many: tuple[float, float]) -> tuple[float, float]:
    """Return the seconds of a round without its steps, and of a step, from two rounds: (steps, seconds) each.

    Neither is negative, whatever else the machine does meanwhile.

    >>> fitted((10, 1.5), (30, 2.5))
    (1.0, 0.05)
    >>> fitted((10, 0.1), (30, 0.6))  # more than its share: a round costs nothing by itself
    (0.0, 0.02)
    >>> fitted((10, 3.0), (30, 2.5))[0]
    2.5
    """
    (low, first), (high, second) = few, many
    if high <= low:
        return 0.0, second / max(high, 1)
    step = max(0.0, (second - first) / (high - low))
    fixed = second - step * high
    return (fixed, step) if fixed >= 0 else (0.0, second / high)


def sizes_to_try(sizes: Collection[int]) -> list[int]:
    """Return of the cohorts' sizes those that are tried: all of a few, else the smallest, the largest and the one that
    lies between them by its logarithm.

    >>> sizes_to_try([4, 1]), sizes_to_try(range(1, 101))
    ([1, 4], [1, 10, 100])
    """
    every = sorted(set(sizes))
    if len(every) <= MOST_TRIED:
        return every
    middle = math.sqrt(every[0] * every[-1])
    return [every[0], min(every[1:-1], key=lambda size: abs(math.log(size / middle))), every[-1]]


def costs_at(tried: Mapping[int, Costs], size: int) -> Costs:
    """Return the costs with cohorts of a size: between the two next sizes that were tried on the straight line.

    >>> costs_at({2: Costs(1, 1, 1, 1), 6: Costs(1, 3, 1, 5)}, 3)
    Costs(begin=1.0, round=1.5, step=1.0, test=2.0)
    """
    below = max((known for known in tried if known <= size), default=min(tried))
    above = min((known for known in tried if known >= size), default=max(tried))
    if below == above:
        return tried[below]
    share = (size - below) / (above - below)
    one, other = tried[below], tried[above]
    parts = {part.name: (getattr(one, part.name), getattr(other, part.name)) for part in fields(Costs)}
    return Costs(**{name: (1 - share) * low + share * high for name, (low, high) in parts.items()})
