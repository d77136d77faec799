"""What a cluster costs: rounds by Ray's workers against the same rounds by threads, on this machine.

The source papers' CNN (3 x 32 x 32), 10 clients x 500 samples x 5 epochs in batches of 50: local training alone, by two
workers of Ray and by two threads, in turn; the models are compared, bit for bit. And ten tiny clients (the digits'
perceptron, one epoch of 20 samples, one by one), of which a round is nothing but what the engines cost.

Ray has an environment of its own, made once in `benchmarks/.peers`, on whose path ours lies.

    python benchmarks/ray_engine.py [repetitions]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import CLASSES, IMAGE, Line, spread, table

HERE = Path(__file__).resolve().parent
RAY = "ray==2.60.0"
SHARE, OVERHEAD = 0.85, 60.0
WORKERS = 2


def environment(folder: Path) -> Path:
    """The Python of an environment with Ray, on whose path this Python's packages lie behind its own.

    Raises:
        OSError: pip could not install it.
    """
    home = folder.resolve() / "ray"
    python, made_for = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join([RAY, sys.version])
    if not (made_for.exists() and made_for.read_text(encoding="utf-8") == wanted):
        for command in (
            [sys.executable, "-m", "venv", "--clear", home],
            [python, "-m", "pip", "install", "--quiet", RAY],
        ):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1800)
            if done.returncode:
                raise OSError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
        made_for.write_text(wanted, encoding="utf-8")
    packages = python.parent.parent / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return python


# --- in Ray's environment ---


def tasks_of(module: Any, clients: int, samples: int, shape: Sequence[int], round_: int) -> list[Any]:
    """A round's work on noise."""
    import numpy as np
    import torch

    from fedscope.training.build import initial_model, model_info
    from fedscope.training.config.config import Config
    from fedscope.training.local.local_training import LocalTask

    data = tasks_of.__dict__.setdefault((clients, samples), {})
    if not data:
        draw = torch.Generator().manual_seed(0)
        data["x"] = torch.randn(clients * samples, *shape, generator=draw)
        data["y"] = torch.randint(0, CLASSES, (clients * samples,), generator=draw)
        data["facts"] = model_info(Config.read({}), module, CLASSES)
    config = Config.read({"client": {"epochs": 5 if samples > 100 else 1}})
    start = initial_model(module)
    return [
        LocalTask(
            round=round_,
            client=k,
            x=data["x"],
            y=data["y"],
            indices=np.arange(k * samples, (k + 1) * samples),
            start=start,
            pace=config.client.pace(round_),
            seed=0,
            facts=data["facts"],
        )
        for k in range(clients)
    ]


def play(repetitions: int) -> dict[str, Any]:
    """Seconds of rounds by threads and by Ray, in turn."""
    import numpy as np

    from fedscope.distributed.engines import open_cluster
    from fedscope.evaluation.device import Compute
    from fedscope.training import build_module, model_settings
    from fedscope.training.local.engine import Engine
    from fedscope.training.methods.clients.sgd import SGD

    found: dict[str, Any] = {}
    for name, model, samples, shape, rounds in (
        ("cnn", "cnn", 500, IMAGE, repetitions),
        ("tiny", "mlp", 20, (64,), 20 * repetitions),
    ):
        module = build_module(model_settings(model), tuple(shape), CLASSES)
        method = SGD(epochs=5 if samples > 100 else 1, batch=50 if samples > 100 else 20)
        engines = {
            "threads": Engine(module, Compute("cpu", workers=WORKERS)),
            "ray": Engine(module, Compute("cpu", cluster=open_cluster(f"ray:{WORKERS}"))),
        }
        seconds: dict[str, list[float]] = {kind: [] for kind in engines}
        for t in range(1, rounds + 3):
            models = {}
            for kind, engine in engines.items():
                tasks = tasks_of(module, 10, samples, shape, t)
                began = time.perf_counter()
                models[kind] = engine.train(method, tasks, np.full(10, 0.1)).clients.parameters
                seconds[kind].append(time.perf_counter() - began)
            assert np.array_equal(models["threads"], models["ray"])
        found[name] = {kind: own[2:] for kind, own in seconds.items()}  # the first ones load things
    return found


def answer(repetitions: str, path: str) -> None:
    """Play, and leave the answer."""
    # from the module by its name, so that workers find what they need there
    import ray_engine

    Path(path).write_text(json.dumps(ray_engine.play(int(repetitions))), encoding="utf-8")


# --- in ours ---


def main() -> None:
    """Measure, and print a table."""
    import tempfile

    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    try:
        python = environment(HERE / ".peers")
    except OSError as why:
        sys.exit(f"{RAY} cannot be installed: {why}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.json")
        code = "import sys, ray_engine; ray_engine.answer(*sys.argv[1:])"
        words = {**os.environ, "PYTHONPATH": str(HERE)}
        subprocess.run([python, "-c", code, str(repetitions), str(path)], check=True, env=words)
        found = json.loads(path.read_text(encoding="utf-8"))
    shares = [a / b for a, b in zip(found["cnn"]["threads"], found["cnn"]["ray"], strict=True)]
    tiny = {kind: [1000 * seconds for seconds in own] for kind, own in found["tiny"].items()}
    more = [b - a for a, b in zip(tiny["threads"], tiny["ray"], strict=True)]
    share, extra = statistics.median(shares), statistics.median(more)
    table(
        f"Rounds by {WORKERS} workers of {RAY.replace('==', ' ')} against {WORKERS} threads",
        [
            Line("CNN, 10 clients: seconds a round, threads", spread(found["cnn"]["threads"])),
            Line("the same, Ray", spread(found["cnn"]["ray"])),
            Line("threads' time / Ray's", spread(shares), f">= {SHARE:g}", share >= SHARE),
            Line(
                "ten tiny clients: ms a round, threads", spread([1000 * s for s in found["tiny"]["threads"]], "{:.1f}")
            ),
            Line("the same, Ray", spread([1000 * s for s in found["tiny"]["ray"]], "{:.1f}")),
            Line("Ray's more, ms", spread(more, "{:.1f}"), f"<= {OVERHEAD:g}", extra <= OVERHEAD),
        ],
    )


if __name__ == "__main__":
    main()
