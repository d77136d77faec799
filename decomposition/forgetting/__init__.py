"""Gains of local training on a client's own data and losses on the others', by client and class."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="forgetting",
    section="Ask why averaging works",
    place=50,
    line="What clients gain on their own data and lose on others'.",
    answers=("Forgetting",),
    reports=(ReportSection("result:Forgetting", "Clients", 10, "What do clients forget?"),),
    how_to="forgetting",
    example="forgetting runs/fma --rounds 2 --split test",
)
