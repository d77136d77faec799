"""Means of LoRA adapters: how far a mean of factors is from the mean of what the adapters do."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="adapters",
    section="Ask why averaging works",
    place=57,
    line="Whether the mean of LoRA adapters is the mean of what they do.",
    answers=("AdapterMeans",),
    reports=(ReportSection("result:AdapterMeans", "Clients", 7, "Is the mean of the adapters the right one?"),),
    how_to="adapters",
    example="adapters runs/lora",
)
