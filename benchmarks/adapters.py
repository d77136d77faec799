"""How much memory questions on a run of LoRA adapters take, in units of one round's adapters and of their base.

Two runs are recorded, two rounds of ten clients each, and tiny ones like them. The first has the adapters of a language
model (rank 16 on 64 layers of 4,096 x 4,096: 8.4 million parameters a client, 0.34 GB a round), whose products would
have a billion numbers a client; of these all that needs no data is asked. The second adapts six layers of 2,048 x 2,048
(rank 64, a base of 0.1 GB, 63 MB of adapters a round), and losses are measured on it beside its base. Each question is
asked in a process of its own. What it takes beyond the same on the tiny run is what adapters and base cost: three times
one round's adapters, and one base where losses are measured, are allowed.

    python benchmarks/adapters.py            # all
    python benchmarks/adapters.py 16         # the first with 16 layers
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path

import numpy as np
from _common import Line, cores, fedscope_command, table
from analysis_memory import peak_of

CLIENTS, ROUNDS = 10, 2
LAYERS, WIDTH, RANK = 64, 4096, 16
DEEP, WIDE, OF_WIDE = 6, 2048, 64
#: a layer, its input and its output, of the tiny runs
TINY = 8
#: few, so that outputs of many classes are not taken for what adapters cost
CLASSES = 8
NET = """
from torch import nn

