"""Standard deviations as they are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def deviation_over(values: npt.ArrayLike, ddof: int = 1) -> Any:
    """Compute the standard deviation along the first axis; NaN of fewer than ``ddof`` + 1 values.

    Of equal numbers it is 0. numpy's is the rounding of their mean, 1e-14 of ten times 0.88, and was told as a spread.

    >>> bool(np.std([0.88] * 10, ddof=1)), float(deviation_over([0.88] * 10)), float(deviation_over([1.0, 3.0], 0))
    (True, 0.0, 1.0)
    """
    rows = np.asarray(values, np.float64)
    if len(rows) <= ddof:
        return np.full(rows.shape[1:], np.nan)[()]
    with np.errstate(invalid="ignore"):  # infinite values have no deviation
        return np.where(np.ptp(rows, axis=0) == 0, 0.0, rows.std(axis=0, ddof=ddof))[()]
