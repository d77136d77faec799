"""The plane through three models, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, degrees

import numpy as np

from ...checkpoints import FedscopeError, Layout, Model, Weights

# Below this the third model says nothing that the first two do not: its direction is rounding.
SMALLEST_ANGLE = 0.01


@dataclass(frozen=True)
class Frame:
    """What a grid point needs of a basis: three numbers, not three vectors of the model's size.

    Attributes:
        u_length, v_length: of the axes before they were normalised.
        slope: <w_3 - w_1, u> / |u|^2, what v lacks of w_3 - w_1, in units of u.
    """

    u_length: float
    v_length: float
    slope: float

    def coefficients(self, a: float, b: float) -> tuple[float, float, float]:
        """The point (a, b) as c_1 w_1 + c_2 w_2 + c_3 w_3 with c_1 + c_2 + c_3 = 1."""
        third = b / self.v_length
        second = a / self.u_length - self.slope * third
        return 1.0 - second - third, second, third


@dataclass(frozen=True, eq=False)
class Basis:
    """Orthonormal axes of the plane through w_1, w_2, w_3, so that coordinates are L2 distances.

    u = w_2 − w_1,  v = (w_3 − w_1) − ⟨w_3 − w_1, û⟩ û,  û = u/‖u‖,  v̂ = v/‖v‖; a point is w_1 + a û + b v̂
    (Garipov et al. 2018, Izmailov et al. 2018).

    Attributes:
        origin: w_1, [P], as it is stored.
        u_hat, v_hat: the axes, float64 [P].
        u_length, v_length: ‖u‖ and ‖v‖.
        cos_uv: û·v̂ as computed, 0 up to rounding.
        angle: at w_1 between the other two models, in degrees.
        slope: κ with v = (w_3 − w_1) − κ (w_2 − w_1).

    >>> import numpy as np
    >>> basis = Basis.through(np.array([0.0, 0.0, 1.0]), np.array([3.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0]))
    >>> basis.u_hat.tolist(), basis.v_hat.tolist(), round(basis.angle, 3)
    ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], 63.435)
    >>> basis.project(np.array([2.0, 1.0, 5.0]))
    (2.0, 1.0, 4.0)
    """

    origin: np.ndarray
    u_hat: np.ndarray
    v_hat: np.ndarray
    u_length: float
    v_length: float
    cos_uv: float
    angle: float
    slope: float

    @classmethod
    def through(
        cls, w_1: np.ndarray, w_2: np.ndarray, w_3: np.ndarray, labels: Sequence[str] = ("w_1", "w_2", "w_3")
    ) -> Basis:
        """The basis of three parameter vectors [P].

        Raises:
            FedscopeError: values that are not finite; two models that are the same; three models on one line, told
                with their angle.
        """
        vectors = (w_1, w_2, w_3)
        for label, w in zip(labels, vectors, strict=True):
            broken = int(np.count_nonzero(~np.isfinite(w)))
            if broken:
                raise FedscopeError(
                    f"{label} has {broken} of {w.size} parameters that are not finite, so no plane goes through it; "
                    "choose a model from before it broke"
                )
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if norm(np.subtract(vectors[j], vectors[i], dtype=np.float64)) == 0:
                raise FedscopeError(
                    f"{labels[i]} and {labels[j]} are the same model (angle 0 degrees, distance 0); "
                    "a plane needs three different ones"
                )
        origin = np.asarray(w_1)  # as it is stored: only differences need float64
        u = np.subtract(w_2, origin, dtype=np.float64)
        v = np.subtract(w_3, origin, dtype=np.float64)
        u_length = norm(u)
        u /= u_length
        along = 0.0
        for _ in range(2):  # once more removes what the first subtraction left through rounding
            step = dot(v, u)
            v -= step * u
            along += step
        v_length = norm(v)
        angle = degrees(atan2(v_length, along))
        # Anchors are stored rounded: three models on one line in exact arithmetic are this far off it.
        rounding = 4 * float(np.finfo(w_1.dtype).eps) * max(norm(w) for w in vectors)
        at_second = degrees(atan2(v_length, u_length - along))
        corners = (angle, at_second, 180 - angle - at_second)
        if min(corners) < SMALLEST_ANGLE or v_length <= rounding:
            # the flattest corner, the first of those that are as flat
            flat, corner = min(
                zip(corners, labels, strict=True), key=lambda told: round(min(told[0], 180 - told[0]), 2)
            )
            raise FedscopeError(
                f"{labels[0]}, {labels[1]} and {labels[2]} lie on one line (angle {flat:.3g} degrees at {corner}), "
                "so they span no plane; take another third model, or draw the line with `fedscope line`"
            )
        v /= v_length
        return cls(origin, u, v, u_length, v_length, dot(u, v), angle, along / u_length)

    @classmethod
    def of(cls, anchors: Sequence[Weights], labels: Sequence[str]) -> Basis:
        """The basis of three models, refusing different layouts by the first difference."""
        same_layout(anchors, labels)
        return cls.through(anchors[0].parameters, anchors[1].parameters, anchors[2].parameters, labels)

    def point(self, a: float, b: float) -> np.ndarray:
        """w_1 + a û + b v̂, float64 [P]."""
        return self.origin + a * self.u_hat + b * self.v_hat

    @property
    def frame(self) -> Frame:
        """The basis without its vectors."""
        return Frame(self.u_length, self.v_length, self.slope)

    def coefficients(self, a: float, b: float) -> tuple[float, float, float]:
        """See :meth:`Frame.coefficients`."""
        return self.frame.coefficients(a, b)

    def project(self, w: np.ndarray) -> tuple[float, float, float]:
        """Coordinates (a, b) of the nearest point of the plane to ``w`` [P], and the distance from it."""
        return project(w, self.origin, self.u_hat, self.v_hat)


def project(w: np.ndarray, origin: np.ndarray, u_hat: np.ndarray, v_hat: np.ndarray) -> tuple[float, float, float]:
    """Coordinates (a, b) of the nearest point of origin + a û + b v̂ to ``w`` [P], and the distance from it."""
    rest = np.subtract(w, origin, dtype=np.float64)
    a = b = 0.0
    for _ in range(2):  # once more removes what rounding left
        step_a, step_b = dot(rest, u_hat), dot(rest, v_hat)
        rest -= step_a * u_hat
        rest -= step_b * v_hat
        a, b = a + step_a, b + step_b
    return a, b, norm(rest)


def same_layout(models: Sequence[Weights], labels: Sequence[str]) -> None:
    """Refuse models that do not have the same parameters and buffers.

    Raises:
        FedscopeError: the first two that differ, and where.
    """
    for label, model in zip(labels[1:], models[1:], strict=True):
        difference = models[0].layout.difference(model.layout)
        if difference is not None:
            raise FedscopeError(
                f"{labels[0]} and {label} are models of different architectures: {difference}; "
                "a line or a plane needs models with the same layout"
            )


def fits_module(layout: Layout, models: Sequence[Model]) -> None:
    """Refuse models whose parameters are not the module's.

    Raises:
        FedscopeError: the first that does not fit, and where.
    """
    for model in models:
        difference = layout.difference(model.weights.layout)
        if difference is not None:
            raise FedscopeError(f"{model.label} does not fit the module: {difference}; build the module it was made by")


def dot(x: np.ndarray, y: np.ndarray) -> float:
    """⟨x, y⟩, the same on every machine: not by BLAS, whose sums hang on its number of threads."""
    return float(np.sum(x * y))


def norm(x: np.ndarray) -> float:
    """‖x‖ in float64."""
    return float(np.sqrt(np.sum(np.square(x, dtype=np.float64))))
