"""Single parameters over the clients of a round: densities, and a map of many of them."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="parameters",
    section="Compare clients and models",
    place=40,
    line="Single parameters across the clients of a round.",
    answers=("Parameters", "ParameterMap"),
    reports=(
        ReportSection("result:Parameters", "Dispersion", 40, "How do single parameters vary over clients?"),
        ReportSection("result:ParameterMap", "Dispersion", 50, "Which parameters vary alike?"),
    ),
    how_to="parameters",
    example="parameters runs/fma --round 2",
)
