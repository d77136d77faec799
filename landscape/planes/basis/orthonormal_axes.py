"""Two orthonormal axes, in float64: through three models, or along the principal components of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import atan2, degrees

import numpy as np

from ....checkpoints import FedscopeError

# Below this the third model says nothing that the first two do not: its direction is rounding.
SMALLEST_ANGLE = 0.01
#: parameters at a time: the centred rows [C, CHUNK] in float64 stay small
CHUNK = 65_536
#: below this share of the first component's length the second one is rounding
LEAST = 1e-6
#: numbers at a time of which it is asked whether half a precision holds them all: one of 65,536 is there by chance
BLOCK = 1024
#: bits behind the point
BFLOAT16, FLOAT16 = 7, 10


@dataclass(frozen=True, eq=False)
class Axes:
    """Two orthonormal axes at an origin.

    Attributes:
        origin: [P], as it is stored.
        u_hat, v_hat: the axes, float64 [P].
    """

    origin: np.ndarray
    u_hat: np.ndarray
    v_hat: np.ndarray

    @property
    def cos_uv(self) -> float:
        """û·v̂ as computed, 0 up to rounding."""
        return dot(self.u_hat, self.v_hat)

    def point(self, a: float, b: float) -> np.ndarray:
        """Return the origin + a û + b v̂, float64 [P]."""
        return self.origin + a * self.u_hat + b * self.v_hat

    def project(self, w: np.ndarray) -> tuple[float, float, float]:
        """Coordinates (a, b) of the nearest point of the plane to ``w`` [P], and the distance from it."""
        rest = np.subtract(w, self.origin, dtype=np.float64)
        a = b = 0.0
        for _ in range(2):  # once more removes what rounding left
            step_a, step_b = dot(rest, self.u_hat), dot(rest, self.v_hat)
            rest -= step_a * self.u_hat
            rest -= step_b * self.v_hat
            a, b = a + step_a, b + step_b
        return a, b, norm(rest)


@dataclass(frozen=True, eq=False)
class Basis(Axes):
    """Orthonormal axes of the plane through w_1, w_2, w_3, so that coordinates are L2 distances.

    u = w_2 − w_1,  v = (w_3 − w_1) − ⟨w_3 − w_1, û⟩ û,  û = u/‖u‖,  v̂ = v/‖v‖; a point is w_1 + a û + b v̂
    (Garipov et al. 2018, Izmailov et al. 2018).

    Attributes:
        origin, u_hat, v_hat: w_1, û and v̂.
        u_length, v_length: ‖u‖ and ‖v‖.
        angle: at w_1 between the other two models, in degrees.
        slope: κ with v = (w_3 − w_1) − κ (w_2 − w_1).

    >>> import numpy as np
    >>> from fedscope.landscape.planes.basis.orthonormal_axes import Basis
    >>> basis = Basis.through(np.array([0.0, 0.0, 1.0]), np.array([3.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0]))
    >>> basis.u_hat.tolist(), basis.v_hat.tolist(), round(basis.angle, 3)
    ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], 63.435)
    >>> basis.project(np.array([2.0, 1.0, 5.0]))
    (2.0, 1.0, 4.0)
    """

    u_length: float
    v_length: float
    angle: float
    slope: float

    @classmethod
    def through(
        cls, w_1: np.ndarray, w_2: np.ndarray, w_3: np.ndarray, labels: Sequence[str] = ("w_1", "w_2", "w_3")
    ) -> Basis:
        """Build the basis of three parameter vectors [P].

        Raises:
            FedscopeError: values that are not finite; two models that are the same; three models on one line, told
                with their angle.
        """
        vectors = (w_1, w_2, w_3)
        for label, w in zip(labels, vectors, strict=True):
            refuse_broken(label, w, "no plane goes through it; name three models that are finite, A B C")
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
        slope = along / u_length
        shares = np.array([1 - slope, slope, 1.0])
        # in half a precision twice what independent errors come to: 4 eps would refuse models near each other
        rounding = max(rounding, 2 * float(np.linalg.norm(shares * half_rounding(vectors))))
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
        return cls(origin, u, v, u_length, v_length, angle, slope)

    def coefficients(self, a: float, b: float) -> tuple[float, float, float]:
        """Return the point (a, b) as c_1 w_1 + c_2 w_2 + c_3 w_3 with c_1 + c_2 + c_3 = 1."""
        return coefficients_of(self.u_length, self.v_length, self.slope, a, b)


def coefficients_of(u_length: float, v_length: float, slope: float, a: float, b: float) -> tuple[float, float, float]:
    """:meth:`Basis.coefficients` from three numbers: who has only these holds no vectors of the model's size."""
    third = b / v_length
    second = a / u_length - slope * third
    return 1.0 - second - third, second, third


