"""Models on a map: t-SNE and PCA of clients of any rounds and runs, from exact distances."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="embed",
    section="Compare clients and models",
    place=35,
    line="",
    answers=("Embedding",),
    reports=(ReportSection("result:Embedding", "Dispersion", 30, "Where are the models relative to each other?"),),
    how_to="embedding",
    example="disperse runs/fma --embed pca",
)
