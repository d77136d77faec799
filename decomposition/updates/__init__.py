"""How clients' updates of a round lie to each other: the same way, across, or against each other."""

# the question
from .figure import draw_updates
from .geometry import geometry
from .products import update_products

# the answers
from .result import ClientUpdates, RoundUpdates
from .tables import COLUMNS, write_table
from .words import as_numbers, sentence

__all__ = [
    "COLUMNS",
    "ClientUpdates",
    "RoundUpdates",
    "as_numbers",
    "draw_updates",
    "geometry",
    "sentence",
    "update_products",
    "write_table",
]