def refuse_broken(label: str, w: np.ndarray, consequence: str) -> None:
    """Refuse parameters [P] that are not finite.

    Raises:
        FedscopeError: how many, and the consequence.
    """
    broken = int(np.count_nonzero(~np.isfinite(w)))
    if broken:
        raise FedscopeError(f"{label} has {broken} of {w.size} parameters that are not finite, so {consequence}")


def half_rounding(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Estimate how far vectors [P] each are from what they were before they were rounded to half a precision.

    A number whose neighbours are s away is off by s / √12 in the root mean square, so the distance is √(Σ s² / 12).
    Whether it was rounded is seen from the numbers: a block of them that bfloat16 or float16 holds all. Those that are
    the same in all vectors are left out, as they do not set them apart.

    Returns:
        a distance for each; 0 of a vector in full precision.

    >>> half_rounding([np.array([1.0, 3.0]), np.array([1.5, 3.0]), np.array([1.1, 3.0])]).round(6).tolist()
    [0.002255, 0.002255, 0.0]
    """
    squares = np.zeros(len(vectors))
    for start in range(0, len(vectors[0]), CHUNK):
        parts = [np.asarray(vector[start : start + CHUNK]) for vector in vectors]
        differs = np.any([part != parts[0] for part in parts], axis=0)
        squares += [np.square(_half_spacing(part)[differs]).sum() / 12 for part in parts]
    return np.sqrt(squares)


def _half_spacing(values: np.ndarray) -> np.ndarray:
    """Compute how far from numbers their neighbours are in the half precision that they are stored in; 0 in none."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        half = single.astype(np.float16).astype(np.float32)
    starts = np.arange(0, len(values), BLOCK)
    sizes = np.diff([*starts, len(values)])
    whole = single == values
    in_bfloat16, in_float16 = (
        np.repeat(np.logical_and.reduceat(whole & held, starts), sizes)
        for held in ((single.view(np.uint32) & 0xFFFF) == 0, half == single)
    )
    exponent = np.frexp(single)[1] - 1
    spacing = np.where(in_bfloat16, np.ldexp(1.0, exponent - BFLOAT16), 0.0)
    fine = np.maximum(np.ldexp(1.0, exponent - FLOAT16), 2.0**-24)  # the least numbers are as far apart
    spacing = np.where(in_float16 & ~in_bfloat16, fine, spacing)
    return np.where(single == 0, 0.0, spacing)


def dot(x: np.ndarray, y: np.ndarray) -> float:
    """⟨x, y⟩, the same on every machine: not by BLAS, whose sums depend on its number of threads."""
    return float(np.sum(x * y))


def norm(x: np.ndarray) -> float:
    """‖x‖ in float64."""
    return float(np.sqrt(np.sum(np.square(x, dtype=np.float64))))


@dataclass(frozen=True, eq=False)
class Components(Axes):
    """Principal components as axes.

    Attributes:
        explained: the shares of the models' squared distances from their mean that lie along either axis.
    """

    explained: tuple[float, float]


def principal_components(rows: Sequence[np.ndarray], origin: np.ndarray, what: str = "models") -> Components:
    """Compute the first two principal components of C models, from the eigenvectors of their centred Gram matrix [C,
    C].

    With X the rows minus their mean, X Xᵀ = E Λ Eᵀ; axis i is Xᵀ e_i / √λ_i and shows λ_i / Σ λ of the squared
    distances. The sign is such that the model farthest along an axis lies on its positive side. C² P operations and
    two vectors of memory, whatever the size of the rows.

    Raises:
        FedscopeError: the models are one and the same, or lie on one line.

    >>> rows = [np.array([4.0, 0, 1]), np.array([-2.0, 1, 1]), np.array([-2.0, -1, 1])]
    >>> axes = principal_components(rows, rows[0])
    >>> (axes.u_hat.round(6) + 0.0).tolist(), [round(share, 3) for share in axes.explained]
    ([1.0, 0.0, 0.0], [0.923, 0.077])
    """
    u_hat, v_hat, _, explained = _leading([rows], [what])
    return Components(origin, u_hat, v_hat, explained)


def shared_components(
    groups: Sequence[Sequence[np.ndarray]], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Compute the first two principal components of several groups of models together, each about its own mean and
    counted as much as any other, however far its models are apart; of one group those of
    :func:`principal_components`, bit for bit.

    With X_g the rows of group g minus their mean, the rows that are put together are X_g ‖X_1‖ / ‖X_g‖.

    Args:
        names: of the groups, for sentences.

    Returns:
        both axes, and of each group the shares of its squared distances from its mean that lie along either.

    Raises:
        FedscopeError: a group of one and the same model; models that all lie on one line.

    >>> wide, narrow = [np.array([8.0, 0, 0]), np.array([-8.0, 0, 0])], [np.array([5.0, 1, 0]), np.array([5.0, -1, 0])]
    >>> u_hat, v_hat, shares = shared_components([wide, narrow, [w + 1 for w in wide]], ["a", "b", "c"])
    >>> [(abs(axis).round(6) + 0.0).tolist() for axis in (u_hat, v_hat)], (np.round(shares, 3) + 0.0).tolist()
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    """
    u_hat, v_hat, shares, _ = _leading(groups, names)
    return u_hat, v_hat, shares


def _leading(
    groups: Sequence[Sequence[np.ndarray]], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]], tuple[float, float]]:
    """Return both axes, the shares of each group that they show, and those of all groups as they are put together."""
    sizes = [len(rows) for rows in groups]
    gram = np.zeros((sum(sizes), sum(sizes)))
    for chunk in _subtract_means(groups):
        # not matmul, whose sums depend on its number of threads
        gram += np.einsum("ip,jp->ij", chunk, chunk)
    own = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes).tolist(), strict=True)]
    totals = [float(np.trace(gram[rows, rows])) for rows in own]
    for size, total, name in zip(sizes, totals, names, strict=True):
        if not total > 0:
            raise FedscopeError(f"the {size} {name} have all the same parameters (distance 0), so they span no plane")
    weights = np.repeat([float(np.sqrt(totals[0] / total)) for total in totals], sizes)
    values, vectors = np.linalg.eigh(gram * np.multiply.outer(weights, weights))
    values, vectors = values[::-1], vectors[:, ::-1]
    # models are stored rounded: on one line in exact arithmetic, they are about this far off it
    every = [row for rows in groups for row in rows]
    rounding = 4 * float(np.finfo(every[0].dtype).eps) * max(norm(row) for row in every) * float(weights.max())
    rounding = max(rounding, 2 * float((half_rounding(every) * weights).max()))
    if not values[1] > max(LEAST**2 * values[0], rounding**2):
        of = " and ".join(f"the {size} {name}" for size, name in zip(sizes, names, strict=True))
        raise FedscopeError(
            f"{of} lie on one line (the second component has {100 * values[1] / values[0]:.1g} % of the first one's "
            "variance), so they span no plane; draw the line with `fedscope line`"
        )
    mixed = vectors[:, :2] * weights[:, None]
    chunks = ([np.einsum("i,ip->p", mixed[:, i], chunk) for i in (0, 1)] for chunk in _subtract_means(groups))
    axes = [np.concatenate(parts) for parts in zip(*chunks, strict=True)]
    scores = np.einsum("ij,jk->ik", gram, mixed) / np.sqrt(values[:2])  # of each row along either axis
    for i, axis in enumerate(axes):
        if i:
            axis -= dot(axis, axes[0]) * axes[0]
        axis /= norm(axis)
        signed = vectors[:, i]
        if signed[np.argmax(np.abs(signed))] < 0:
            axis *= -1.0
    shares = [
        tuple((np.square(scores[rows]).sum(axis=0) / total).tolist()) for rows, total in zip(own, totals, strict=True)
    ]
    whole = float(values.clip(min=0).sum())
    return axes[0], axes[1], shares, (float(values[0]) / whole, float(values[1]) / whole)


def _subtract_means(groups: Sequence[Sequence[np.ndarray]]) -> Iterator[np.ndarray]:
    """Yield the rows of all groups minus the mean of their group, [C, CHUNK] at a time."""
    for start in range(0, len(groups[0][0]), CHUNK):
        centred = []
        for rows in groups:
            chunk = np.stack([row[start : start + CHUNK] for row in rows]).astype(np.float64)
            centred.append(chunk - chunk.mean(axis=0))
        yield np.concatenate(centred)
