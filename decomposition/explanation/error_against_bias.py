"""Statements on the measured error next to heterogeneous bias and the distance of the clients: whether two numbers
move together over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints.io.errors import spans
from ..factors.rows import RoundFactors, is_recorded
from .intervals import Reading, broken, finite, order, read
from .phases import FEWEST, Phase
from .statements import Evidence, Judgement, Verdict, throughout
from .wording import NAMES, capital, ends, narrower, not_finite, spell, split_hint, too_few_before

# Up to 7! = 5,040 orders are counted, of more rounds so many are drawn, and of very many rounds fewer.
ORDERS, FEW_ORDERS, MANY = 9999, 999, 20
LEVEL = 0.05


def bias_and_error_early(evidence: Evidence) -> Judgement | None:
    """Supported where bias and error move against each other over the early rounds and the error is lower at their end;
    contradicted where they move together (:func:`relate`), or the error rises. None of one round
    of recorded models."""
    if len(evidence.phases) < 2 and is_recorded(evidence.rounds):
        return None
    early = evidence.phases[0]
    both = _Both.of(evidence, [early], "heter_bias")
    known = [one.value for one in both.errors if one.value is not None]
    falls = len(known) > 1 and known[-1] < known[0]
    verdict: Verdict = "undecided"
    if both.relation.sign:
        verdict = "supported" if both.relation.sign < 0 and falls else "contradicted"
    return both.judged(verdict, evidence.split, {"span": early.span})


def together(evidence: Evidence, factor: str) -> Judgement | None:
    """Supported where a factor, heterogeneous bias or Δ = max_k ||w_k - w_FMA||, and the error move together over the
    rounds after early training, contradicted where they move against each other (:func:`relate`). None of one round of
    recorded models."""
    later = evidence.phases[1:]
    if not later and is_recorded(evidence.rounds):
        return None
    both = _Both.of(evidence, later, factor)
    span = f" ({Phase('', later[0].first, later[-1].last, ()).span})" if later else ""
    return both.judged(throughout([both.relation.sign]), evidence.split, {"span": span})


@dataclass(frozen=True)
class _Both:
    """A factor and the test error, round by round of some phases; ``kept`` are those of them that can be
    decomposed, of ``there`` that the run has."""

    evidence: Evidence
    factor: str
    phases: Sequence[Phase]
    kept: Sequence[int]
    there: int
    rounds: Sequence[RoundFactors]
    values: Sequence[Reading]
    errors: Sequence[Reading]
    relation: Relation

    @classmethod
    def of(cls, evidence: Evidence, phases: Sequence[Phase], factor: str) -> _Both:
        """Compare with the test error that was measured while training, of the model that is decomposed."""
        run, kept = evidence.run, evidence.kept_in(phases)
        there = sum(max(evidence.there(phase) - phase.first + 1, 0) for phase in phases)
        rounds = [one for phase in phases for one in phase.rounds]
        curve = next((one for one in run.curves if one.label == run.model), None)
        measured = dict(zip(curve.rounds, curve.error, strict=True)) if curve else {}
        values = [read(one, factor) for one in rounds]
        errors = [Reading("test_error", one.round, *[measured.get(one.round)] * 3) for one in rounds]
        return cls(evidence, factor, phases, kept, there, rounds, values, errors, relate(values, errors))

    def judged(self, verdict: Verdict, split: str, words: Mapping[str, str]) -> Judgement:
        """Judge, with the numbers, and what would decide it."""
        tau, p = Reading("kendall_tau", None, self.relation.tau), Reading("p_value", None, self.relation.p)
        readings = (*self.values, *self.errors, tau, p)
        return Judgement(verdict, self._sentence(), self._decide(split), readings, words)

    def _sentence(self) -> str:
        relation, name = self.relation, NAMES[self.factor]
        pairs = zip(self.values, self.errors, strict=True)
        both = [(value, error) for value, error in pairs if finite(value) and finite(error)]
        if not both:
            return "No round has values of both."
        first_last = " and ".join(
            f"{spell(value)} beside an error of {100 * (error.value or 0.0):.3g} % in round {value.round}"
            for value, error in ends(both)
        )
        sentence = f"{capital(name)} is {first_last}."
        if len(both) < 2:
            return sentence
        level = f", {relation.level} are not apart" if relation.level else ""
        sentence += (
            f" Of {relation.pairs} pair{'s' if relation.pairs > 1 else ''} of rounds, {relation.together} "
            f"{'has' if relation.together == 1 else 'have'} the greater error where {name} is greater, "
            f"{relation.against} where it is smaller{level}."
        )
        if relation.tau is None:
            return sentence
        return f"{sentence} Kendall's τ is {relation.tau:.2f} (p = {relation.p:.2g}, as if rounds were independent)."

    def _decide(self, split: str) -> str:
        if not self.phases:
            return "A longer run would decide it."
        kept, length = self.kept, len(self.kept)
        whole = length > 1 and length == kept[-1] - kept[0] + 1
        where = f"from {kept[0]} to {kept[-1]}" if whole else f"of {spans(kept)}"
        if any(broken(one) for one in self.values):
            return not_finite(self.values)
        if self.rounds and not any(finite(one) for one in self.values):
            if any(one.split for one in self.rounds):
                return "More clients, each with data of its own, would decide it."
            return split_hint(split, "splits the bias")
        if self.rounds and not any(finite(one) for one in self.errors):
            return "Test errors, measured while training, would decide it."
        if length < FEWEST:
            undrawn = self.evidence.undrawn_in(self.phases)
            if undrawn and length + len(undrawn) >= FEWEST:
                return f"{FEWEST} rounds are needed here; {too_few_before(undrawn, self.evidence.rounds)}."
            longer = "A longer run" if self.there < FEWEST else "A run that keeps more rounds' clients"
            return f"{longer} would decide it; {FEWEST} rounds are needed here."
        if (rounds := self.relation.rounds) < FEWEST:
            return f"It has {rounds} of the {FEWEST} rounds that it needs; more --rounds {where} would decide it."
        if self.relation.tau is None or self.relation.level > self.relation.pairs / 2:
            return narrower(self.rounds, self.values, replays=self.evidence.replays)
        if len(self.rounds) >= length:
            return "All of these rounds are decomposed; runs with other seeds may decide it."
        return f"More decomposed rounds {where} may decide it."


@dataclass(frozen=True)
class Relation:
    """Relation of two numbers over n rounds, pair by pair of rounds.

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
    >>> relation = relate(falling, falling)
    >>> relation.tau, round(relation.p * 120, 6), relation.sign
    (1.0, 2.0, 1)
    """
    both = [(x, y) for x, y in zip(a, b, strict=True) if finite(x) and finite(y)]
    pairs = list(combinations(range(len(both)), 2))
    of_a, of_b = ([order(both[j][side], both[i][side]) for i, j in pairs] for side in (0, 1))
    products = [x * y for x, y in zip(of_a, of_b, strict=True)]
    counts = len(both), products.count(1), products.count(-1), products.count(0)
    if len(both) < FEWEST or not any(of_a) or not any(of_b):
        return Relation(*counts)
    return Relation(*counts, sum(products) / len(pairs), _share_of_orders(len(both), pairs, of_a, of_b))


def _share_of_orders(n: int, pairs: Sequence[tuple[int, int]], of_a: Sequence[int], of_b: Sequence[int]) -> float:
    from scipy.stats import permutation_test

    table = np.zeros((n, n), dtype=np.int64)
    for (i, j), sign in zip(pairs, of_b, strict=True):
        table[i, j], table[j, i] = sign, -sign

    def score(orders: npt.NDArray[np.float64], axis: int = -1) -> Any:
        # which round's b stands at each place
        places = orders.astype(np.int64)
        return sum(sign * table[places[..., i], places[..., j]] for (i, j), sign in zip(pairs, of_a, strict=True))

    # An order of places, not values: a tie of intervals is no equivalence, so values could not be ranked.
    counted = permutation_test(
        (np.arange(n, dtype=np.float64),),
        score,
        permutation_type="pairings",
        n_resamples=ORDERS if n <= MANY else FEW_ORDERS,
        vectorized=True,
        random_state=0,
    )
    return float(counted.pvalue)
