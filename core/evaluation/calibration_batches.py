"""The batches on which normalization statistics are re-estimated: drawn at random, the same ones every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: samples over which one batch's statistics are taken, about; the batches' are averaged
BATCH = 500
#: of the order of samples
SEED = 0


def calibration_batches(count: int) -> list[npt.NDArray[np.intp]]:
    """Deal ``count`` samples out to batches of nearly equal size, by their places; one batch holds them in order.

    A layer normalises a batch by its own statistics, in training, too, where a batch is a random one. In the order of a
    file that is sorted by class the variance of a batch would be that within a class, so samples are drawn.

    >>> [len(batch) for batch in calibration_batches(1201)], calibration_batches(3)[0].tolist()
    ([401, 400, 400], [0, 1, 2])
    """
    batches = max(1, -(-count // BATCH))
    order = np.arange(count) if batches == 1 else np.random.default_rng(SEED).permutation(count)
    return np.array_split(order, batches)


def batches_settings(count: int) -> dict[str, Any]:
    """Describe the batches for a result's provenance, where there are several: an earlier version took samples in the
    order of the data.

    >>> batches_settings(500), batches_settings(2000)
    ({}, {'calibration_batches': 'drawn'})
    """
    return {"calibration_batches": "drawn"} if count > BATCH else {}
