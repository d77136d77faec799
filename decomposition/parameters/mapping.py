"""Many parameters of a round as points: each is the vector of its updates in the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Round
from ..dispersion.statistics import column_moments
from ..synergy.classes import mean_and_cv
from ..synergy.diagnosis import Criteria
from .embedding import FEWEST, backend_version, embed, refuse_backend
from .layers import layer_scales, start_of, updates
from .map_result import ParameterMap
from .places import place_of
from .reading import client_values
from .sampling import sample_columns

#: by backend: more points take too long on a processor, and too much of a GPU's memory (n² numbers)
MOST = {"sklearn": 20_000, "torchdr": 100_000}


def map_parameters(
    round_: Round,
    run: str,
    *,
    sample: int = 5000,
    perplexity: float = 30.0,
    seed: int = 0,
    backend: str = "sklearn",
    device: str = "cpu",
    attrs: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ParameterMap:
    """The t-SNE of a sample of a round's parameters, over its C clients.

    The point of a parameter is its vector of **client updates divided by its layer's**, [C]:
    (w_k − start)/s with s = √(mean over the layer's parameters and the clients of (w_k − start)²). Chosen, because of
    the raw values w_k the common part is hundreds of times longer than what clients do, so that their t-SNE is a thread
    ordered by the parameter's value; and because layers train at different scales, which would part the layers
    before anything else does. Parameters that the same clients move in the same way are neighbours.

    The sample is drawn as :func:`~fedscope.decomposition.parameters.sample_columns` says, in proportion to the layers
    with at least 20 of each. ``high`` marks FedSA's entries of high dispersion, (cv − min)/(max − min) > 0.2 over the
    whole layer, whatever the sample. One pass over the clients on disk, and one for the sampled columns.

    Args:
        run: its name in the result.
        sample: at most so many parameters, 4 to 20,000, to 100,000 with ``torchdr``.
        perplexity, seed, backend, device: see :func:`~fedscope.decomposition.parameters.embed`; the seed is also the
            sample's.
        progress: told the parameters seen and all of them.

    Raises:
        FedscopeError: ``sample`` out of range; a round without clients, with one, or without its ``start``; what
            ``embed`` refuses.
    """
    refuse_backend(backend)
    if not FEWEST <= sample <= MOST[backend]:
        raise FedscopeError(
            f"a sample of {sample:,} parameters is out of range for {backend}: take {FEWEST} to {MOST[backend]:,}"
        )
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{round_.label} has 1 client, so a parameter is one number and no vector; take a round with more clients"
        )
    start, layout, threshold = start_of(round_), round_.layout, Criteria().cv_threshold
    columns = sample_columns(layout, sample, seed)
    if perplexity >= len(columns):  # before the pass over the clients, not after it
        raise FedscopeError(
            f"perplexity {perplexity:g} does not fit {len(columns)} points: it must be below their number; give a "
            "smaller one, or a larger sample"
        )
    scales = layer_scales(round_, start, progress)
    values = client_values(round_, columns)
    moments, (_, cv) = column_moments(values), mean_and_cv(values)
    points = updates(values, start[columns])
    high = np.zeros(len(columns), np.bool_)
    layers, index = [], []
    for name, where in layout.slices.items():
        here = np.flatnonzero((where.start <= columns) & (columns < where.stop))
        if len(here):
            points[:, here] /= scales[name].update or 1.0  # a layer that no client moved
            high[here] = scales[name].high(cv[here], threshold)
        layers += [name] * len(here)
        index += [place_of(layout, name, int(i) - where.start).index for i in columns[here]]
    at = embed(np.ascontiguousarray(points.T), perplexity=perplexity, seed=seed, backend=backend, device=device)
    about = {
        "parameters": layout.size,
        "sample": sample,
        "perplexity": perplexity,
        "backend": backend,
        "backend_version": backend_version(backend),
        "seed": seed,
        "cv_threshold": threshold,
    }
    return ParameterMap(
        run,
        round_.number,
        len(values),
        tuple(layers),
        tuple(index),
        at,
        moments.cv,
        moments.skewness,
        high,
        {**dict(attrs or {}), **about},
    )
