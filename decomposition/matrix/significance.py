"""Whether a paired difference over a client's samples is more than chance, where samples may be few."""

from __future__ import annotations

import math

#: the level of a test
LEVEL = 0.05


def is_sure(samples: int, mean: float, stderr: float | None, *, of_errors: bool) -> bool:
    """Tell whether a mean of paired differences is more than two standard errors from 0, and more than chance.

    Few samples have a standard error that says little: of two that agree it is 0. So a test has to reject, too, at 5 %
    and on both sides. Of errors, whose differences are −1, 0 and 1, it is McNemar's exact one: of the m samples on
    which one model alone is wrong, k or fewer go against the majority with the probability 2 Σ_{j<=k} C(m, j) / 2^m.
    Both counts follow from the mean and its standard error. Of losses, and of errors that are shares or are weighted,
    it is Student's t with n − 1 degrees of freedom; where their standard error is 0 nothing is sure.

    Args:
        samples: n.
        mean: of the differences; stderr: its standard error over samples, None where it has none.
        of_errors: whether the differences are of errors.

    >>> is_sure(2, -1.0, 0.0, of_errors=True), is_sure(6, -1.0, 0.0, of_errors=True)
    (False, True)
    >>> is_sure(4, -0.75, 0.25, of_errors=True), is_sure(4, -0.75, 0.25, of_errors=False)
    (False, False)
    """
    if stderr is None or not (math.isfinite(mean) and math.isfinite(stderr)) or not abs(mean) > 2 * stderr:
        return False
    counts = discordant(samples, mean, stderr) if of_errors else None
    if counts is not None:
        from scipy.stats import binom

        return bool(2 * binom.cdf(min(counts), sum(counts), 0.5) <= LEVEL)
    if samples < 2 or stderr == 0:
        return False
    from scipy.stats import t

    return bool(abs(mean) > t.ppf(1 - LEVEL / 2, samples - 1) * stderr)


def discordant(samples: int, mean: float, stderr: float) -> tuple[int, int] | None:
    """Count the differences of 1 and of −1 among n of −1, 0 and 1; None where they are other numbers.

    With s² = Σ (d − mean)² / (n (n − 1)), Σ d = n mean and Σ d² = n (n − 1) s² + n mean².

    >>> discordant(4, -0.25, (11 / 48) ** 0.5)  # of −1, −1, 1, 0
    (1, 2)
    """
    total, squares = samples * mean, samples * (samples - 1) * stderr**2 + samples * mean**2
    up, down = (squares + total) / 2, (squares - total) / 2
    counts = round(up), round(down)
    near = 1e-6 * max(1.0, squares)
    if min(counts) < 0 or sum(counts) > samples or abs(up - counts[0]) > near or abs(down - counts[1]) > near:
        return None
    return counts
