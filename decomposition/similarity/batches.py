"""Which samples are taken together: the same minibatches for every model."""

from __future__ import annotations

import numpy as np

from ...checkpoints import FedscopeError
from .estimators import LEAST, Estimator


def usual_batch(samples: int) -> int:
    """256 samples, or an eighth of them where that is less, so that a standard error has seven degrees of freedom; at
    least 32, because HSIC of a few samples is noise.

    >>> [usual_batch(samples) for samples in (10_000, 360, 50)]
    [256, 45, 32]
    """
    return min(256, max(32, samples // 8))


def minibatches(samples: int, batch: int, seed: int, estimator: Estimator = "unbiased") -> list[np.ndarray]:
    """The samples 0..n-1, shuffled once and cut into minibatches of at most ``batch``, as equal as they can be.

    Equal ones, because all count alike in the average: a last batch of a few samples would bring in more noise than it
    holds. Only where they would fall below what the estimator needs they are fewer and larger.

    Raises:
        FedscopeError: fewer samples, or smaller batches, than the estimator needs.

    >>> [len(rows) for rows in minibatches(600, 256, seed=0)]
    [200, 200, 200]
    """
    least = LEAST[estimator]
    remedy = "give more (--limit, --batch)" + ("" if estimator == "biased" else ", or take --estimator biased")
    for what, count in ((f"{samples} in all", samples), (f"batches of {batch}", batch)):
        if count < least:
            raise FedscopeError(f"the {estimator} estimator of HSIC needs {least} samples, not {what}; {remedy}")
    count = min(-(-samples // batch), samples // least)
    return np.array_split(np.random.default_rng(seed).permutation(samples), count)
