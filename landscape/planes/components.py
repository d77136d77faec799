"""The plane that shows most of how several models differ, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...checkpoints import FedscopeError
from ..evaluation.geometry import dot, norm, project

#: parameters at a time: the centred rows [C, CHUNK] in float64 stay small
CHUNK = 65_536
#: below this share of the first component's length the second one is rounding
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class Components:
    """Two orthonormal axes at an origin.

    Attributes:
        origin: [P], as it is stored.
        u_hat, v_hat: the axes, float64 [P].
        explained: the shares of the models' squared distances from their mean that lie along either axis.
    """

    origin: np.ndarray
    u_hat: np.ndarray
    v_hat: np.ndarray
    explained: tuple[float, float]

    def project(self, w: np.ndarray) -> tuple[float, float, float]:
        """Coordinates (a, b) of the nearest point of the plane to ``w`` [P], and the distance from it."""
        return project(w, self.origin, self.u_hat, self.v_hat)


def principal_components(rows: Sequence[np.ndarray], origin: np.ndarray, what: str = "models") -> Components:
    """The first two principal components of C models, from the eigenvectors of their centred Gram matrix [C, C].

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
    gram = np.zeros((len(rows), len(rows)))
    for chunk in _centred(rows):
        # not matmul, whose sums hang on its number of threads
        gram += np.einsum("ip,jp->ij", chunk, chunk)
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    if not values[0] > 0:
        raise FedscopeError(f"the {len(rows)} {what} are all the same model (distance 0), so they span no plane")
    # models are stored rounded: on one line in exact arithmetic, they are about this far off it
    rounding = 4 * float(np.finfo(rows[0].dtype).eps) * max(norm(row) for row in rows)
    if not values[1] > max(LEAST**2 * values[0], rounding**2):
        raise FedscopeError(
            f"the {len(rows)} {what} lie on one line (the second component has {100 * values[1] / values[0]:.1g} % of "
            "the first one's variance), so they span no plane; draw the line with `fedscope line`"
        )
    axes = [np.concatenate([np.einsum("i,ip->p", vectors[:, i], chunk) for chunk in _centred(rows)]) for i in (0, 1)]
    for i, axis in enumerate(axes):
        if i:
            axis -= dot(axis, axes[0]) * axes[0]
        axis /= norm(axis)
        scores = vectors[:, i]
        if scores[np.argmax(np.abs(scores))] < 0:
            axis *= -1.0
    total = float(values.clip(min=0).sum())
    return Components(origin, axes[0], axes[1], (float(values[0]) / total, float(values[1]) / total))


def _centred(rows: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """The rows minus their mean, [C, CHUNK] at a time."""
    for start in range(0, len(rows[0]), CHUNK):
        chunk = np.stack([row[start : start + CHUNK] for row in rows]).astype(np.float64)
        yield chunk - chunk.mean(axis=0)
