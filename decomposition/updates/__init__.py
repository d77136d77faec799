"""Angles between the clients' updates of a round: the same way, across, or against each other."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="updates",
    section="Compare clients and models",
    place=20,
    line="Whether the clients' updates agree or cancel.",
    answers=("Updates",),
    reports=(ReportSection("result:ClientUpdates", "Dispersion", 10, "Do the clients' updates cancel?"),),
    how_to="updates",
    example="updates runs/fma",
)
