"""How clients' updates of a round lie to each other: the same way, across, or against each other."""

# the question
from .figure import draw_updates
from .geometry import RoundUpdates, geometry
from .products import update_products

# the answers
from .result import COLUMNS, ClientUpdates, Updates

__all__ = [
    "COLUMNS",
    "ClientUpdates",
    "RoundUpdates",
    "Updates",
    "draw_updates",
    "geometry",
    "update_products",
]
