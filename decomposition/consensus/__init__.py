"""Consensus of nodes without a server: how far apart their models are, before and after mixing, and what their mean
would be."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="consensus",
    section="Ask why averaging works",
    place=35,
    line="How far nodes' models are apart, and what their mean would be.",
    answers=("Consensus",),
    reports=(ReportSection("result:Consensus", "Factors", 35, "How far are the nodes apart, and would one mean do?"),),
    how_to="decentralised",
    example="consensus runs/fma --rounds 2 --split test",
)
