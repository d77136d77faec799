"""Networks whose units lie in other orders: which may be permuted, which is which, and averages of them repaired."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="align",
    section="See losses in weight space",
    place=40,
    line="Bring the units of models into one order, and repair their average.",
    answers=("Alignment",),
    reports=(ReportSection("result:Alignment", "Surfaces", 38, "Do the models' units lie in one order?"),),
    how_to="soup",
    example="align runs/fma@1 runs/fma@2 --split test",
)
