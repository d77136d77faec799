"""Savitzky-Golay smoothing of what was measured over rounds."""

from __future__ import annotations

import numpy as np

#: the shortest window: three points lie on a parabola already
LEAST = 5


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """The value, at each round, of the parabola fitted to the ``window`` measured rounds about it (least squares).

    An odd window reaches as far back as ahead, and the result is scipy's ``savgol_filter`` with its usual ends: there
    the window stays within the run and the round moves off its middle. An even window of n rounds has n/2 rounds before
    the round and n/2 - 1 after it. scipy takes even windows too, but evaluates the parabola in the window's middle,
    half a round ahead of where it is drawn; here it is evaluated at the round itself, so a curve that is a parabola
    comes out unchanged.

    Args:
        values: [R], the measured rounds, equally far apart.
        window: 3 to R rounds.

    >>> np.allclose(smooth(np.arange(12.0) ** 2, 10), np.arange(12.0) ** 2)
    True
    """
    from scipy.signal import savgol_coeffs

    rounds = np.arange(len(values))
    first = np.clip(rounds - window // 2, 0, len(values) - window)
    at = {int(place): savgol_coeffs(window, 2, pos=int(place), use="dot") for place in np.unique(rounds - first)}
    with np.errstate(invalid="ignore"):  # an infinite loss is none
        return np.array([at[int(i - s)] @ values[s : s + window] for i, s in zip(rounds, first, strict=True)])
