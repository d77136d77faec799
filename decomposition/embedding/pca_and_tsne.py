"""Two coordinates a model, from the Gram matrix: classical scaling (PCA) and t-SNE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ...checkpoints import FedscopeError
from ...old_paths import names_of
from .gram import Array, Gram, distances, spreads
from .result import Embedding, Method
from .shown_models import Point

METHODS: tuple[str, ...] = get_args(Method)

# Of the points that t-SNE begins with, sklearn's convention: so near each other that they can still go anywhere.
SPREAD_AT_START = 1e-4
# Up to so many models every pair is taken into account, beyond only a model's neighbours (Barnes-Hut).
EXACT = 1000
# Neighbours that a map is judged by.
NEIGHBOURS = 5
# Halvings of the interval in which a model's width is looked for, which begins at e^±40 times the middle.
HALVINGS, WIDEST = 60, 40.0


def project(
    gram: Gram,
    method: str = "tsne",
    *,
    perplexity: float | None = None,
    seed: int = 0,
    provenance: Mapping[str, Any] | None = None,
) -> Embedding:
    """Models on a map whose distances are, as far as two dimensions allow, those of the Gram matrix.

    ``pca``: the two directions in which the models differ most, in their L2 distance; ``tsne``: near models near each
    other, whatever becomes of far ones. Models that equal each other are one point to t-SNE.

    Args:
        perplexity: of t-SNE; by default the lesser of 30 and a third of the models.
        seed: of t-SNE, see :func:`~fedscope.decomposition.embedding.pca_and_tsne.t_sne`.
        provenance: goes into ``attrs``.

    Raises:
        FedscopeError: fewer than three different models; a perplexity that is not less than their number; an unknown
            method.
    """
    known = known_method(method)
    refuse_few(gram.points)
    first = (distances(gram) == 0).argmax(axis=1)  # the first model that each one equals, itself if there is none
    kept = np.unique(first)
    if len(kept) == 1:
        raise FedscopeError(
            f"all {len(first)} models are the same in what is compared: every distance is 0, so there is nothing to "
            "map; ask for later rounds, or other layers"
        )
    apart = Gram(tuple(gram.points[i] for i in kept), gram.matrix[np.ix_(kept, kept)], gram.layers)
    refuse_few(apart.points, different=True)
    measured: dict[str, Any] = {}
    if known == "pca":
        places, measured["explained"] = principal(gram)
    else:
        measured["perplexity"] = settled_perplexity(len(kept), perplexity)
        places, measured["kl_divergence"] = t_sne(apart, measured["perplexity"], seed)
        places = places[np.searchsorted(kept, first)]
    trusted, neighbours = trustworthiness(apart, places[kept])
    attrs = {"layers": list(gram.layers), "seed": seed, **dict(provenance or {})}
    return Embedding(gram.points, places, known, trusted, neighbours, spreads(gram), **measured, attrs=attrs)


def refuse_few(points: tuple[Point, ...], *, different: bool = False) -> None:
    """Refuse what is no map.

    Raises:
        FedscopeError: fewer than three models.
    """
    if len(points) < 3:
        names = ", ".join(point.label for point in points)
        raise FedscopeError(
            f"a map needs three {'different ' if different else ''}models at least, not {len(points)} ({names}); ask "
            "for more rounds"
        )


def known_method(method: str) -> Method:
    """Return the method, if it is one.

    Raises:
        FedscopeError: it is neither tsne nor pca.
    """
    if method not in METHODS:
        raise FedscopeError(f"a map by {method!r} is not known; take one of {', '.join(METHODS)}")
    return "tsne" if method == "tsne" else "pca"


def settled_perplexity(models: int, perplexity: float | None) -> float:
    """Return the perplexity of t-SNE, about how many neighbours a model has: by default the lesser of 30 and (n − 1)/3.

    Raises:
        FedscopeError: less than 1; as many as there are models, or more.

    >>> settled_perplexity(13, None)
    4.0
    """
    default = max(1.0, min(30.0, (models - 1) / 3))
    if perplexity is None:
        return default
    if not 1 <= perplexity < models:  # NaN too
        raise FedscopeError(
            f"perplexity {perplexity:g} is about how many neighbours each of {models:,} different models has, so it "
            f"must be at least 1 and less than {models:,}; give {default:.3g}, or more rounds"
        )
    return float(perplexity)


def principal(gram: Gram) -> tuple[Array, tuple[float, float]]:
    """Classical scaling: the first two principal components of the models, and their shares of the variance.

    With H = 1 − 11ᵀ/n and H G H = V Λ Vᵀ the coordinates are v_1 √λ_1 and v_2 √λ_2 [n, 2], L2 distances about the mean
    of the models, and the shares λ_1 / Σ λ and λ_2 / Σ λ. It is the PCA of the matrix [n, P], which is never there.
    The greatest coordinate of each component is positive.
    """
    from scipy.linalg import eigh

    n = len(gram.matrix)
    centred = gram.matrix - gram.matrix.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = eigh(centred, subset_by_index=[n - 2, n - 1])
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    greatest = vectors[np.abs(vectors).argmax(axis=0), [0, 1]]
    shares = values / np.trace(centred)
    return vectors * np.where(greatest < 0, -1.0, 1.0) * np.sqrt(values), (float(shares[0]), float(shares[1]))


def t_sne(gram: Gram, perplexity: float, seed: int) -> tuple[Array, float]:
    """scikit-learn's t-SNE of the distances, begun at the principal components: coordinates [n, 2], and the
    Kullback-Leibler divergence that is left (:func:`~fedscope.decomposition.embedding.pca_and_tsne.divergence`, nats).

    The same numbers every time, because it runs in one thread: sums over threads would come in any order. Nothing is
    drawn where the beginning is given, so that every seed makes one map.

    van der Maaten and Hinton, "Visualizing Data using t-SNE", JMLR 2008.
    """
    start, _ = principal(gram)
    start *= SPREAD_AT_START / start[:, 0].std()
    method = "exact" if len(start) <= EXACT else "barnes_hut"
    # distances as they are: it squares them itself, in place
    how = {"metric": "precomputed", "init": start.astype(np.float32), "method": method}
    places = fit_t_sne(distances(gram), perplexity, seed, **how)
    return places, divergence(distances(gram), places, perplexity)


def fit_t_sne(values: Array, perplexity: float, seed: int, **how: Any) -> Array:
    """scikit-learn's t-SNE of points [n, d] or of distances [n, n], in 1000 steps and one thread: coordinates [n, 2].

    Threads add their parts of a sum in the order in which they end, and t-SNE amplifies the rounding.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    map_ = TSNE(perplexity=perplexity, random_state=seed % 2**32, max_iter=1000, **how)
    with threadpool_limits(1):
        return np.asarray(map_.fit_transform(values), np.float64)


