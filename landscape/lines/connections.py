"""Linear mode connectivity: what lies between every two of several models, as a matrix.

The barrier is that of Frankle et al., "Linear Mode Connectivity and the Lottery Ticket Hypothesis", ICML 2020. Between
clients with different data it is mostly 0, because losses lie below the straight line between the ends; the excess in
the middle says how far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError
from ..sentences import ends_words
from .result import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Connectivity(Line):
    """The lines between all pairs of a round's clients, in the same file as any line's; drawn as a matrix."""

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The excess in the middle as a heat map, a row and a column a client; ``width`` in inches."""
        from .figure import draw_connectivity

        return draw_connectivity(self, width, title)

    def summary(self) -> str:
        """What lies between all pairs, in words."""
        return self._between() + ends_words(self)

    def _between(self) -> str:
        labels, barriers, middles = connectivity(self)
        names = [label.rpartition("client-")[2] for label in labels]
        upper = np.triu_indices(len(names), 1)
        between = middles[upper]
        if not np.isfinite(between).all():
            return f"{int((~np.isfinite(between)).sum())} of {len(between)} pairs have losses that are not finite"

        def words(values: np.ndarray, k: int) -> str:
            i, j = upper[0][k], upper[1][k]
            return f"{values[i, j]:.3g} (clients {names[i]} and {names[j]})"

        with_barrier = int((barriers[upper] > 0).sum())
        barrier = "no pair has a barrier"
        if with_barrier:
            barrier = f"{with_barrier} with a barrier, the greatest {words(barriers, int(barriers[upper].argmax()))}"
        return (
            f"{len(between)} pairs of clients: loss of the mean of two less their mean loss {between.mean():.3g} on "
            f"average, {words(middles, int(between.argmin()))} to {words(middles, int(between.argmax()))}; {barrier}"
        )


def connectivity(line: Line) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The models of a line of all their pairs, their barriers and the excess in the middle, both [C, C].

    barrier = max over 0 <= beta <= 1 of L(beta) - (beta L(1) + (1 - beta) L(0)), at least 0; middle =
    L(1/2) - (L(1) + L(0))/2, negative where the mean of two models is better than they are on average. NaN on the
    diagonal, and where a loss is.

    Raises:
        FedscopeError: pairs that are not all pairs of the models in them; no point in the middle.

    >>> from fedscope.landscape import Line
    >>> ends, loss = (("a", "b"), ("a", "c"), ("b", "c")), np.array([[1.0, 0.5, 2.0]] * 3)
    >>> made = Line((), ends, np.array([0.0, 0.5, 1.0]), loss, loss, np.zeros(3), np.zeros(3), {}, loss, loss)
    >>> labels, barriers, middles = connectivity(made)
    >>> labels, middles[2].tolist()
    (('a', 'b', 'c'), [-1.0, -1.0, nan])
    """
    labels = tuple(dict.fromkeys(label for pair in line.ends for label in pair))
    place = {label: i for i, label in enumerate(labels)}
    middle = np.flatnonzero(np.isclose(line.beta, 0.5, atol=1e-9))
    if not middle.size:
        raise FedscopeError(f"the {len(line.beta)} points of the line do not hold its middle, beta = 0.5; give it one")
    ends = [int(np.flatnonzero(line.beta == end)[0]) for end in (0.0, 1.0)]
    excess = line.loss[:, middle[0]] - line.loss[:, ends].mean(axis=1)
    barriers = np.full((len(labels), len(labels)), np.nan)
    middles = barriers.copy()
    asked = set()
    for k, (one, other) in enumerate(line.ends):
        i, j = place[one], place[other]
        asked.add(frozenset((i, j)))
        barriers[i, j] = barriers[j, i] = line.barrier[k]
        middles[i, j] = middles[j, i] = excess[k]
    if len(asked) != len(labels) * (len(labels) - 1) // 2:
        raise FedscopeError(
            f"a matrix needs all pairs of its {len(labels)} models, but the line has {len(asked)} of them; draw it as "
            "curves"
        )
    return labels, barriers, middles
