"""How curved the loss is at a model: Hessian, worst and mean case of a ball, filter-normalised."""

from .derivatives import Derivatives
from .figure import draw_sharpness
from .flatness import Ball, mean_rise, sam_step, worst_rise
from .hessian import Eigenvalue, eigenvalues, most_negative, spectral_density, trace
from .measures import sharpness
from .result import Curvature, Measure, Sharpness, Spectrum

__all__ = [
    "Ball",
    "Curvature",
    "Derivatives",
    "Eigenvalue",
    "Measure",
    "Sharpness",
    "Spectrum",
    "draw_sharpness",
    "eigenvalues",
    "mean_rise",
    "most_negative",
    "sam_step",
    "sharpness",
    "spectral_density",
    "trace",
    "worst_rise",
]
