"""Inner products of what adapters do, from their factors: the products B A are never formed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: numbers of one tile of products of factors, 64 MiB
NUMBERS = 2**23
#: models that diverged have no numbers here, which is told by what asks
_DIVERGED = np.errstate(invalid="ignore", over="ignore")


@_DIVERGED
def differences(a: Array, b: Array, a0: Array, b0: Array) -> tuple[Array, Array]:
    """Factors of B_i A_i − B_0 A_0 = (B_i − B_0) A_i + B_0 (A_i − A_0): [n, out, 2r] and [n, 2r, in].

    Differences are taken before anything is multiplied, so that after one small step no digits are lost.

    Args:
        a, b: of n models, [n, r, in] and [n, out, r]; a0, b0: of the model that they are compared with, [r, in] and
            [out, r].

    The first lies in memory as :func:`inner_products` takes it, which then copies nothing.

    >>> a, b = np.ones((1, 1, 3)), np.full((1, 2, 1), 5.0)
    >>> left, right = differences(a, b, np.ones((1, 3)), np.ones((2, 1)))
    >>> (left @ right)[0, 0].tolist()
    [4.0, 4.0, 4.0]
    """
    (n, rank, inside), out = a.shape, b.shape[1]
    left, right = np.empty((out, n, 2 * rank)).transpose(1, 0, 2), np.empty((n, 2 * rank, inside))
    np.subtract(b, b0, out=left[..., :rank])
    left[..., rank:] = b0
    right[:, :rank] = a
    np.subtract(a, a0, out=right[:, rank:])
    return left, right


@_DIVERGED
def inner_products(left: Array, right: Array, numbers: int = NUMBERS) -> Array:
    """⟨U_i V_i, U_j V_j⟩ = Σ_kl (U_iᵀ U_j)_kl (V_i V_jᵀ)_kl, [n, n], with U [n, out, q] and V [n, q, in].

    It costs n² q² (out + in) operations instead of n² out · in, and ``numbers`` of memory beside the factors.

    >>> u, v = np.random.default_rng(0).normal(size=(3, 5, 2)), np.random.default_rng(1).normal(size=(3, 2, 4))
    >>> whole = (u @ v).reshape(3, -1)
    >>> bool(np.allclose(inner_products(u, v), whole @ whole.T))
    True
    """
    n, out, q = left.shape
    u, v = left.transpose(1, 0, 2).reshape(out, n * q), right.reshape(n * q, -1)
    found = np.empty((n, n))
    step = max(1, numbers // max(1, n * q * q))
    for start in range(0, n, step):
        rows = slice(start * q, min(start + step, n) * q)
        both = (u[:, rows].T @ u) * (v[rows] @ v.T)
        found[start : start + step] = both.reshape(-1, q, n, q).sum(axis=(1, 3))
    # the sum of a pair does not depend on which of them comes first
    return (found + found.T) / 2
