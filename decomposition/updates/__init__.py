"""Angles between the clients' updates of a round: the same way, across, or against each other."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="updates",
    section="Compare clients and models",
    place=20,
    line="Whether the clients' updates agree or cancel.",
    answers=("Updates", "LayerUpdates"),
    reports=(
        ReportSection("result:ClientUpdates", "Dispersion", 10, "Do the clients' updates cancel?"),
        ReportSection("layer_result:LayerUpdates", "Dispersion", 15, "In which layer do the clients' updates cancel?"),
    ),
    how_to="updates",
    example="updates runs/fma",
)
