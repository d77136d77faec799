"""Means of the last W global models of a recorded run, for windows that it was not trained with; and of checkpoints."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="wima",
    section="Ask why averaging works",
    place=40,
    line="How many rounds an average needs: WIMA's window.",
    answers=("WindowMeans", "CheckpointWindows"),
    reports=(
        ReportSection("result:WindowMeans", "Factors", 40, "How many rounds does the average need?"),
        ReportSection("checkpoint_result:CheckpointWindows", "Factors", 45, "Which checkpoints, with which weights?"),
    ),
    how_to="wima",
    example="wima runs/fma --windows 2 --split test",
)
