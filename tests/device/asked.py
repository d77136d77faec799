"""What is asked of the device beside the questions that a GPU is asked: every command that takes a device, each with
its words, as :mod:`gpu.questions` has them."""

from __future__ import annotations

import importlib.util

from gpu.questions import LIMIT, QUESTIONS

#: those that write a result under ``--out``, and how far numbers may be apart, as a share of a column's greatest
WRITTEN: dict[str, tuple[str, float]] = {
    **QUESTIONS,
    "plane-adaptive": (f"plane r@2/global r@3/global r@4/global --grid 9 --adaptive {LIMIT}", 1e-5),
    "plane-clients-data": (f"plane r@4/global --random --grid 5 --data-of 0,1 {LIMIT}", 1e-5),
    "decompose-cross-entropy": (f"decompose r --rounds 4 --draws local:2 --loss cross-entropy {LIMIT}", 1e-3),
    "cka-layer": (f"cka r --rounds 4 --layer fc1 --estimator biased {LIMIT}", 1e-4),
    "align": (f"align r@4/global r@2/global {LIMIT}", 1e-4),
    "wima-checkpoints": (f"wima r@4 --checkpoints {LIMIT}", 1e-4),
    "predictors": (f"predictors r --rounds 2,4 {LIMIT}", 1e-4),
    "reaggregate-probing": (f"reaggregate r@4 --server fisher --server regmean {LIMIT}", 1e-3),
    "disperse": ("disperse r --rounds 2,4", 1e-5),
    "tsne": ("disperse r --rounds 2,4 --embed tsne", 1e-3),
    "parameters": ("parameters r --tsne --sample 200", 1e-5),
}
if importlib.util.find_spec("curvlinops") is not None:
    WRITTEN["sharpness-density"] = (f"sharpness r@4/global --density 8 {LIMIT}", 1e-3)
if importlib.util.find_spec("torchdr") is not None:
    WRITTEN["parameters-torchdr"] = ("parameters r --tsne --sample 200 --backend torchdr", 1e-3)

#: commands that write elsewhere, or nothing
OTHERS = {
    "train": "train --method fma --clients 6 --participation 0.5 --rounds 2 --epochs 1 --set model.hidden=[16]",
    "bench": "bench --model mlp --seconds 0.01 --json",
    "measure": "measure own --force --json",
    "adapters": "adapters lora --cost --json",
}
