"""How a round's clients differ, parameter by parameter: dispersion, skewness and its test, streamed from disk."""

from .dispersing import count_clients, disperse_round, refuse_rate
from .maps import map_layer
from .moments import Moments, column_moments
from .records import WHOLE, Cells, LayerDispersion, LayerMap, RoundDispersion, SkewHistogram
from .result import Dispersion
from .skew_test import FEWEST, count_rejections, critical_skewness, skewness_p_values

__all__ = [
    "FEWEST",
    "WHOLE",
    "Cells",
    "Dispersion",
    "LayerDispersion",
    "LayerMap",
    "Moments",
    "RoundDispersion",
    "SkewHistogram",
    "column_moments",
    "count_clients",
    "count_rejections",
    "critical_skewness",
    "disperse_round",
    "map_layer",
    "refuse_rate",
    "skewness_p_values",
]
