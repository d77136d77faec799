"""Aggregation of a recorded cohort by another server method."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="reaggregate",
    section="Compare clients and models",
    place=60,
    line="What another server method would have made of a round.",
    answers=("Reaggregation",),
    reports=(ReportSection("result:Reaggregation", "Servers", 10, "What would another server have made of it?"),),
    how_to="what-if",
    example="reaggregate runs/fma@2 --server fedavgm",
)
