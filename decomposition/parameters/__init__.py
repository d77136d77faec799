"""Single parameters over the clients of a round: densities, and a map of many of them."""

from .choosing import most_skewed
from .density import Density, density_of, mode_of
from .embedding import embed
from .map_result import ParameterMap
from .mapping import map_parameters
from .places import Place, parse_place, place_of
from .reading import RunValues, client_values, read_values, refuse_other_layout, same_starts
from .reference import Reference, refer
from .result import Parameters
from .sampling import sample_columns, sample_counts
from .summaries import Summary, summarise

__all__ = [
    "Density",
    "ParameterMap",
    "Parameters",
    "Place",
    "Reference",
    "RunValues",
    "Summary",
    "client_values",
    "density_of",
    "embed",
    "map_parameters",
    "mode_of",
    "most_skewed",
    "parse_place",
    "place_of",
    "read_values",
    "refer",
    "refuse_other_layout",
    "same_starts",
    "sample_columns",
    "sample_counts",
    "summarise",
]
