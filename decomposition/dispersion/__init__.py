"""Differences between a round's clients, parameter by parameter: dispersion, skewness and its test, streamed from
disk."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="disperse",
    section="Compare clients and models",
    place=30,
    line="How clients differ: dispersion, skewness, maps of models.",
    answers=("Dispersion",),
    reports=(ReportSection("result:Dispersion", "Dispersion", 20, "Where do clients differ?"),),
    how_to="dispersion",
    example="disperse runs/fma --rounds 2",
)
