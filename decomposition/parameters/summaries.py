"""Single parameters over the clients, in numbers: skewness, the mode, how far models are from it; and how far plain
averaging misses the mode of parameters that nobody chose, and by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...checkpoints import Round
from ...results import Serializable
from .density import Array, has_density, mode_of, modes_of
from .parameter_names import RunValues, client_values, mean_of
from .selection import sample_columns

#: D'Agostino's test of skewness does not exist for fewer clients
TESTED = 8
#: parameters sampled, and cohorts of Gaussian values drawn
SAMPLED = 500

Quartiles = tuple[float, float, float]


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
        mode: of the density, see :func:`~fedscope.decomposition.parameters.density.density_of`.
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
        """The distance of the plain average to the mode, in standard deviations of the clients; signed."""
        return self.to_mode.get("fma")

    def numbers(self) -> dict[str, Any]:
        """Return all of it as plain values, with ``fma_to_mode`` and the distances of all models."""
        return {**asdict(self), "fma_to_mode": self.fma_to_mode}

    def words(self) -> str:
        """Describe the parameter in words."""
        if self.constant:
            return "the same in all clients"
        parts = [] if self.skewness is None else [f"skewness {self.skewness:.2f}"]
        parts += [] if self.cv is None else [f"cv {self.cv:.2g}"]
        far = self.fma_to_mode
        parts.append(no_density(self) if far is None else f"plain average {far:.2f} σ from the mode")
        return ", ".join(parts)


def no_density(one: Summary) -> str:
    """Say why clients that differ have none, or why plain averaging has no place in it."""
    if not one.finite:
        return "no density: not finite in some client"
    return "no density: differences beyond what float64 squares" if one.mode is None else "plain average not finite"


def summarise(names: Sequence[str], runs: Sequence[RunValues]) -> tuple[Summary, ...]:
    """A summary of each parameter over the first run's clients."""
    from scipy.stats import skewtest

    from ..dispersion.statistics import column_moments

    first = runs[0]
    moments = column_moments(first.clients)
    summaries = []
    for i, name in enumerate(names):
        values = first.clients[:, i]
        constant = bool(moments.constant[i])
        finite = bool(np.isfinite(values).all())
        mode = mode_of(values)
        tested = len(values) >= TESTED and not constant and mode is not None
        summaries.append(
            Summary(
                name,
                len(values),
                constant,
                finite,
                none_if_nan(moments.skewness[i]),
                none_if_nan(moments.cv[i]),
                none_if_nan(skewtest(values).pvalue) if tested else None,
                mode,
                {} if mode is None else _distances(runs, i, mode, float(np.std(values))),
            )
        )
    return tuple(summaries)


def _distances(runs: Sequence[RunValues], i: int, mode: float, deviation: float) -> dict[str, float]:
    values = {which: column[i] for which, column in runs[0].models.items()}
    for run in runs[1:]:
        values |= {f"{run.run}/{which}": column[i] for which, column in run.models.items()}
    distances = {which: float(value - mode) / deviation for which, value in values.items()}
    return {which: distance for which, distance in distances.items() if np.isfinite(distance)}


def none_if_nan(value: float) -> float | None:
    """A number for tables, None for NaN."""
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True)
class Reference(Serializable):
    """Quartiles with which ``fma_to_mode`` of a chosen parameter is compared.

    Attributes:
        sampled: how many parameters of a seeded sample, in proportion to the layers, have a density.
        sample: quartiles (25 %, median, 75 %) of |plain average − mode|/σ over them; None where none has one.
        gaussian: the same of 500 cohorts of as many independent Gaussian values as there are clients, whose true mean
            is their mode: what the estimate of a mode from so few values costs. None for fewer than two.
        seed: of both draws.
    """

    sampled: int
    sample: Quartiles | None
    gaussian: Quartiles | None
    seed: int

    def words(self) -> str:
        """Both in words; "" where one does not exist."""
        if self.sample is None or self.gaussian is None:
            return ""
        sample, gaussian = (
            f"{median:.2f} (median, quartiles {low:.2f} and {high:.2f})"
            for low, median, high in (self.sample, self.gaussian)
        )
        return (
            f"of {self.sampled} sampled parameters by {sample}, of Gaussian values, which have no skew, by {gaussian}"
        )


def reference(round_: Round, seed: int = 0) -> Reference:
    """Compute the quartiles over a sample of a round's parameters, and over Gaussian draws with the round's weights p.

    Raises:
        FedscopeError: the round has no clients.
    """
    values = client_values(round_, sample_columns(round_.layout, SAMPLED, seed, least=0))
    p = round_.weights
    missed = distance_to_mode(values.astype(np.float64), np.asarray(mean_of(values, p), np.float64))
    drawn = np.random.default_rng([seed, len(p)]).standard_normal((len(p), SAMPLED))
    return Reference(len(missed), _quartiles(missed), _quartiles(distance_to_mode(drawn, mean_of(drawn, p))), seed)


def distance_to_mode(values: Array, fma: Array) -> Array:
    """|fma − mode|/σ of every column of ``values`` [C, n] that has a density.

    >>> values = np.array([[0.0, 5.0], [0.0, 5.0], [0.0, 5.0], [1.0, 5.0]])
    >>> distance_to_mode(values, np.array([0.25, 5.0])).round(2).tolist()
    [0.55]
    """
    has = np.array([has_density(values[:, i]) for i in range(values.shape[1])], bool)
    kept = values[:, has]
    return np.asarray(np.abs(fma[has] - modes_of(kept)) / kept.std(axis=0), np.float64)


def _quartiles(values: Array) -> Quartiles | None:
    if not len(values):
        return None
    low, median, high = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return low, median, high
