"""One command of every result, for the tests that walk all questions."""

from __future__ import annotations

# One command of every result, with --out m and each file that it would write there beside its main one.
ASKED = {
    "curves": ("curves runs/fma", "curves.csv pdf png"),
    "curves-target": ("curves runs/fma --measure test_accuracy --target 0.3", "curves.csv pdf png"),
    "data": ("data runs/fma", "counts.csv pdf samples.pdf"),
    "line": ("line runs/fma@1 runs/fma@2 --points 3 --split test", "pdf png"),
    "line-clients": ("line runs/fma@2 --clients --points 3 --split test", "pdf png"),
    "plane": ("plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split test", "pdf png html basin.csv"),
    "planes": ("plane runs/fma --rounds 1,2 --grid 5 --split test", "pdf png"),
    "plane-both": ("plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split both", "both.pdf both.png"),
    "sharpness": ("sharpness runs/fma@2 --no-hessian --split test", "sharpness.csv pdf png"),
    "decompose": ("decompose runs/fma --rounds 2 --draws local:2 --split test", "factors.csv clients.csv pdf png"),
    "explain": ("explain runs/fma --rounds 2 --draws local:2 --split test", "factors.csv explain.json md pdf html"),
    "cka": ("cka runs/fma --rounds 2 --split test", "pdf png"),
    "cka-models": ("cka runs/fma@1 runs/fma@2 --split test", "pdf png"),
    "subsets": ("subsets runs/fma --rounds 2 --split test", "subsets.csv pdf png"),
    "wima": ("wima runs/fma --windows 2 --split test", "wima.csv pdf png"),
    "forgetting": ("forgetting runs/fma --rounds 2 --split test", "pdf png"),
    "theory": ("theory runs/fma --rounds 2 --split test --kernel-samples 60 --dimension 64", "theory.csv pdf png"),
    "disperse": ("disperse runs/fma --rounds 2", "dispersion.csv layers.pdf pdf png"),
    "embed": ("disperse runs/fma --embed pca", "embedding.csv embedding.pdf embedding.html"),
    "parameters": ("parameters runs/fma --round 2", "parameters.csv pdf png"),
    "parameters-tsne": (
        "parameters runs/fma --round 2 --tsne --sample 40",
        "parameters-tsne.csv pdf png",
    ),
    "updates": ("updates runs/fma", "updates.csv pdf png"),
    "synergy": ("synergy runs/fma@2", "pdf png"),
    "reaggregate": ("reaggregate runs/fma@2 --server fedavgm", "safetensors reaggregate.csv"),
}
