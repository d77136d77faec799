"""A federation before anything is trained: who holds which samples."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="data",
    section="Train and look around",
    place=20,
    line="What a federation looks like before it is trained.",
    answers=("ClientData",),
    reports=(ReportSection("result:ClientData", "Clients", 20, "Which data do clients have?"),),
    how_to="",
    example="data runs/fma",
)
