"""Lemma 1 and Theorem 2 of Zhou et al. on a recorded run: how far averaging weights is from averaging outputs, and
whether the discrepancy between data sets predicts the variance of a client."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="theory",
    section="Ask why averaging works",
    place=60,
    line="Whether Lemma 1 and Theorem 2 hold in a run.",
    answers=("Theory",),
    reports=(ReportSection("result:Theory", "Factors", 50, "Do Lemma 1 and Theorem 2 hold?"),),
    how_to="theory",
    example="theory runs/fma --rounds 2 --split test --kernel-samples 60 --dimension 64",
)
