from .figure import draw_updates as draw_updates
from .products import update_products as update_products
from .result import COLUMNS as COLUMNS
from .result import ClientUpdates as ClientUpdates
from .result import Updates as Updates
from .round_geometry import RoundUpdates as RoundUpdates
from .round_geometry import geometry as geometry
