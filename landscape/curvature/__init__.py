"""Curvature of the loss at a model: Hessian, worst and mean case of a ball, filter-normalised."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="sharpness",
    section="See losses in weight space",
    place=30,
    line="How sharp the loss is at models: eigenvalues, trace, rises.",
    answers=("Sharpness",),
    reports=(ReportSection("result:Sharpness", "Surfaces", 40, "How flat is the loss around the models?"),),
    how_to="sharpness",
    example="sharpness runs/fma@2 --no-hessian --split test",
)
