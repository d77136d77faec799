"""Losses on planes: what spans them, how they are surveyed, their result, figures and pages."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="plane",
    section="See losses in weight space",
    place=20,
    line="Losses on the plane through three models, or near many.",
    answers=("Plane", "Planes"),
    reports=(ReportSection("result:Plane", "Surfaces", 10, "Where are the models on the loss surface?"),),
    how_to="landscape",
    example="plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split test",
)
