"""Memory of a line between two large models, in models: the two are held, and between them one layer a worker.

A language model of eight wide layers (142 million parameters by default) in two `.safetensors`, and `fedscope.line` of
five points on four short texts, so that activations are small. Anonymous memory is read from `/proc` every ten
milliseconds; what was there after a line of tiny models does not count. The second figure is of models that are formed
whole.

    python benchmarks/language_models.py [width]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from _common import Line, table

TARGET, TOKENS, LAYERS = 2.5, 1000, 8

NETWORK = f"""
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding({TOKENS}, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range({LAYERS}))
        self.head = nn.Linear(width, {TOKENS})

    def forward(self, input_ids):
        h = self.embed(input_ids)
        for layer in self.layers:
            h = h + layer(h).tanh()
        return {{"logits": self.head(h)}}
"""


def anonymous() -> int:
    """Bytes of this process's memory that no file can give back."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anonymous:"))


def measure(folder: Path, width: int, whole: bool) -> tuple[float, float]:
    """The peak in models, and seconds."""
    warnings.simplefilter("ignore")
    import numpy as np
    import torch
    from safetensors.torch import save_file

    import fedscope
    from fedscope.evaluation import layered_replica

    if whole:
        layered_replica.LARGE = 2**60
    scope: dict[str, Any] = {}
    exec(NETWORK, scope)
    models = [folder / f"model-{k}.safetensors" for k in range(2)]
    for k, path in enumerate(models):
        torch.manual_seed(k)
        if not path.exists():
            save_file(scope["Net"](width).state_dict(), path)
    (folder / "network.py").write_text(NETWORK)
    sys.path.insert(0, str(folder))
    tokens = np.random.default_rng(0).integers(0, TOKENS, (4, 16))
    asked: dict[str, Any] = {"data": (tokens[:, :-1], tokens[:, 1:]), "task": "sequences"}
    fedscope.line([scope["Net"](8) for _ in range(2)], points=3, **asked)  # all is imported
    before = peak = anonymous()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    line = fedscope.line(models, model=f"network:Net({width})", points=5, **asked)
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    assert np.isfinite(line.loss).all()
    return (peak - before) / (models[0].stat().st_size), seconds


def main() -> None:
    """Measure both in processes of their own."""
    if sys.argv[2:]:
        peak, seconds = measure(Path(sys.argv[3]), int(sys.argv[1]), sys.argv[2] == "whole")
        print(f"{peak} {seconds}")
        return
    width = int(sys.argv[1]) if sys.argv[1:] else 4096
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("layers", "whole"):
            words = [sys.executable, __file__, str(width), kind, folder]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found[kind] = [float(word) for word in done.stdout.split()[-2:]]
    (peak, seconds), (whole, slower) = found["layers"], found["whole"]
    table(
        "A line between two large models",
        [
            Line("peak in models", f"{peak:.2f} ({seconds:.0f} s)", f"<= {TARGET}", peak <= TARGET),
            Line("the same formed whole", f"{whole:.2f} ({slower:.0f} s)"),
        ],
    )


if __name__ == "__main__":
    main()
