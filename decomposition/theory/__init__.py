"""Lemma 1 and Theorem 2 of Zhou et al. on a recorded run: how far averaging weights is from averaging outputs, and
whether the discrepancy between data sets predicts the variance of a client."""

from .bounds import Bounds, ClientBound, Spread, client_bounds, mmd2, posterior_variance
from .correlations import Correlation, correlate
from .figure import draw_theory
from .gaps import Gap, Gaps
from .locality import locality_gaps
from .replayed import replay_variances
from .result import Theory
from .slopes import Slope, fit_slope, local_slopes
from .subsets import by_client, kernel_rows, refuse_outside
from .tangent import tangent_kernel

__all__ = [
    "Bounds",
    "ClientBound",
    "Correlation",
    "Gap",
    "Gaps",
    "Slope",
    "Spread",
    "Theory",
    "by_client",
    "client_bounds",
    "correlate",
    "draw_theory",
    "fit_slope",
    "kernel_rows",
    "local_slopes",
    "locality_gaps",
    "mmd2",
    "posterior_variance",
    "refuse_outside",
    "replay_variances",
    "tangent_kernel",
]
