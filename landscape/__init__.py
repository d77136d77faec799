"""Losses in weight space: the evaluator, lines, planes and what lies in them."""

# the data and the hot loop
from .basins import Basin, BasinModel, basin_of
from .betas import barrier_of, betas_on
from .connectivity import connectivity
from .connectivity_figure import draw_connectivity
from .curvature import Curvature, Sharpness, sharpness
from .evaluator import Evaluator
from .garipov import read_plane
from .geometry import Basis
from .goldstein import read_surface, write_surface
from .line_figure import draw_line
from .lines import Line, line
from .options import Options, SoFar
from .paper import COLOURS, DASHES, GREY, MARKERS, new_figure, paper_style, save_figure, shortened
from .plane_figure import draw_panels, draw_plane
from .planes import Plane, PlaneModel
from .replica import Replica
from .samples import Samples
from .spans import Span, along_trajectory, near_clients, random_directions, through_models
from .surveying import plane, survey
from .tasks import Classification, Regression, Sequences, Task
from .workers import cores, run_in_workers

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "MARKERS",
    "Basin",
    "BasinModel",
    "Basis",
    "Classification",
    "Curvature",
    "Evaluator",
    "Line",
    "Options",
    "Plane",
    "PlaneModel",
    "Regression",
    "Replica",
    "Samples",
    "Sequences",
    "Sharpness",
    "SoFar",
    "Span",
    "Task",
    "along_trajectory",
    "barrier_of",
    "basin_of",
    "betas_on",
    "connectivity",
    "cores",
    "draw_connectivity",
    "draw_line",
    "draw_panels",
    "draw_plane",
    "line",
    "near_clients",
    "new_figure",
    "paper_style",
    "plane",
    "random_directions",
    "read_plane",
    "read_surface",
    "run_in_workers",
    "save_figure",
    "sharpness",
    "shortened",
    "survey",
    "through_models",
    "write_surface",
]
