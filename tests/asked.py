"""One command of every result, for the tests that walk all questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fedscope
from fedscope.analysis.register import Analysis, analyses

# further questions of an analysis, with --out m and each file that it would write there beside its main one
MORE = {
    "curves-target": ("curves runs/fma --measure test_accuracy --target 0.3", "curves.csv pdf png"),
    "line-clients": ("line runs/fma@2 --clients --points 3 --split test", "pdf png"),
    "line-layers": ("line runs/fma@1 runs/fma@2 --layers each --points 3 --split test", "pdf png"),
    "line-rounds": ("line runs/fma --layers each --rounds 1,2 --points 3 --split test", "line-layers.csv pdf png"),
    "sharpness-layers": ("sharpness runs/fma@2 --layers each --no-hessian --split test", "sharpness.csv pdf png"),
    "decompose-layers": (
        "decompose runs/fma --rounds 2 --draws local:2 --split test --layers each",
        "factors-layers.csv pdf png",
    ),
    "planes": ("plane runs/fma --rounds 1,2 --grid 5 --split test", "pdf png"),
    "plane-both": ("plane runs/fma@1 runs/fma@2 runs/fma@2/client-0 --grid 5 --split both", "both.pdf both.png"),
    "plane-same-axes": ("plane runs/fma@1 runs/fma@2 --same-axes --grid 5 --split test", "pdf png html"),
    "wima-checkpoints": ("wima runs/fma@2 --checkpoints --weights uniform,ema", "checkpoints.csv pdf png"),
    "cka-models": ("cka runs/fma@1 runs/fma@2 --split test", "pdf png"),
    "parameters-tsne": ("parameters runs/fma --round 2 --tsne --sample 40", "parameters-tsne.csv pdf png"),
}
# where an answer's files are not those of the analysis' first result
FILES = {
    "sharpness": "sharpness.csv pdf png",
    "explain": "factors.csv explain.json md pdf html",
    "disperse": "dispersion.csv layers.pdf pdf png",
    "updates": "updates.csv pdf png",
    "align": "0.safetensors 1.safetensors repaired.safetensors moved.csv averages.csv pdf png",
    "consensus": "consensus.csv pdf png",
    "reaggregate": "safetensors reaggregate.csv pdf png",
}


def files_of(analysis: Analysis) -> str:
    """What ``--out m`` writes beside the main file, less the common ``m``."""
    if not analysis.reports:
        return "curves.csv pdf png"
    kind = analysis.result(analysis.reports[0])
    written = [*kind.suffixes[:-1], *kind.derived]
    written += [f"{end}.{picture}" for end in kind.drawn for picture in ("pdf", "png")]
    return " ".join(name.removeprefix(".") for name in [*written, *(f"{end}.html" for end in kind.paged)])


#: by name: the command, and its files
ASKED = {one.name: (one.example, FILES.get(one.name) or files_of(one)) for one in analyses()} | MORE

RUN, LORA = "runs/fma", "runs/lora"


def last() -> str:
    return f"{RUN}@2"


def two() -> list[str]:
    return [f"{RUN}@1", f"{RUN}@2"]


def three() -> list[str]:
    return [*two(), f"{RUN}@2/client-0"]


#: the command of the same name in ASKED, asked from Python
FROM_PYTHON: dict[str, Callable[[], Any]] = {
    "curves": lambda: fedscope.curves(RUN),
    "curves-target": lambda: fedscope.curves(RUN, measures="test_accuracy", target=0.3),
    "data": lambda: fedscope.data(RUN),
    "align": lambda: fedscope.align(two()),
    "line": lambda: fedscope.line(two(), points=3),
    "line-clients": lambda: fedscope.line(last(), clients=True, points=3),
    "line-layers": lambda: fedscope.line(two(), layers="each", points=3),
    "line-rounds": lambda: fedscope.line(RUN, layers="each", rounds="1,2", points=3),
    "plane": lambda: fedscope.plane(three(), grid=5),
    "planes": lambda: fedscope.plane(RUN, rounds=[1, 2], grid=5),
    "plane-both": lambda: fedscope.plane(three(), grid=5, split="both"),
    "plane-same-axes": lambda: fedscope.plane(two(), same_axes=True, grid=5),
    "sharpness": lambda: fedscope.sharpness(last(), hessian=False, split="test"),
    "decompose": lambda: fedscope.decompose(RUN, rounds=2, draws="local:2", split="test"),
    "sharpness-layers": lambda: fedscope.sharpness(last(), layers="each", hessian=False, split="test"),
    "decompose-layers": lambda: fedscope.decompose(RUN, rounds=2, draws="local:2", split="test", layers="each"),
    "explain": lambda: fedscope.explain(RUN, rounds=2, draws="local:2", split="test"),
    "cka": lambda: fedscope.cka(RUN, rounds=2),
    "cka-models": lambda: fedscope.cka(two()),
    "consensus": lambda: fedscope.consensus(last(), split="test"),
    "subsets": lambda: fedscope.subsets(last()),
    "wima": lambda: fedscope.wima(RUN, windows=[2]),
    "wima-checkpoints": lambda: fedscope.wima(last(), checkpoints=True, weights=["uniform", "ema"]),
    "forgetting": lambda: fedscope.forgetting(last(), split="test"),
    "matrix": lambda: fedscope.matrix(last(), split="test"),
    "predictors": lambda: fedscope.predictors(RUN, rounds="1,2"),
    "adapters": lambda: fedscope.adapters(LORA),
    "theory": lambda: fedscope.theory(RUN, rounds=2, split="test", kernel_samples=60, dimension=64),
    "disperse": lambda: fedscope.disperse(last()),
    "embed": lambda: fedscope.embed(RUN, method="pca"),
    "parameters": lambda: fedscope.parameters(RUN, rounds=2),
    "parameters-tsne": lambda: fedscope.parameters(RUN, rounds=2, tsne=True, sample=40),
    "updates": lambda: fedscope.updates(RUN),
    "synergy": lambda: fedscope.synergy(last()),
    "reaggregate": lambda: fedscope.reaggregate(last(), ["fedavgm"]),
}