class Low(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.lora_A, self.lora_B = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return x + (self.base(x) + self.lora_B(self.lora_A(x))).relu()

def large():
    return nn.Sequential(*(Low({wide}, {rank}) for _ in range({deep})), nn.Linear({wide}, {classes}))

def tiny():
    return nn.Sequential(Low({tiny}, 2), nn.Linear({tiny}, {classes}))
"""
Shapes = Mapping[str, tuple[int, ...]]
FACTORS: dict[str, list[str]] = {
    "updates": ["updates", "--rounds", "all"],
    "updates by layer": ["updates", "--rounds", "all", "--layers", "each"],
    "map of models": ["disperse", "--embed", "pca", "--rounds", "all"],
    "adapters": ["adapters", "--rounds", "all"],
}
LOSSES: dict[str, list[str]] = {
    "adapters, with their cost": ["adapters", "--rounds", "last"],
    "subsets": ["subsets", "--rounds", "last"],
    "decompose": ["decompose", "--rounds", "last", "--draws", "none"],
    "consensus": ["consensus", "--rounds", "last"],
    "predictors": ["predictors", "--rounds", "all"],
    "line": ["line", "--clients", "--points", "5"],
}


def factors(layers: int, width: int, rank: int, suffix: str = ".weight") -> Shapes:
    """The shapes of a model's factors."""
    return {
        f"{k}.lora_{kind}{suffix}": shape
        for k in range(layers)
        for kind, shape in (("A", (rank, width)), ("B", (width, rank)))
    }


def record(path: Path, shapes: Shapes, **how: object) -> float:
    """Record rounds of adapters that scatter about one; the MB of one round's clients."""
    import fedscope

    draw = np.random.default_rng(0)

    def model(size: float) -> dict[str, np.ndarray]:
        return {name: np.float32(size) * draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    start = model(0.02)
    with fedscope.Recorder(path, lora_alpha=16, **how) as recorder:  # type: ignore[arg-type]
        for _ in range(ROUNDS):
            clients = [{name: start[name] + value for name, value in model(0.005).items()} for _ in range(CLIENTS)]
            mean = {name: np.mean([one[name] for one in clients], axis=0, dtype=np.float32) for name in start}
            recorder.round(start=start, clients=clients, global_=mean)
            recorder.flush()
            start = mean
    return CLIENTS * sum(value.nbytes for value in start.values()) / 1e6


def save_base(path: Path, layers: int, width: int) -> float:
    """A base of so many layers; its MB."""
    import torch

    draw = torch.Generator().manual_seed(0)
    made = {f"{k}.weight": torch.randn(width, width, generator=draw) / width for k in range(layers)}
    made |= {f"{k}.bias": torch.zeros(width) for k in range(layers)}
    head = torch.randn(CLASSES, width, generator=draw) / width
    made |= {f"{layers}.weight": head, f"{layers}.bias": torch.zeros(CLASSES)}
    torch.save(made, path)
    return sum(value.numel() for value in made.values()) * 4 / 1e6


def beyond(
    commands: Mapping[str, Sequence[str]], runs: Sequence[Path], options: Sequence[Sequence[str | Path]], folder: str
) -> dict[str, float]:
    """The peak memory in MB of each question on the first run beyond that on the second."""
    found = {}
    for name, (command, *words) in commands.items():
        peaks = []
        for run, own in zip(runs, options, strict=True):
            asked = f"{run}@{ROUNDS}" if command == "line" else run
            call = [fedscope_command(), command, asked, *words, *own, "--out", Path(folder, f"out-{len(peaks)}")]
            peaks.append(peak_of([*call, "--force"], folder) / 1e6)
        found[name] = peaks[0] - peaks[1]
    return found


def of_products(layers: int, folder: str) -> list[Line]:
    """Questions that need no data."""
    runs = [Path(folder, "many"), Path(folder, "few")]
    adapters = record(runs[0], factors(layers, WIDTH, RANK))
    record(runs[1], factors(1, TINY, 2))
    dense = CLIENTS * layers * WIDTH**2 * 4 / 1e6
    lines = [Line("one round's adapters, MB", f"{adapters:.0f}"), Line("their products, MB", f"{dense:,.0f}")]
    for name, more in beyond(FACTORS, runs, [[], []], folder).items():
        ratio = more / adapters
        lines.append(Line(f"{name}: beyond a tiny run, rounds of adapters", f"{ratio:.2f}", "<= 3", ratio <= 3))
    return lines


def of_losses(folder: str) -> list[Line]:
    """Questions that measure losses beside a base."""
    numbers = {"wide": WIDE, "rank": OF_WIDE, "deep": DEEP, "tiny": TINY, "classes": CLASSES}
    Path(folder, "lownet.py").write_text(NET.format(**numbers), encoding="utf-8")
    sizes = {"large": (DEEP, WIDE, OF_WIDE), "tiny": (1, TINY, 2)}
    runs: list[Path] = []
    options: list[list[str | Path]] = []
    heavy, many = {}, {}
    for name, (deep, width, rank) in sizes.items():
        base, data, run = (Path(folder, f"{name}-{what}") for what in ("base.pt", "data.npz", "run"))
        heavy[name] = save_base(base, deep, width)
        values = np.random.default_rng(1).standard_normal((200, width), np.float32)
        np.savez(data, x_train=values, y_train=np.arange(200) % 8, x_test=values, y_test=np.arange(200) % 8)
        many[name] = record(run, factors(deep, width, rank), base=base)
        runs.append(run)
        options.append(["--model", f"lownet:{name}", "--data", f"npz:{data}", "--base", base])
    base_size, adapters = heavy["large"], many["large"]
    lines = [Line("one round's adapters, MB", f"{adapters:.0f}"), Line("their base, MB", f"{base_size:.0f}")]
    for name, more in beyond(LOSSES, runs, options, folder).items():
        ratio = (more - base_size) / adapters
        what = f"{name}: beyond a tiny run and one base, rounds of adapters"
        lines.append(Line(what, f"{ratio:.2f}", "<= 3", ratio <= 3))
    return lines


def main(layers: int = LAYERS) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    about = f"{ROUNDS} rounds of {CLIENTS} clients, {cores()} cores"
    with tempfile.TemporaryDirectory() as folder:
        table(f"Memory of products of adapters: {about}", of_products(layers, folder))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # where the network's code is found
        table(f"Memory of adapters beside their base: {about}", of_losses(folder))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
