"""What is asked of an accelerator and of the processor, of the same run ``r``."""

from __future__ import annotations

#: how the run is trained, on the few digits
TRAIN = (
    "train --method fma --clients 6 --participation 0.5 --rounds 4 --epochs 1 --set model.hidden=[16] "
    "--set record.globals=all"
)
#: test samples of the few digits; fewer than the limit, which is of training samples
SAMPLES = 72
LIMIT = "--limit 200"
#: what is asked, and how far numbers may be apart, as a share of a column's greatest: forward passes in float32 differ
#: by 1e-6 or so; second derivatives and sums of squares of small differences lose two digits more; replays train again,
#: and each step carries the difference on
QUESTIONS: dict[str, tuple[str, float]] = {
    "line": (f"line r@4/global r@2/global {LIMIT}", 1e-5),
    "line-clients": (f"line r@4 --clients {LIMIT}", 1e-5),
    "line-layers": (f"line r@4/global r@2/global --layers each --points 5 {LIMIT}", 1e-5),
    "plane": (f"plane r@2/global r@3/global r@4/global --grid 9 {LIMIT}", 1e-5),
    "plane-clients": (f"plane r@4 --clients --grid 7 {LIMIT}", 1e-5),
    "plane-random": (f"plane r@4/global --random --grid 7 {LIMIT}", 1e-5),
    "sharpness": (f"sharpness r@4/global {LIMIT}", 1e-3),
    "decompose-rounds": (f"decompose r --rounds 2,4 --draws local:2 {LIMIT}", 1e-3),
    "cka": (f"cka r --rounds 2,4 {LIMIT}", 1e-4),
    "subsets": (f"subsets r --rounds 4 --sizes 1,2 {LIMIT}", 1e-5),
    "consensus": (f"consensus r --rounds 3,4 {LIMIT}", 1e-5),
    "forgetting": ("forgetting r --rounds 4", 1e-5),
    "matrix": (f"matrix r --rounds 2,4 {LIMIT}", 1e-5),
    "wima": ("wima r --windows 2,3", 1e-5),
    "theory": (f"theory r --rounds 4 {LIMIT}", 1e-3),
    "explain": (f"explain r --rounds 2,4 --draws local:2 {LIMIT}", 1e-3),
    "reaggregate": (f"reaggregate r@4 --server fedavgm --server fedsa {LIMIT}", 1e-5),
    "embedding": ("disperse r --rounds 2,4 --embed pca", 1e-5),
}
