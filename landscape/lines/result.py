"""Losses along the segments between models: the result, and between all pairs of a round's clients (linear mode
connectivity).

The barrier is that of Frankle et al., "Linear Mode Connectivity and the Lottery Ticket Hypothesis", ICML 2020. Between
clients with different data it is mostly 0, because losses lie below the straight line between the ends; the excess in
the middle says how far.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Self, cast

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.style import describe_alignment, describe_statistics
from ...results import ArrayResult, along
from ...results.arrays import Variable
from ...results.labels import of_labelled
from ..planes.summary import align_findings, precision_words
from .barriers import height_words
from .betas import coverage_findings, coverage_words, measured_parts


@dataclass(frozen=True, eq=False)
class Line(ArrayResult):
    """L(β w_1 + (1−β) w_2) for pairs of models (Zhou et al., Figures 5b, 5c, 7c).

    Attributes:
        pairs: ``A - B`` for each pair; ``ends`` are the labels of A (β = 1) and B (β = 0).
        beta: where the losses were measured, [beta]; 0 and 1 are among them, and there the models themselves.
        loss: mean cross-entropy in nats, [pair, beta].
        error: share misclassified, [pair, beta].
        barrier: the greatest excess of the loss over the straight line between the two ends, [pair]:
            max over 0 ≤ β ≤ 1 of L(β) − (β L(1) + (1−β) L(0)); 0 where the loss never rises above it, NaN where an
            end or a point between is NaN, and where no point between was measured.
        barrier_beta: where that is, [pair]; NaN where the barrier is.
        attrs: provenance: data, samples, precision, device, versions and whatever the caller gave.
        own_loss, own_error: of the ends with the normalization statistics that they hold themselves, [pair, end], A
            (β = 1) first: other numbers than the curve's where the policy is ``keep`` or ``re-estimate``.
        on: whose data each curve is of, ``all`` or ``client-3``, where a pair has several.
    """

    command = kind = "line"
    drawn: ClassVar = {"": "draw_line"}
    needed = {
        **{"pair": "", "beta": "beta", "loss": "pair beta", "error": "pair beta"},
        **{"barrier": "pair", "barrier_beta": "pair", "own_loss": "pair end", "own_error": "pair end"},
    }

    pairs: tuple[str, ...]
    ends: tuple[tuple[str, str], ...]
    beta: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    barrier: np.ndarray
    barrier_beta: np.ndarray
    attrs: dict[str, Any]
    own_loss: np.ndarray
    own_error: np.ndarray
    on: tuple[str, ...] = ()

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``pair``, ``beta`` and ``end``; see formats.md for the names."""
        what = "mean loss" if "task" in self.attrs else "mean cross-entropy"
        nats = str(self.attrs.get("loss_units", "nat"))
        own = "{} of the ends with their own normalization statistics"
        coords = {
            "pair": along("pair", np.array(self.pairs, dtype=object), "pair of models"),
            "beta": along("beta", self.beta, "weight of the first model", "1"),
            "end": along("end", np.array([1.0, 0.0]), "beta of the end", "1"),
        }
        variables = {
            "loss": along("pair beta", self.loss, what, nats),
            "error": along("pair beta", self.error, "share misclassified", "1"),
            "barrier": along("pair", self.barrier, "loss barrier", nats),
            "barrier_beta": along("pair", self.barrier_beta, "beta of the barrier", "1"),
            "own_loss": along("pair end", self.own_loss, own.format(what), nats),
            "own_error": along("pair end", self.own_error, own.format("share misclassified"), "1"),
        }
        return coords, variables

    def head(self) -> dict[str, Any]:
        """Attributes of the file besides :attr:`attrs`; those of a matrix say so, and curves that would be taken for
        one that they are none."""
        about: dict[str, Any] = {"ends": [list(two) for two in self.ends]}
        about |= {"on": list(self.on)} if self.on else {}
        is_matrix = isinstance(self, Connectivity)
        return {**about, "matrix": int(is_matrix)} if is_matrix != looks_like_matrix(self) or is_matrix else about

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave: of the lines between all clients a :class:`Connectivity`."""
        ends = tuple((str(a), str(b)) for a, b in attrs.pop("ends"))
        is_matrix = attrs.pop("matrix", None)
        on = tuple(str(name) for name in attrs.pop("on", ()))
        if on and len(on) != len(ends):
            raise ValueError("whose data are of other curves")
        made = cls(tuple(str(pair) for pair in values.pop("pair")), ends, **values, attrs=attrs, on=on)
        if looks_like_matrix(made) if is_matrix is None else is_matrix:
            return cast(Self, Connectivity(**vars(made)))
        return made

    def summary(self) -> str:
        """Describe the barriers in words."""
        barriers = ", ".join(
            f"{height_words(barrier, beta)} ({label})"
            for barrier, beta, label in zip(self.known_barriers, self.barrier_beta, self.pairs, strict=True)
        )
        begin = "loss barrier (greatest excess over the straight line between the ends)"
        return f"{begin}: {barriers}{self._gaps()}{ends_words(self)}"

    def _gaps(self) -> str:
        """Say what lies between the ends and is not known."""
        words = coverage_words(self.beta)
        broken = int(np.count_nonzero(~np.isfinite(self.loss)))
        return (f"; {words}" if words else "") + (
            f"; {broken:,} of {self.loss.size:,} losses are not finite" if broken else ""
        )

    @property
    def known_barriers(self) -> np.ndarray:
        """The barriers, [pair]: NaN where no point between the ends was measured, which older files have as 0."""
        return self.barrier if measured_parts(self.beta) else np.full_like(self.barrier, np.nan)

    def findings(self) -> dict[str, Any]:
        """Return the barriers, and which part of the lines was measured where it is not all."""
        return {"barrier": self.known_barriers, **coverage_findings(self.beta), **align_findings(self.attrs)}


@dataclass(frozen=True, eq=False)
class Connectivity(Line):
    """The lines between all pairs of a round's clients, in the same file as any line's; drawn as a matrix."""

    drawn: ClassVar = {"": "draw_connectivity"}

    def summary(self) -> str:
        """Describe the losses between all pairs."""
        words = coverage_words(self.beta)
        return self._between() + (f"; {words}" if words else "") + ends_words(self)

    def _between(self) -> str:
        labels, barriers, middles = connectivity(self)
        names = [label.rpartition("client-")[2] for label in labels]
        upper, of = np.triu_indices(len(names), 1), of_labelled(self.attrs)
        between = middles[upper]
        if not np.isfinite(between).all():
            return f"{int((~np.isfinite(between)).sum())} of {len(between)} pairs{of} have losses that are not finite"

        def words(values: np.ndarray, k: int) -> str:
            i, j = upper[0][k], upper[1][k]
            return f"{values[i, j]:.3g} (clients {names[i]} and {names[j]})"

        with_barrier = int((barriers[upper] > 0).sum())
        unknown = int(np.isnan(barriers[upper]).sum())
        barrier = f"no {'other ' if unknown else ''}pair has a barrier"
        if with_barrier:
            greatest = int(np.nanargmax(barriers[upper]))
            barrier = f"{with_barrier} with a barrier, the greatest {words(barriers, greatest)}"
        if unknown:
            barrier = f"of {unknown} the barrier is unknown, because losses are not finite; {barrier}"
        return (
            f"{len(between)} pairs of clients{of}: loss of the mean of two less their mean loss {between.mean():.3g} "
            f"on average, {words(middles, int(between.argmin()))} to {words(middles, int(between.argmax()))}; {barrier}"
        )


def looks_like_matrix(line: Line) -> bool:
    """Tell whether a line of an older file, which does not say it, is one between all of a round's clients: three or
    more clients of one round, every pair in order, from one end to the other."""
    labels = tuple(dict.fromkeys(label for pair in line.ends for label in pair))
    cohorts = {label.rpartition("/client-")[::2] for label in labels}
    rounds = {round_ for round_, client in cohorts if client.isdecimal()}
    return (
        len(labels) > 2
        and len(rounds) == 1
        and len(cohorts) == len(labels)
        and all(label.rpartition("/client-")[1] for label in labels)
        and line.ends == tuple(combinations(labels, 2))
        and line.attrs.get("range") == [0.0, 1.0]
    )


def connectivity(line: Line) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Return the models of a line of all their pairs, their barriers and the excess in the middle, both [C, C].

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
    for k, (first, second) in enumerate(line.ends):
        i, j = place[first], place[second]
        asked.add(frozenset((i, j)))
        barriers[i, j] = barriers[j, i] = line.barrier[k]
        middles[i, j] = middles[j, i] = excess[k]
    if len(asked) != len(labels) * (len(labels) - 1) // 2:
        raise FedscopeError(
            f"a matrix needs all pairs of its {len(labels)} models, but the line has {len(asked)} of them; draw it as "
            "curves"
        )
    return labels, barriers, middles


def ends_words(line: Line) -> str:
    """Describe the curves' normalization statistics, their effect at the ends, and the error of a lower precision;
    nothing where models have none."""
    words = describe_statistics(line.attrs, str(line.attrs.get("normalization_policy", "none")))
    if words:
        at = [int(np.flatnonzero(line.beta == end)[0]) for end in (1.0, 0.0)]
        change = line.loss[:, at] - line.own_loss
        words = f"; {words}"
        if (change := change[np.isfinite(change)]).any():
            words += f", which change the loss of the ends by {change.min():+.2g} to {change.max():+.2g}"
    if aligned := describe_alignment(line.attrs, line.ends[0][0]):
        words += f"; {aligned}"
    return words + precision_words(line.attrs)
