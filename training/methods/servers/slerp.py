"""SLERP, the way between two models on a sphere: Shoemake, "Animating Rotation with Quaternion Curves", SIGGRAPH 1985;
of more models Buss and Fillmore, "Spherical Averages and Applications to Spherical Splines and Interpolation", ACM
Transactions on Graphics 2001."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import FedscopeError, Weights
from ....checkpoints.io.errors import list_few
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.client_groups import layer_of
from ..shared.server_steps import as_weighed

#: steps to the mean of directions, and how short the last one is; two directions take one step, others a few
STEPS, SHORT = 100, 1e-13
#: an angle that differs from π by less is none that a way could follow
OPPOSITE = 1e-6


@dataclass(frozen=True)
class SLERP(ServerMethod):
    """Each parameter tensor goes along the great circle between the models' directions.

    Of a tensor of two models with the angle φ between θ_1 and θ_2, each [M]::

        w⁺ = sin(p_1 φ)/sin φ θ_1 + sin(p_2 φ)/sin φ θ_2

    so p_2 is SLERP's t. Of more, with u_i = θ_i / ‖θ_i‖, q is the direction with Σ p_i log_q u_i = 0, the spherical
    mean of the u_i; q = Σ c_i u_i, and w⁺ = Σ c_i θ_i. For two it is the formula above, and no order counts.

    ``start`` is not used. Where all models have one direction, and in the limit of small angles, it is FMA: the norms
    of tensors that a federation's clients have in common hardly shrink in their mean. A tensor that is 0 in all models
    stays 0.

    Refused: a tensor that is 0 in some models, and directions that are opposite or cancel each other, between which
    there is no shortest way.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "SLERP",
        "Shoemake, SIGGRAPH 1985; of more than two Buss and Fillmore, ACM TOG 2001",
        "w⁺ = Σ c_i θ_i by tensor, along the great circle between the directions",
    )
    forgets_start: ClassVar[bool] = True
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "layers"

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """See the class.

        Raises:
            FedscopeError: models between which there is no way.
        """
        parameters = np.empty(clients.layout.size, clients.layout.dtype)
        for name, where in clients.layout.slices.items():
            parameters[where] = _along_sphere(name, as_weighed(layer_of(clients, name), cohort.p), cohort)
        return Served(parameters)


def _along_sphere(name: str, values: np.ndarray, cohort: Cohort) -> np.ndarray:
    """Return w⁺ [M] of the tensor of all models, [C, M]."""
    lengths = np.array([np.linalg.norm(row) for row in _rows(values)])
    p = cohort.p
    zero = (lengths == 0) & (p > 0)
    if zero.any():
        if (zero | (p == 0)).all():
            return np.zeros(values.shape[1])
        who = cohort.client_ids[zero]
        raise FedscopeError(
            f"the server slerp needs a direction of every model, and {name} is 0 in client{'s' if len(who) > 1 else ''}"
            f" {list_few(who.tolist())}; give --server fma, or leave that model out"
        )
    lengths[lengths == 0] = 1  # of models that weigh nothing
    c = p.copy()
    for _ in range(STEPS):
        q = _sum(values, c / lengths)
        norm = np.linalg.norm(q)
        if norm < OPPOSITE * np.abs(c).sum():
            raise _opposite(name, "the models' directions cancel each other")
        q, c = q / norm, c / norm
        cosine = np.clip([row @ q for row in _rows(values)] / lengths, -1.0, 1.0)
        angle = np.arccos(cosine)
        if (far := (angle > np.pi - OPPOSITE) & (p > 0)).any():
            raise _opposite(name, f"client {cohort.client_ids[far][0]} is opposite to the mean of the models")
        stretched = p * np.divide(angle, np.sin(angle), out=np.ones_like(angle), where=(angle > 0) & (p > 0))
        tangent = _sum(values, stretched / lengths) - (stretched @ cosine) * q
        step = float(np.linalg.norm(tangent))
        if not step > SHORT:  # also of NaN
            break
        c = np.cos(step) * c + np.sin(step) / step * (stretched - (stretched @ cosine) * c)
    return _sum(values, c)


def _rows(values: np.ndarray) -> Iterator[np.ndarray]:
    return (row.astype(np.float64) for row in values)


def _sum(values: np.ndarray, c: np.ndarray) -> np.ndarray:
    total = np.zeros(values.shape[1])
    for own, row in zip(c, _rows(values), strict=True):
        row *= own
        total += row
    return total


def _opposite(name: str, what: str) -> FedscopeError:
    return FedscopeError(
        f"the server slerp finds no shortest way in {name}: {what}; give other weights, or --server fma"
    )


PROVIDES = SLERP
