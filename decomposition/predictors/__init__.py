"""What predicts that the mean of a round's clients is better than they are: numbers of updates and its gain."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="predictors",
    section="Ask why averaging works",
    place=57,
    line="What predicts that averaging helps.",
    answers=("Predictors",),
    reports=(ReportSection("result:Predictors", "Factors", 50, "What predicts that averaging helps?"),),
    how_to="merges",
    example="predictors runs/fma --rounds 1,2 --split test",
)
