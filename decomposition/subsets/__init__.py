"""Number of models that an average needs: averages of subsets of a round's clients."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="subsets",
    section="Ask why averaging works",
    place=30,
    line="How many models an average needs.",
    answers=("Subsets",),
    reports=(ReportSection("result:Subsets", "Factors", 30, "How many models does the average need?"),),
    how_to="subsets",
    example="subsets runs/fma --rounds 2 --split test",
)
