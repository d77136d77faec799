"""Losses between two models: points, result, figures."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="line",
    section="See losses in weight space",
    place=10,
    line="Losses between two models, or between all pairs of clients.",
    answers=("Line", "Connectivity", "LayerLine", "LayerRounds"),
    reports=(
        ReportSection("result:Line", "Surfaces", 20, "What is the loss between two models?"),
        ReportSection("result:Connectivity", "Surfaces", 30, "What is the loss between the clients?"),
        ReportSection("layer_result:LayerLine", "Surfaces", 35, "Which layer carries the barrier?"),
        ReportSection("rounds_result:LayerRounds", "Surfaces", 36, "Which layer carries the barrier, over rounds?"),
    ),
    how_to="landscape",
    example="line runs/fma@1 runs/fma@2 --points 3 --split test",
)
