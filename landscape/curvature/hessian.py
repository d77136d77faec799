"""Numbers of a Hessian that is known by its products: outermost eigenvalues, trace, spectral density.

A product is a function from rows [K, P] to rows [K, P], as :meth:`.derivatives.Derivatives.products` with a model is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...evaluation.seeded import seeded
from ...results import deviation_over

if TYPE_CHECKING:
    from torch import Tensor

Product = Callable[[np.ndarray], np.ndarray]

# Of the greatest eigenvalue: how far H v may be from λ v. The error of λ is at most that, and mostly its square.
TOLERANCE = 1e-3
# Lanczos vectors between restarts at the small end, where eigenvalues lie close: fewer take more products in all.
SMALL_END = 30
# Restarts of the Lanczos iteration; what has not converged by then is left out.
RESTARTS = 30
# A Hessian so small is asked for row by row, and its eigenvalues are those of a dense matrix.
DENSE = 64
# Products that share their passes up to the gradient; more would keep more vectors in memory for little.
TOGETHER = 4
# Draws of different purposes must not be the same numbers.
START, PROBES = 11, 12


@dataclass(frozen=True)
class Eigenvalue:
    """λ and its residual ‖H v − λ v‖ for the unit vector v found: H has an eigenvalue that near to λ."""

    value: float
    residual: float


def eigenvalues(product: Product, size: int, top: int, seed: int = 0) -> tuple[Eigenvalue, ...]:
    """Compute the ``top`` algebraically largest eigenvalues of a symmetric matrix [P, P], the largest first.

    By scipy's implicitly restarted Lanczos iteration (ARPACK) from a seeded start vector. Fewer are returned where
    they did not converge.

    Raises:
        FedscopeError: ``top`` not between 1 and P.
        FloatingPointError: products that are not finite.

    >>> spectrum = np.linspace(-1, 5, 100)
    >>> [round(one.value, 4) for one in eigenvalues(lambda v: v * spectrum, 100, 2)]
    [5.0, 4.9394]
    """
    if not 1 <= top <= size:
        raise FedscopeError(f"{top} eigenvalues of a model of {size} parameters do not exist; give 1 to {size} (--top)")
    return _outermost(product, size, top, seed, "LA")[::-1]


def most_negative(product: Product, size: int, largest: float, seed: int = 0) -> tuple[Eigenvalue, ...]:
    """Compute the smallest eigenvalue, to the same absolute accuracy as ``largest``, the largest one; none if not
    converged.

    Negative where the model is a saddle. By itself it would be asked for to so many digits of its own, which takes ten
    times as long where it is small; so it is that of H − λ_1 I.

    >>> spectrum = np.linspace(-1, 5, 100)
    >>> [round(one.value, 2) for one in most_negative(lambda v: v * spectrum, 100, 5.0)]
    [-1.0]
    """
    found = _outermost(lambda v: product(v) - largest * v, size, 1, seed, "SA")
    return tuple(Eigenvalue(one.value + largest, one.residual) for one in found)


def trace(product: Product, size: int, probes: int, seed: int = 0) -> tuple[float, float]:
    """Compute the trace and its standard error over Rademacher probes z: tr H = E zᵀ H z (Hutchinson 1989).

    The same probes for every matrix of a size and a seed, so that differences between models are known better than
    each by itself. One probe has no standard error (NaN).

    >>> spectrum = np.linspace(-1, 5, 100)
    >>> trace(lambda v: v * spectrum, 100, 3)  # exact for a diagonal matrix: every z_i^2 is 1
    (200.0, 0.0)
    """
    draw = np.random.default_rng([seed, PROBES])
    estimates = np.empty(probes)
    for first in range(0, probes, TOGETHER):
        here = slice(first, min(first + TOGETHER, probes))
        z = draw.integers(0, 2, size=(here.stop - first, size)) * 2.0 - 1.0
        estimates[here] = (z * product(z)).sum(axis=1)
    return float(estimates.mean()), float(deviation_over(estimates) / np.sqrt(probes))


def spectral_density(
    product: Product, size: int, ends: tuple[float, float], steps: int, seed: int = 0, points: int = 512
) -> tuple[np.ndarray, np.ndarray]:
    """(1/P) Σ_i δ(λ − λ_i), each δ a Gaussian: λ and density, [points] each; its integral is 1.

    One stochastic Lanczos quadrature of ``steps`` products by curvlinops (Papyan, "Traces of class/cross-class
    structure pervade deep learning spectra", JMLR 2020, algorithm 2); the Gaussians' deviation is
    0.67 (1.1 (λ_1 − λ_P) / 2) / (steps − 1). A picture: what one start vector gives, without an error bar.

    Args:
        ends: the smallest and the largest eigenvalue.

    Raises:
        FedscopeError: curvlinops is missing.
    """
    require_curvlinops()
    from curvlinops import lanczos_approximate_spectrum

    operator: Any = _Operator(product, size)
    # curvlinops draws from torch's own generator, which stays as it was
    with seeded(seed):
        grid, density = lanczos_approximate_spectrum(operator, min(steps, size), points, boundaries=ends)
    return grid.numpy(), density.numpy()


def require_curvlinops() -> None:
    """Say before computing that a spectral density could not be.

    Raises:
        FedscopeError: curvlinops is missing.
    """
    try:
        import curvlinops  # noqa: F401
    except ImportError:
        raise FedscopeError(
            "a spectral density (--density) needs curvlinops; pip install 'fedscope[hessian]', or leave it out"
        ) from None


def _outermost(product: Product, size: int, count: int, seed: int, which: Any) -> tuple[Eigenvalue, ...]:
    """Eigenvalues at one end of the spectrum (``LA``, ``SA``), ascending, each with its residual."""
    if size <= max(DENSE, 2 * count + 1):
        return _dense(product, size, count, which)
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

    def matvec(v: np.ndarray) -> np.ndarray:
        (row,) = _finite(product(v.reshape(1, -1)))
        return np.asarray(row)

    operator = LinearOperator((size, size), matvec=matvec, dtype=np.float64)
    start = np.random.default_rng([seed, START]).standard_normal(size)
    kept = min(size, SMALL_END) if which == "SA" else None
    values: Any
    vectors: Any
    try:
        values, vectors = eigsh(operator, count, which=which, v0=start, ncv=kept, tol=TOLERANCE, maxiter=RESTARTS)
    except ArpackNoConvergence as error:
        values, vectors = error.eigenvalues, error.eigenvectors
    except ArpackError:
        if product(start[None]).any():
            raise
        values, vectors = np.zeros(count), np.eye(size, count)  # of a matrix of zeros there is nothing to iterate
    if not len(values):
        return ()
    rows = np.ascontiguousarray(vectors.T)
    residuals = np.linalg.norm(product(rows) - values[:, None] * rows, axis=1)
    order = np.argsort(values)
    return tuple(Eigenvalue(float(values[i]), float(residuals[i])) for i in order)


def _dense(product: Product, size: int, count: int, which: str) -> tuple[Eigenvalue, ...]:
    matrix = _finite(product(np.eye(size)))
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    residuals = np.linalg.norm(matrix @ vectors - values * vectors, axis=0)
    chosen = range(size - count, size) if which == "LA" else range(count)
    return tuple(Eigenvalue(float(values[i]), float(residuals[i])) for i in chosen)


def _finite(rows: np.ndarray) -> np.ndarray:
    if not np.isfinite(rows).all():  # ARPACK would go on with them
        raise FloatingPointError("the Hessian is not finite")
    return rows


class _Operator:
    """The matrix as much as curvlinops' quadrature asks of one: its base class is not public."""

    def __init__(self, product: Product, size: int) -> None:
        import torch

        self.device, self.dtype, self.shape = torch.device("cpu"), torch.float64, (size, size)
        self._product = product

    def __matmul__(self, v: Tensor) -> Tensor:
        import torch

        return torch.from_numpy(_finite(self._product(v.numpy()[None]))[0])

    def to_scipy(self) -> None:
        """Asked for, and not used where both ends of the spectrum are given."""
