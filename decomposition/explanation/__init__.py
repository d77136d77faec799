"""A decomposition in sentences: which factor dominates in which phase, and where the data do not decide."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="explain",
    section="Ask why averaging works",
    place=10,
    line="One page: what makes up the loss in each phase.",
    answers=("Explanation",),
    reports=(ReportSection("result:Explanation", "Factors", 10, "What makes up the loss of the averaged model?"),),
    how_to="explain",
    example="explain runs/fma --rounds 2 --draws local:2 --split test",
)
