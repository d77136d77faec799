"""Random directions in weight space, scaled filter by filter as the model is."""

from __future__ import annotations

import numpy as np

from ...checkpoints import Layout, Weights


def gaussian_direction(layout: Layout, seed: int, number: int = 0) -> np.ndarray:
    """A standard normal direction d, float64 [P]; direction ``number`` of ``seed`` is the same in every program.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 1))
    >>> gaussian_direction(layout, 0).shape, gaussian_direction(layout, 0)[0] == gaussian_direction(layout, 1)[0]
    ((3,), np.False_)
    """
    return np.random.default_rng([seed, number]).standard_normal(layout.size)


def filter_normalised(direction: np.ndarray, model: Weights) -> np.ndarray:
    """The direction with every filter as long as the model's own: d_f <- d_f ‖w_f‖ / ‖d_f‖, float64 [P].

    A filter is a row of a parameter's first dimension: an output channel's kernel, an output's incoming weights.
    Parameters of one dimension (biases, scales and shifts of normalization layers) get 0: a change of scale between
    layers, which leaves the function as it is, then leaves the surface as it is too. A filter of zeros stays zero.

    Source: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018, section 4.

    >>> import torch
    >>> layout = Layout.of(torch.nn.Linear(2, 2))
    >>> w = Weights(layout, np.array([3.0, 4.0, 0.0, 2.0, 7.0, 7.0], np.float32), {})
    >>> filter_normalised(np.array([1.0, 0.0, 0.0, -5.0, 1.0, 1.0]), w).tolist()
    [5.0, 0.0, 0.0, -2.0, 0.0, 0.0]
    """
    scaled = np.zeros(model.layout.size)
    for entry in model.layout.parameters:
        shape, where = entry.shape, model.layout.slices[entry.name]
        if len(shape) < 2:
            continue
        own = model.parameters[where].reshape(shape[0], -1).astype(np.float64)
        rows = direction[where].reshape(shape[0], -1)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(length > 0, np.linalg.norm(own, axis=1, keepdims=True) / length, 0.0)
        scaled[where] = (rows * factor).ravel()
    return scaled
