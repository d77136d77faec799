"""Lemma 1 and Theorem 2 on one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from math import isfinite
from typing import Any, Self

from ...checkpoints.io.errors import list_few
from ...results import Table, TableResult, number, optional_int
from .fedswa import bound_factor, said_of_bound
from .lemma1 import Gap, Slope, fit_slope, left_out, local_slopes, without_gaps
from .theorem2 import PREDICTIONS, VARIANCES, ClientBound, VarianceCorrelation, correlate

NAMES = {"gp_variance": "Gaussian-process", "replay_variance": "replay"}
#: what a variance is compared with, and what the paper has to do with it
ROLES = {
    "equation_3": "equation 3 (the theorem)",
    "mmd2": "MMD² alone (the paper's reading)",
    "predicted": "the first term alone (neither)",
}
GAP = tuple(field.name for field in fields(Gap) if field.name not in ("round", "shrink"))
BOUND = tuple(field.name for field in fields(ClientBound) if field.name not in ("round", "client"))

Value = tuple[int | None, float | None, int | None, str, float | int | None]


@dataclass(frozen=True, eq=False)
class Theory(TableResult):
    """Lemma 1 and Theorem 2 on a recorded run.

    ``gaps`` as recorded, one a round, and of some rounds also with shrunk clients; ``bounds``, the clients of the
    rounds of Theorem 2. ``attrs`` is the provenance: split, data, outputs, draws, dimension, ridge, seed, device,
    versions; of a run of FedSWA or FedMoSWA also ``fedswa``, the ``steps`` of its clients, fewest and most, and its
    ``rounds``.

    >>> from fedscope.decomposition.theory.result import Gap, Theory
    >>> theory = Theory("fma", tuple(Gap(t, 1.0, 0.1 * t**2, t, t, 1.0) for t in (1, 2, 3)))
    >>> round(theory.slope.value, 6), theory.shrunk, theory.correlations
    (1.0, {}, ())
    """

    command = "theory"
    suffixes = (".theory.csv", ".theory.json")
    format = "fedscope-theory"
    # ``predicted`` has the diagonal of the kernel, where version 1 had its greatest eigenvalue; version 2 had neither
    # equation 3 nor its λ_D and β_D
    version = 3
    older = (2,)
    tables = (
        Table(
            ".theory.csv",
            {
                **{"run": str, "round": optional_int, "shrink": number, "client": optional_int},
                **{"quantity": str, "value": number},
            },
        ),
    )

    run: str
    gaps: tuple[Gap, ...] = ()
    bounds: tuple[ClientBound, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> tuple[Gap, ...]:
        """The gaps as recorded, one a round."""
        return tuple(one for one in self.gaps if one.shrink == 1)

    @property
    def slope(self) -> Slope | None:
        """The slope over rounds; None for fewer than three that count."""
        return fit_slope(self.rounds)

    @property
    def shrunk(self) -> dict[int, tuple[Gap, ...]]:
        """The gaps of shrunk clients by round, from ε = 1 on."""
        shrunk = sorted({one.round for one in self.gaps if one.shrink != 1})
        return {
            number: tuple(sorted((one for one in self.gaps if one.round == number), key=lambda one: -one.shrink))
            for number in shrunk
        }

    @property
    def by_round(self) -> dict[int, tuple[ClientBound, ...]]:
        """The clients of every round of Theorem 2."""
        rounds = sorted({one.round for one in self.bounds})
        return {number: tuple(one for one in self.bounds if one.round == number) for number in rounds}

    @cached_property  # counting the orders of nine clients takes a second
    def correlations(self) -> tuple[VarianceCorrelation, ...]:
        """The correlations of each variance with equation 3, MMD² alone and the first term alone, for every round of
        Theorem 2; those that exist."""
        every = (
            correlate(bounds, variance, prediction)
            for bounds in self.by_round.values()
            for variance in VARIANCES
            for prediction in PREDICTIONS
        )
        return tuple(one for one in every if one is not None)

    def correlation(self, round: int, variance: str, prediction: str = "predicted") -> VarianceCorrelation | None:
        """One of them."""
        asked = round, variance, prediction
        return next((one for one in self.correlations if (one.round, one.variance, one.prediction) == asked), None)

    @property
    def fedswa(self) -> dict[str, Any] | None:
        """For a run of FedSWA or FedMoSWA the fewest and the most ``steps`` of a client in a round, its ``rounds``, and
        the factor c̃ of each (:func:`~fedscope.decomposition.theory.fedswa.bound_factor`); None of other runs."""
        counted = self.attrs.get("fedswa")
        if counted is None:
            return None
        steps, rounds = [int(one) for one in counted["steps"]], int(counted["rounds"])
        return {"steps": steps, "rounds": rounds, "factors": [bound_factor(one, rounds) for one in steps]}

    def values(self) -> Iterator[Value]:
        """Round, ε, client, quantity and value of everything measured and derived. What is derived from several rows
        comes last: of rounds together without a round, of one round's shrunk clients (``shrink_*``) or of its clients
        with it."""
        for gap in self.gaps:
            for name in (*GAP, "ratio"):
                yield gap.round, gap.shrink, None, name, getattr(gap, name)
        for bound in self.bounds:
            for name in BOUND:
                yield bound.round, None, bound.client, name, getattr(bound, name)
        slope = self.slope
        if slope is not None:
            for name in ("value", "stderr", "points"):
                yield None, None, None, "slope" if name == "value" else f"slope_{name}", getattr(slope, name)
        for round_, path in self.shrunk.items():
            fit, steps = fit_slope(path), local_slopes(path)
            if fit is not None:
                yield round_, None, None, "shrink_slope", fit.value
                yield round_, None, None, "shrink_slope_last", steps[-1]
        if (known := self.fedswa) is not None:
            for name, factor in zip(("fewest", "most"), known["factors"], strict=True):
                yield None, None, None, f"fedswa_factor_{name}_steps", factor
        for one in self.correlations:
            for name in ("clients", "pearson", "low", "high", "spearman", "spearman_p"):
                kind = f"pearson_{name}" if name in ("low", "high") else name
                with_ = "" if one.prediction == "predicted" else f"{one.prediction}_"
                yield one.round, None, None, f"{one.variance}_{with_}{kind}", getattr(one, name)

    def rows(self) -> list[Any]:
        """BASE.theory.csv: tidy, one value a row, empty where it does not exist."""
        return [[(self.run, *row) for row in self.values()]]

    def head(self) -> dict[str, Any]:
        """Return the run; the number of rows tells a table that was cut between two of them."""
        return {"run": self.run, "rows": sum(1 for _ in self.values())}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave; what is derived is not read."""
        if len(tables[0]) != head["rows"]:
            raise ValueError(f"{len(tables[0])} of {head['rows']} rows")
        gaps: defaultdict[tuple[int, float], dict[str, float]] = defaultdict(dict)
        bounds: defaultdict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
        for row in tables[0]:
            name, value = row["quantity"], row["value"]
            if row["shrink"] is not None and name in GAP and value is not None:
                gaps[row["round"], row["shrink"]][name] = value
            elif row["client"] is not None:
                bounds[row["round"], row["client"]][name] = int(value) if name == "samples" else value
        return cls(
            head["run"],
            tuple(Gap(round=round_, shrink=shrink, **values) for (round_, shrink), values in gaps.items()),
            tuple(ClientBound(round=round_, client=client, **values) for (round_, client), values in bounds.items()),
            head["attrs"],
        )

    def summary(self) -> str:
        """A line of Lemma 1, with slopes, and one a round and variance of Theorem 2, with correlations and their
        numbers of clients."""
        slope, counting = self.slope, [one for one in self.rounds if one.counts]
        if slope is None:
            first = f"gaps of {len(counting)} rounds, and a slope over rounds needs three with different Δ"
        else:
            ratios = [one.ratio for one in counting if one.ratio is not None]
            first = (
                f"gap against Δ² over {slope.points} rounds, slope {slope.value:.2f} ± {slope.stderr:.2f} (one "
                f"standard error, of dependent rounds), gap/Δ² {min(ratios):.2g} to {max(ratios):.2g}"
            )
        parts = [", ".join([first, *(f"{count} left out ({why})" for why, count in left_out(self.rounds).items())])]
        for round_, path in self.shrunk.items():
            steps = local_slopes(path)
            shown = f"slope {steps[0]:.2f} at first, {steps[-1]:.2f} at the end" if steps else without_gaps(path)
            parts.append(f"clients of round {round_} shrunk {1 / path[-1].shrink:g}-fold, {shown}")
        lines = [f"{self.run}, Lemma 1: " + "; ".join(parts)]
        for round_, bounds in self.by_round.items():
            measured = [name for name in NAMES if all(getattr(one, name) is not None for one in bounds)]
            for i, name in enumerate(measured):
                whose = f"{len(bounds)} clients, {_sizes(bounds)}, " if i == 0 else ""
                lines.append(
                    f"{self.run}@{round_}, Theorem 2, {whose}{NAMES[name]} variance "
                    + self._against(round_, name)
                    + (_bounds_words(bounds) if name == "gp_variance" else "")
                )
        if (known := self.fedswa) is not None:
            lines.append(f"{self.run}, {said_of_bound((known['steps'][0], known['steps'][-1]), known['rounds'])}")
        return "\n".join(lines)

    def _against(self, round_: int, variance: str) -> str:
        """Describe how equation 3, its reading and its first term order the clients of a round, compared with one of
        their variances."""
        bounds = self.by_round[round_]
        broken = [one.client for one in bounds if not isfinite(getattr(one, variance) * one.predicted)]
        if broken:
            whose = f"client{'s' if len(broken) > 1 else ''} {list_few(broken)}"
            return f"has no correlation: it, or equation 3, is not finite for {whose}"
        parts = []
        for prediction, role in ROLES.items():
            found = self.correlation(round_, variance, prediction)
            if found is not None:
                parts.append(
                    f"with {role} r = {found.pearson:.2f} [{found.low:.2f}, {found.high:.2f}], ranks "
                    f"{found.spearman:.2f} (p = {found.spearman_p:.2g})"
                )
            elif any(getattr(one, prediction) is None for one in bounds):
                parts.append(f"with {role}: not in this result, which an older fedscope made (--force computes it)")
        return ", ".join(parts) if parts else "has no correlation (4 clients or more with different numbers have one)"

    def findings(self) -> dict[str, Any]:
        """All of it."""
        slope = self.slope
        return {
            "run": self.run,
            "slope": None if slope is None else asdict(slope),
            "gaps": [{**asdict(one), "ratio": one.ratio} for one in self.gaps],
            "clients": [asdict(one) for one in self.bounds],
            "correlations": [asdict(one) for one in self.correlations],
            **({} if self.fedswa is None else {"fedswa": self.fedswa}),
        }


def _sizes(bounds: Sequence[ClientBound]) -> str:
    """Describe how many samples the clients have in the kernel: where these differ, equation 3 and its first term
    do."""
    least, most = (pick(one.samples for one in bounds) for pick in (min, max))
    return f"n_k {least}" if least == most else f"n_k {least} to {most}"


def _bounds_words(bounds: Sequence[ClientBound]) -> str:
    """Describe how far the bound that holds for any kernel is from the Gaussian process's variance."""
    ratios = [one.bound / one.gp_variance for one in bounds if one.gp_variance > 0 and isfinite(one.bound)]
    if not ratios:
        return ""
    return f"; the upper bound of this variance is {min(ratios):.2g} to {max(ratios):.2g} times as large"
