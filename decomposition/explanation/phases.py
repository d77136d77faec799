"""Early, middle and late in a run, and which rounds to decompose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...checkpoints import FedscopeError
from ..factors.rows import RoundFactors

# Fewer rounds than these have no order that chance would not often give.
FEWEST = 5


@dataclass(frozen=True)
class Phase:
    """A part of a run: `name`, its rounds `first` to `last`, and those of them that are decomposed."""

    name: str
    first: int
    last: int
    rounds: tuple[RoundFactors, ...]

    @property
    def span(self) -> str:
        """`rounds 41 to 60`."""
        return f"rounds {self.first} to {self.last}" if self.first < self.last else f"round {self.last}"


def last_early(length: int, early: int | None = None) -> int:
    """Return the last early round of a run of `length` rounds: a tenth of them (in the paper near round 40 of 400), at
    least 5 and at most a third, if it is not given.

    Raises:
        FedscopeError: no round comes after the one given.

    >>> [last_early(length) for length in (400, 60, 12, 4, 1)]
    [40, 6, 4, 1, 1]
    """
    if early is None:
        return min(max(-(-length // 10), FEWEST), max(length // 3, 1))
    if early >= length:
        rounds = "1 round" if length == 1 else f"{length} rounds"
        give = f"give less than {length}" if length > 1 else "leave it out"
        raise FedscopeError(f"--early {early}: the run has {rounds}, so none comes after early training; {give}")
    return early


def phases(rounds: Sequence[RoundFactors], length: int, early: int | None = None) -> tuple[Phase, ...]:
    """Early (:func:`last_early`), middle and late, which are the halves of what follows, of a run of `length` rounds; a
    run of one or two has fewer.

    >>> [(phase.name, phase.span) for phase in phases((), 60)]
    [('early', 'rounds 1 to 6'), ('middle', 'rounds 7 to 33'), ('late', 'rounds 34 to 60')]
    """
    edges = edges_of(length, last_early(length, early))
    return tuple(
        Phase(name, first + 1, last, tuple(one for one in rounds if first < one.round <= last))
        for name, first, last in zip(("early", "middle", "late"), edges, edges[1:], strict=False)
        if first < last
    )


def edges_of(length: int, early: int) -> tuple[int, int, int, int]:
    """0 and the last rounds of the phases."""
    return 0, early, early + (length - early) // 2, length


def spread_rounds(available: Sequence[int], length: int = 0, early: int | None = None, count: int = 6) -> list[int]:
    """Rounds to decompose, from those whose clients were recorded: the first, the last and `count` in all at equal
    ratios, because losses fall fast at first; then more, until early training has five, what follows it has five, and
    each half of that has two, which is what verdicts need. `length` is the run's, by default the last available.

    >>> spread_rounds(range(1, 61))
    [1, 2, 4, 5, 6, 12, 26, 43, 52, 60]
    >>> spread_rounds([1, 15, 30])
    [1, 15, 30]
    """
    first, last = available[0], available[-1]
    wanted = [first * (last / first) ** (step / (count - 1)) for step in range(count)]
    chosen = {min(available, key=lambda number: (abs(number - at), number)) for at in wanted}
    length = max(length, last)
    _, start, middle, end = edges_of(length, last_early(length, early))
    for low, high, least in ((start, middle, 2), (middle, end, 2), (0, start, FEWEST), (start, end, FEWEST)):
        own = [number for number in available if low < number <= high]
        while left := [number for number in own if number not in chosen]:
            if len(own) - len(left) >= least:
                break
            chosen.add(max(left, key=lambda number: (min(abs(number - other) for other in chosen), number)))
    return sorted(chosen)
