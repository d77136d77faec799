"""Every model of a round on every client's data: losses by model and place, and what the average gains each client."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="matrix",
    section="Ask why averaging works",
    place=55,
    line="Every model of a round on every client's data.",
    answers=("Matrix",),
    reports=(ReportSection("result:Matrix", "Clients", 5, "For how many clients is the average worse at home?"),),
    how_to="matrix",
    example="matrix runs/fma --rounds 2 --split test",
)
