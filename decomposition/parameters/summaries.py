"""What single parameters look like over the clients, in numbers: skewness, the mode, how far models are from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .density import mode_of
from .reading import RunValues

#: D'Agostino's test of skewness does not exist for fewer clients
TESTED = 8


@dataclass(frozen=True)
class Summary:
    """One parameter over the C clients of a round; None where a number does not exist.

    Attributes:
        parameter: its name.
        clients: C.
        constant: whether it is the same number in all clients; finite: whether it is a number in all of them.
        skewness: scipy's biased one, from three clients on.
        cv: σ/|μ|, σ over C (FedSA eq. 4).
        p_value: of D'Agostino's test that skewness is 0, from eight clients on. Of parameters that were chosen for
            their skewness it is no evidence.
        mode: of the density, see :func:`~fedscope.decomposition.parameters.density_of`.
        to_mode: of each model, (its value − mode)/σ, by name: ``fma``, ``global``, and of further runs
            ``RUN/global``; without those whose value is not finite.
    """

    parameter: str
    clients: int
    constant: bool
    finite: bool
    skewness: float | None
    cv: float | None
    p_value: float | None
    mode: float | None
    to_mode: Mapping[str, float]

    @property
    def fma_to_mode(self) -> float | None:
        """How far plain averaging misses the mode, in standard deviations of the clients; signed."""
        return self.to_mode.get("fma")

    def numbers(self) -> dict[str, Any]:
        """All of it as plain values, with ``fma_to_mode`` beside the distances of all models."""
        return {**asdict(self), "fma_to_mode": self.fma_to_mode}

    def words(self) -> str:
        """The parameter in words."""
        if self.constant:
            return "the same in all clients"
        parts = [] if self.skewness is None else [f"skewness {self.skewness:.2f}"]
        parts += [] if self.cv is None else [f"cv {self.cv:.2g}"]
        parts.append(no_density(self) if self.fma_to_mode is None else f"FMA {self.fma_to_mode:.2f} σ from the mode")
        return ", ".join(parts)


def no_density(one: Summary) -> str:
    """Why clients that differ have none, or why plain averaging has no place in it."""
    if not one.finite:
        return "no density: not finite in some client"
    return "no density: differences beyond what float64 squares" if one.mode is None else "FMA not finite"


def summarise(names: Sequence[str], runs: Sequence[RunValues]) -> tuple[Summary, ...]:
    """A summary of each parameter over the first run's clients."""
    from scipy.stats import skewtest

    from ..dispersion.statistics import column_moments

    first = runs[0]
    moments = column_moments(first.clients)
    made = []
    for i, name in enumerate(names):
        values = first.clients[:, i]
        constant = bool(moments.constant[i])
        finite = bool(np.isfinite(values).all())
        mode = mode_of(values)
        tested = len(values) >= TESTED and not constant and mode is not None
        made.append(
            Summary(
                name,
                len(values),
                constant,
                finite,
                _known(moments.skewness[i]),
                _known(moments.cv[i]),
                _known(skewtest(values).pvalue) if tested else None,
                mode,
                {} if mode is None else _distances(runs, i, mode, float(np.std(values))),
            )
        )
    return tuple(made)


def _distances(runs: Sequence[RunValues], i: int, mode: float, deviation: float) -> dict[str, float]:
    found = {which: float(values[i] - mode) / deviation for which, values in runs[0].models.items()}
    for run in runs[1:]:
        found |= {f"{run.run}/{which}": float(value[i] - mode) / deviation for which, value in run.models.items()}
    return {which: value for which, value in found.items() if np.isfinite(value)}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
