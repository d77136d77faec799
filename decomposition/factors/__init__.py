"""The factors of a loss, which add up to it: what is computed, its result and its figure."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="decompose",
    section="Ask why averaging works",
    place=20,
    line="Split the loss into bias, variance, covariance, locality.",
    answers=("Decomposition", "LayerDecomposition"),
    reports=(
        ReportSection("result:Decomposition", "Factors", 20, "What makes up the loss of the averaged model?"),
        ReportSection("layer_result:LayerDecomposition", "Factors", 25, "Which layer carries the locality?"),
    ),
    how_to="decomposition",
    example="decompose runs/fma --rounds 2 --draws local:2 --split test",
)
