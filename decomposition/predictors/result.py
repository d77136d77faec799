"""What may predict that averaging helps, round by round, and how well each does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from math import isfinite
from typing import Any, Self

import numpy as np

from ...results import Serializable, Table, TableResult, columns_of
from ..draws.divergence import lost_rounds

#: by column, what a predictor is, in a few words
PREDICTORS: Mapping[str, str] = {
    "cosine": "cosine of updates",
    "kept": "length kept by the mean",
    "conflict": "sign conflict",
    "barrier": "barrier between pairs",
    "overlap": "overlap of subspaces",
    "rank": "effective rank / C",
}


@dataclass(frozen=True)
class PredictedRound(Serializable):
    """A round: the clients' mean loss ``alone``, the loss of their ``mean``, what it gains, and the predictors, see
    :func:`~fedscope.decomposition.predictors.round_predictors.predicted_round`. None where one does not exist."""

    run: str
    round: int
    clients: int
    alone: float
    mean: float
    gain: float | None
    cosine: float | None
    kept: float | None
    conflict: float | None
    barrier: float | None
    overlap: float | None
    rank: float | None


@dataclass(frozen=True)
class Correlation:
    """Spearman's correlation of a predictor with the gain over ``rounds`` rounds, and a 95 % interval; None where there
    are too few rounds, or one of the two is constant."""

    predictor: str
    rounds: int
    correlation: float | None
    low: float | None
    high: float | None

    @property
    def holds(self) -> bool:
        """Whether it is better than chance: the interval does not include 0.

        It is of this number alone. The six are looked at together: of six that tell nothing, one at least holds in up
        to 30 % of all cases, and where each round resembles the one before in about 40 % (simulated, 0.7).
        """
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def correlations_of(rounds: tuple[PredictedRound, ...]) -> tuple[Correlation, ...]:
    """Correlate every predictor with the gain."""
    from .correlation import LEAST, interval, rank_correlation

    made = []
    for name in PREDICTORS:
        pairs = [(getattr(one, name), one.gain) for one in rounds]
        there = np.array([pair for pair in pairs if None not in pair], np.float64).reshape(-1, 2)
        numbers: list[float | None] = [None, None, None]
        if len(there) >= LEAST:
            x, y = there.T
            found = (rank_correlation(x, y), *interval(x, y))
            numbers = [value if isfinite(value) else None for value in found]
        made.append(Correlation(name, len(there), *numbers))
    return tuple(made)


@dataclass(frozen=True)
class Predictors(TableResult):
    """Numbers of a run's rounds, and how well each predicts what the mean gains on its clients.

    Attributes:
        rounds: ascending.
        correlations: of each predictor.
        attrs: provenance: run, rounds, data, split, samples, versions.

    >>> from fedscope.decomposition.predictors.result import Correlation, Predictors
    >>> Correlation("cosine", 20, 0.6, 0.2, 0.8).holds, Correlation("rank", 20, 0.1, -0.4, 0.5).holds
    (True, False)
    """

    command = "predictors"
    suffixes = (".predictors.csv", ".correlations.csv", ".predictors.json")
    format = "fedscope-predictors"
    tables = (
        Table(".predictors.csv", columns_of(PredictedRound)),
        Table(".correlations.csv", columns_of(Correlation)),
    )

    rounds: tuple[PredictedRound, ...]
    correlations: tuple[Correlation, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> list[Any]:
        """BASE.predictors.csv: a row a round; BASE.correlations.csv: a row a predictor."""
        return [list(map(astuple, self.rounds)), list(map(astuple, self.correlations))]

    def head(self) -> dict[str, Any]:
        """Return nothing that the rows do not say."""
        return {}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` gave."""
        rounds, correlations = tables
        return cls(
            tuple(PredictedRound(**row) for row in rounds),
            tuple(Correlation(**row) for row in correlations),
            head["attrs"],
        )

    def summary(self) -> str:
        """Say in how many rounds the mean gains, and how well each number predicts how much."""
        run = self.rounds[0].run if self.rounds else ""
        better = sum(one.gain is not None and one.gain > 0 for one in self.rounds)
        parts = [
            f"{run}: the mean has a lower loss than its clients have on average in {better} of "
            f"{len(self.rounds)} round{'' if len(self.rounds) == 1 else 's'}",
            lost_rounds([one.round for one in self.rounds if one.gain is None]),
            "rank correlation of what it gains with",
        ]
        lines = ["; ".join(filter(None, parts))]
        wide = max(map(len, PREDICTORS.values()))
        lines += [f"  {PREDICTORS.get(one.predictor, one.predictor):{wide}}  {words(one)}" for one in self.correlations]
        if any(one.holds for one in self.correlations):
            tried = sum(one.correlation is not None for one in self.correlations)
            lines.append(
                f"  {tried} numbers were tried, each at 5 %: if none told anything, one would still seem better "
                f"than chance in up to {5 * tried} % of runs, and in more where rounds resemble each other"
            )
        if "adapters" in self.attrs:
            lines.append("  updates are those of the products B·A, the mean is that of factors")
        return "\n".join([*lines, *self.attrs.get("left_out", ())])

    def findings(self) -> dict[str, Any]:
        """Return every round and correlation."""
        found = [{**asdict(one), "holds": one.holds} for one in self.correlations]
        return {"rounds": list(map(asdict, self.rounds)), "correlations": found}


def words(one: Correlation) -> str:
    """``+0.62 (+0.21 to +0.83)``, or why there is no such number.

    >>> words(Correlation("rank", 20, 0.1, -0.4, 0.5)), words(Correlation("rank", 3, None, None, None))
    ('+0.10 (-0.40 to +0.50), no better than chance', 'unknown from 3 rounds')
    """
    if one.correlation is None or one.low is None or one.high is None:
        return f"unknown from {one.rounds} round{'' if one.rounds == 1 else 's'}"
    chance = "" if one.holds else ", no better than chance"
    return f"{one.correlation:+.2f} ({one.low:+.2f} to {one.high:+.2f}){chance}"
