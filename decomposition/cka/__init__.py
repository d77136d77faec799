"""Similarity of models: linear CKA of their outputs or layers, between clients, over rounds."""

from ...analysis.register import Analysis, ReportSection

ANALYSIS = Analysis(
    name="cka",
    section="Compare clients and models",
    place=10,
    line="How similar the outputs of models are (CKA).",
    answers=("ClientCKA", "ModelCKA"),
    reports=(
        ReportSection("result:ClientCKA", "Similarity", 10, "How similar are the clients' outputs?"),
        ReportSection("model_result:ModelCKA", "Similarity", 20, "How similar are the models' outputs?"),
    ),
    how_to="cka",
    example="cka runs/fma --rounds 2 --split test",
)
