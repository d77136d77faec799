"""What t-SNE minimises, over all pairs of models."""

from __future__ import annotations

import math

import numpy as np

from .products import Array

# Halvings of the interval in which a model's width is looked for, which begins at e^±40 times the middle.
HALVINGS, WIDEST = 60, 40.0


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
    made = np.zeros((n, n))
    made[~np.eye(n, dtype=bool)] = (p / total).ravel()
    return made
