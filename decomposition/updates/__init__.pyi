from .figure import draw_updates as draw_updates
from .result import COLUMNS as COLUMNS
from .result import ClientUpdates as ClientUpdates
from .result import Updates as Updates
from .round_updates import RoundUpdates as RoundUpdates
from .round_updates import geometry as geometry
from .round_updates import update_products as update_products