def trustworthiness(gram: Gram, places: Array) -> tuple[float, int]:
    """Measure how far neighbours on a map are neighbours in truth, and how many of each were asked.

        1 − 2/(n k (2n − 3k − 1)) Σ_i Σ_{j among i's k nearest on the map} max(0, rank of d_ij among i's distances − k)

    1 where all are; k is 5, and less than n/2 where models are few. Venna and Kaski, "Neighborhood preservation in
    nonlinear projection methods", ICANN 2001.
    """
    from sklearn.manifold import trustworthiness

    k = min(NEIGHBOURS, math.ceil(len(places) / 2) - 1)
    return float(trustworthiness(distances(gram), places, n_neighbors=k, metric="precomputed")), k


def divergence(distances: Array, places: Array, perplexity: float) -> float:
    """KL(P‖Q) = Σ_{i≠j} p_ij ln(p_ij / q_ij) in nats, of distances [n, n] and places on a map [n, 2].

    p_ij = (p_j|i + p_i|j) / 2n with p_j|i ∝ exp(−β_i d_ij²), β_i such that the entropy of p_.|i is ln(perplexity);
    q_ij ∝ 1 / (1 + ‖y_i − y_j‖²). scikit-learn's own number is that only where it takes all pairs into account; from
    neighbours alone it is rough, and negative where models coincide.
    """
    p = _shares(distances**2, math.log(perplexity))
    p = (p + p.T) / (2 * len(p))
    q = 1 / (1 + np.square(places[:, None] - places[None]).sum(axis=2))
    np.fill_diagonal(q, 0.0)
    q /= q.sum()
    there = p > 0
    return float((p[there] * np.log(p[there] / q[there])).sum())


def _shares(squared: Array, entropy: float) -> Array:
    """p_j|i as rows, 0 on the diagonal."""
    n = len(squared)
    others = squared[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    others = others - others.min(axis=1, keepdims=True)
    scale = others.mean(axis=1, keepdims=True)
    others /= np.where(scale > 0, scale, 1.0)
    low, high = np.full((n, 1), -WIDEST), np.full((n, 1), WIDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        p = np.exp(-np.exp(middle) * others)
        total = p.sum(axis=1, keepdims=True)
        # H = ln Σ e^(−β d²) + β Σ d² p, which falls with β
        wide = np.log(total) + np.exp(middle) * (p * others).sum(axis=1, keepdims=True) / total > entropy
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    shares = np.zeros((n, n))
    shares[~np.eye(n, dtype=bool)] = (p / total).ravel()
    return shares


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
