"""Early, middle and late: thirds of a run's rounds, and which rounds to decompose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import RoundFactors


@dataclass(frozen=True)
class Phase:
    """A third of a run: `name`, its rounds `first` to `last`, and those of them that are decomposed."""

    name: str
    first: int
    last: int
    rounds: tuple[RoundFactors, ...]

    @property
    def span(self) -> str:
        """`rounds 41 to 60`."""
        return f"rounds {self.first} to {self.last}" if self.first < self.last else f"round {self.last}"


def phases(rounds: Sequence[RoundFactors], length: int) -> tuple[Phase, ...]:
    """Early, middle and late of a run of `length` rounds; a run of one or two has fewer.

    >>> [(phase.name, phase.span) for phase in phases((), 60)]
    [('early', 'rounds 1 to 20'), ('middle', 'rounds 21 to 40'), ('late', 'rounds 41 to 60')]
    """
    edges = [0, *(round_thirds(length, third) for third in (1, 2, 3))]
    return tuple(
        Phase(name, first + 1, last, tuple(one for one in rounds if first < one.round <= last))
        for name, first, last in zip(("early", "middle", "late"), edges, edges[1:], strict=False)
        if first < last
    )


def round_thirds(length: int, third: int) -> int:
    """The last round of a third."""
    return third * length // 3


def spread_rounds(available: Sequence[int], count: int = 6) -> list[int]:
    """Rounds to decompose, from those whose clients were recorded: the first, the last and `count` in all at equal
    ratios, because losses fall fast at first; then one more for each third of the run that has fewer than two.

    >>> spread_rounds(range(1, 61))
    [1, 2, 5, 12, 26, 40, 50, 60]
    >>> spread_rounds([1, 15, 30])
    [1, 15, 30]
    """
    first, last = available[0], available[-1]
    wanted = [first * (last / first) ** (step / (count - 1)) for step in range(count)]
    chosen = {min(available, key=lambda number: (abs(number - at), number)) for at in wanted}
    for third in (1, 2, 3):
        low, high = round_thirds(last, third - 1), round_thirds(last, third)
        own = [number for number in available if low < number <= high]
        left = [number for number in own if number not in chosen]
        if left and len(own) - len(left) < 2:
            chosen.add(max(left, key=lambda number: (min(abs(number - other) for other in chosen), -number)))
    return sorted(chosen)
