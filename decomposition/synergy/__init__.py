"""Synergy, FedSA's diagnosis: the parameters clients disagree about, and the clients that disagree alike."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="synergy",
    section="Compare clients and models",
    place=50,
    line="Which parameters clients disagree about, and who agrees.",
    answers=("Synergy",),
    reports=(ReportSection("result:Synergy", "Dispersion", 60, "Which parameters do clients disagree about?"),),
    how_to="what-if",
    example="synergy runs/fma@2",
)
