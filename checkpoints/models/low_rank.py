"""Matrices that are products of two thin factors: their norms and best approximations, without forming them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def stacked(left: Array, right: Array, weights: Sequence[float] | Array) -> tuple[Array, Array]:
    """Factors of Σ_i c_i U_i V_i: [out, n q] and [n q, in], of rank n q at most.

    Args:
        left, right: U [n, out, q] and V [n, q, in]; weights: c [n].

    >>> u, v = np.array([[[1.0], [0.0]], [[0.0], [1.0]]]), np.array([[[2.0, 0.0]], [[0.0, 4.0]]])
    >>> u, v = stacked(u, v, [0.5, 0.5])
    >>> (u @ v).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    n, out, q = left.shape
    weighted = left * np.asarray(weights, np.float64)[:, None, None]
    return weighted.transpose(1, 0, 2).reshape(out, n * q), right.reshape(n * q, -1)


def difference(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Factors of U V − U' V'."""
    return np.concatenate([one[0], -other[0]], axis=1), np.concatenate([one[1], other[1]], axis=0)


def singular_values(left: Array, right: Array) -> Array:
    """Singular values of U V, descending; as many as the smallest of its dimensions.

    >>> singular_values(np.array([[3.0], [4.0]]), np.array([[2.0, 0.0, 0.0]])).round(12).tolist()
    [10.0]
    """
    core = _core(left, right)
    if not np.isfinite(core).all():  # of clients that diverged
        return np.full(min(core.shape), np.nan)
    return np.asarray(np.linalg.svd(core, compute_uv=False), np.float64)


def norm(left: Array, right: Array) -> float:
    """‖U V‖ in the Frobenius norm, with the digits that a difference of two such matrices has left.

    >>> round(norm(np.array([[3.0], [4.0]]), np.array([[2.0, 0.0, 0.0]])), 12)
    10.0
    """
    return float(np.linalg.norm(_core(left, right)))


def best_of_rank(left: Array, right: Array, rank: int) -> tuple[Array, Array]:
    """Return the factors [out, rank] and [rank, in] of the matrix of that rank that is nearest to U V.

    Both have the roots of the singular values, and the greatest entry of each column of the first is above 0. Where
    U V has a lower rank, the rest is 0. NaN where U or V is not finite.

    >>> u, v = best_of_rank(np.eye(3), np.diag([3.0, 2.0, 1.0]), 2)
    >>> (u @ v).round(12).tolist()
    [[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if not (np.isfinite(left).all() and np.isfinite(right).all()):  # of clients that diverged
        return np.full((len(left), rank), np.nan), np.full((rank, right.shape[1]), np.nan)
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, values, v = np.linalg.svd(r_left @ r_right.T, full_matrices=False)
    kept = min(rank, len(values))
    roots = np.sqrt(values[:kept])
    b, a = np.zeros((len(left), rank)), np.zeros((rank, right.shape[1]))
    b[:, :kept] = (q_left @ u[:, :kept]) * roots
    a[:kept] = (q_right @ v[:kept].T).T * roots[:, None]
    at = np.abs(b).argmax(axis=0)
    signs = np.where(b[at, np.arange(rank)] < 0, -1.0, 1.0)
    return b * signs, a * signs[:, None]


@np.errstate(invalid="ignore", over="ignore")  # of clients that diverged
def _core(left: Array, right: Array) -> Array:
    """R_U R_Vᵀ, which has the norm and the singular values of U V."""
    (_, of_left), (_, of_right) = np.linalg.qr(left), np.linalg.qr(right.T)
    core: Array = of_left @ of_right.T
    return core
