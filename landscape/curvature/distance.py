"""How far the flatness of a model on all clients' data is from that on one client's: the flatness distance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...results import deviation_over

if TYPE_CHECKING:
    from .result import Curvature

#: the place of all clients' training data
ALL = "all"


@dataclass(frozen=True)
class FlatnessDistance:
    """One measure S of one model w: S(w; D) − (1/K) Σ_k S(w; D_k), with D all clients' data and D_k one client's.

    Every client counts alike. Of what is a mean over samples, as the loss and the trace, S(w; D) is the mean of all
    clients' numbers, weighted with their shares p_k: where all clients take part and none has more samples, the
    distance is 0. Eigenvalues and worst cases have one of their own: their S(w; D) is at most the weighted mean,
    because the directions in which the clients' losses rise most differ.

    Attributes:
        clients: K; those whose number exists.
        everyone: S(w; D); None where it does not exist.
        mean: over clients; stderr: of the mean over clients, deviation/√K, None for one client. It is also that of the
            distance, for S(w; D) is one number; the draws of a measure are the same on all data, and not counted.
    """

    run: str
    round: int | None
    model: str
    measure: str
    clients: int
    everyone: float | None
    mean: float | None
    stderr: float | None
    distance: float | None
    distance_stderr: float | None

    @property
    def text(self) -> str:
        """The three numbers in words, ``2.9 against 5.1 ± 0.4``."""
        return f"{_shown(self.everyone)} against {_shown(self.mean, self.stderr)}"

    @property
    def difference(self) -> str:
        """The distance in words, ``-2.2 ± 0.4``."""
        return _shown(self.distance, self.distance_stderr)


def distances_of(models: Sequence[Curvature]) -> tuple[FlatnessDistance, ...]:
    """Compute the distance of each measure of each model that was measured on all clients' data and on clients'.

    >>> from fedscope.landscape.curvature.result import Curvature, CurvatureMeasure
    >>> made = {"all": 3.0, "client-1": 4.0, "client-5": 8.0}
    >>> ones = [Curvature("a", 1, "global", (CurvatureMeasure("trace", v),), place=p) for p, v in made.items()]
    >>> (one,) = distances_of(ones)
    >>> one.mean, one.stderr, one.distance, one.distance_stderr
    (6.0, 2.0, -3.0, 2.0)
    """
    groups: dict[tuple[str, int | None, str], dict[str, Curvature]] = {}
    for model in models:
        groups.setdefault((model.run, model.round, model.model), {})[model.place] = model
    made = []
    for key, places in groups.items():
        if ALL in places and any(place.startswith("client-") for place in places):
            made += [_distance(key, one.name, places) for one in places[ALL].measures]
    return tuple(made)


def _distance(key: tuple[str, int | None, str], name: str, places: Mapping[str, Curvature]) -> FlatnessDistance:
    found = [model.measure(name) for place, model in places.items() if place.startswith("client-")]
    values = np.array([one.value for one in found if one is not None and one.value is not None])
    measured = places[ALL].measure(name)
    everyone = None if measured is None else measured.value
    if not values.size:
        return FlatnessDistance(*key, name, 0, everyone, None, None, None, None)
    mean = float(values.mean())
    stderr = float(deviation_over(values)) / math.sqrt(len(values)) if len(values) > 1 else None
    distance = None if everyone is None else everyone - mean
    return FlatnessDistance(
        *key, name, len(values), everyone, mean, stderr, distance, None if distance is None else stderr
    )


def _shown(value: float | None, stderr: float | None = None) -> str:
    if value is None or math.isnan(value):
        return "unknown"
    return f"{value:.3g}" + ("" if stderr is None or math.isnan(stderr) else f" ± {stderr:.2g}")
