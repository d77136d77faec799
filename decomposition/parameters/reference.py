"""How far plain averaging misses the mode of parameters that nobody chose, and by chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...checkpoints import Round
from ...checkpoints.results import Kept
from .density import Array, has_density, modes_of
from .reading import client_values, mean_of
from .sampling import sample_columns

#: parameters sampled, and cohorts of Gaussian values drawn
SAMPLED = 500

Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Reference(Kept):
    """What ``fma_to_mode`` of a chosen parameter is to be compared with.

    Attributes:
        sampled: how many parameters of a seeded sample, in proportion to the layers, have a density.
        sample: quartiles (25 %, median, 75 %) of |FMA − mode|/σ over them; None where none has one.
        gaussian: the same of 500 cohorts of as many independent Gaussian values as there are clients, whose true mean
            is their mode: what the estimate of a mode from so few values costs. None for fewer than two.
        seed: of both draws.
    """

    sampled: int
    sample: Quartiles | None
    gaussian: Quartiles | None
    seed: int


def refer(round_: Round, seed: int = 0) -> Reference:
    """The quartiles over a sample of a round's parameters, and over Gaussian draws with the round's weights p.

    Raises:
        FedscopeError: the round has no clients.
    """
    values = client_values(round_, sample_columns(round_.layout, SAMPLED, seed, least=0))
    p = round_.weights
    found = misses(values.astype(np.float64), np.asarray(mean_of(values, p), np.float64))
    drawn = np.random.default_rng([seed, len(p)]).standard_normal((len(p), SAMPLED))
    chance = misses(drawn, mean_of(drawn, p))
    return Reference(len(found), _quartiles(found), _quartiles(chance), seed)


def misses(values: Array, fma: Array) -> Array:
    """|fma − mode|/σ of every column of ``values`` [C, n] that has a density.

    >>> misses(np.array([[0.0, 5.0], [0.0, 5.0], [0.0, 5.0], [1.0, 5.0]]), np.array([0.25, 5.0])).round(2).tolist()
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
