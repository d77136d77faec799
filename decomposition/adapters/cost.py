"""What averaging the factors of adapters costs: losses of the mean of factors and of the mean of products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isnan

import numpy as np
from torch import nn

from ...checkpoints import Round, Weights, weighted_mean
from ...checkpoints.models.products import Adapters
from ...evaluation.device import Compute
from ...evaluation.samples import Samples
from ..matrix.losses import losses_at
from .means import RoundAdapterMeans, means_of
from .recorded_adapters import factors_of


def with_cost(
    found: RoundAdapterMeans,
    round_: Round,
    adapters: Adapters,
    module: nn.Module,
    samples: Samples,
    compute: Compute,
    progress: Callable[[int, int], None] | None = None,
) -> RoundAdapterMeans:
    """Add the cost of averaging factors to a round's last row, see
    :class:`~fedscope.decomposition.adapters.means.LayerMeans`.

    Both models are measured on the same samples in one pass, so that the interval is one of their difference.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    models = mean_models(round_, adapters)
    _, _, gain = losses_at(
        module,
        samples,
        [models["factors"], models["products"]],
        None,
        [(0, 1, 0)],
        number=round_.number,
        compute=compute,
        progress=progress,
    )
    numbers = [float(values[0]) for values in (gain.loss, gain.loss_stderr, gain.error, gain.error_stderr)]
    loss, loss_stderr, error, error_stderr = (None if isnan(value) else value for value in numbers)
    whole = replace(
        found.cells[-1], cost=loss, cost_stderr=loss_stderr, error_cost=error, error_cost_stderr=error_stderr
    )
    return RoundAdapterMeans((*found.cells[:-1], whole))


def mean_models(round_: Round, adapters: Adapters) -> dict[str, Weights]:
    """Return the models whose adapters are the means of a round's, by the kind of mean; all else is Σ p_i w_i.

    Raises:
        FedscopeError: the round has no clients.
    """
    p = np.asarray(round_.weights, np.float64)
    mean = weighted_mean(round_.clients(), p)
    start, layout = "start" in round_.models, round_.layout
    made: dict[str, np.ndarray] = {}
    for product in adapters.products:
        sent = factors_of(round_, product, "start") if start else None
        own = factors_of(round_, product)[p > 0]  # a client of weight 0 may have diverged
        for name, (b, a) in means_of(own, p[p > 0], product.rank, sent):
            row = made.setdefault(name, mean.parameters.copy())
            product.put(row, layout.slices, a, b / product.scale)
    return {name: Weights(layout, row, mean.buffers) for name, row in made.items()}
