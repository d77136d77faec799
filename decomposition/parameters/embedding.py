"""t-SNE of points, by scikit-learn on the processor or by torchdr on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...checkpoints.errors import listed, nearest

Array = npt.NDArray[np.float64]

#: fewer points have no neighbourhoods
FEWEST = 4
ITERATIONS = 1000


def embed(
    points: Array, *, perplexity: float = 30.0, seed: int = 0, backend: str = "sklearn", device: str = "cpu"
) -> Array:
    """The t-SNE of n points [n, C] in the plane, [n, 2]: 1000 steps from their first two principal components.

    The axes have no unit; near points are neighbours, but distances between groups and their sizes mean little.

    Args:
        perplexity: about how many neighbours a point has.
        seed: of what the backend draws.
        backend: ``sklearn`` (Barnes-Hut, the same numbers every time) or ``torchdr``, the optional package of
            ``fedscope[gpu]``: exact repulsion in torch, O(n²) a step, which a GPU does fast; near neighbours agree,
            numbers do not.
        device: of torchdr, ``cpu`` or ``cuda``.

    Raises:
        FedscopeError: an unknown backend, or one that is not installed; fewer than four points, or than two
            dimensions; a perplexity that is not above 0 and below n; values that are not finite; points that are all
            the same.

    >>> embed(np.eye(6), perplexity=2.0).shape
    (6, 2)
    """
    refuse_backend(backend)
    n, dimensions = points.shape
    if n < FEWEST:
        raise FedscopeError(f"{n} points are too few for a t-SNE; take {FEWEST} or more")
    if dimensions < 2:
        raise FedscopeError(
            f"the points have {dimensions} dimension, and there is nothing to embed; they need 2 or more"
        )
    if not 0 < perplexity < n:
        raise FedscopeError(
            f"perplexity {perplexity:g} does not fit {n} points: it must be above 0 and below their number; give a "
            "smaller one, or more points"
        )
    broken = int((~np.isfinite(points)).any(axis=1).sum())
    if broken:
        raise FedscopeError(
            f"{broken} of {n} points are not finite, and have no distance to others; take a round before the training "
            "diverged"
        )
    if (points == points[0]).all():
        raise FedscopeError(
            f"the {n} points are all the same, so there are no neighbours: clients moved no parameter of the sample; "
            "take another round"
        )
    return np.asarray(BACKENDS[backend](points, perplexity, seed, device), dtype=np.float64)


def refuse_backend(backend: str) -> None:
    """Make sure that there is such a backend.

    Raises:
        FedscopeError: there is none; says which there are.
    """
    if backend not in BACKENDS:
        raise FedscopeError(
            f"there is no t-SNE backend {backend!r}{nearest(backend, BACKENDS) or '; there are ' + listed(BACKENDS)}"
        )


def backend_version(backend: str) -> str:
    """Of the package that a backend is: its numbers may change with it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version({"sklearn": "scikit-learn"}.get(backend, backend))
    except PackageNotFoundError:
        return "not installed"


def _sklearn(points: Array, perplexity: float, seed: int, device: str) -> Any:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    made = TSNE(perplexity=perplexity, init="pca", random_state=seed, max_iter=ITERATIONS)
    # Threads add their parts of a sum in the order in which they end, and t-SNE amplifies its rounding.
    with threadpool_limits(1, user_api="openmp"):
        return made.fit_transform(points)


def _torchdr(points: Array, perplexity: float, seed: int, device: str) -> Any:
    try:
        from torchdr import TSNE
    except ImportError:
        raise FedscopeError(
            "the t-SNE backend torchdr is not installed; pip install 'fedscope[gpu]' (which takes torchdr), or use "
            "backend sklearn"
        ) from None
    made = TSNE(perplexity=perplexity, init="pca", random_state=seed, max_iter=ITERATIONS, device=device)
    return made.fit_transform(points.astype(np.float32))


BACKENDS: dict[str, Callable[[Array, float, int, str], Any]] = {"sklearn": _sklearn, "torchdr": _torchdr}
