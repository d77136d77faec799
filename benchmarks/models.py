"""How fast ResNet-18 and VGG-11 with GroupNorm train and are evaluated, and the memory of a ResNet-18 round.

Speed: `local_sgd` (batches of 50 images of 32 x 32, momentum, weight decay) and `Evaluator` as runs use them, one
single-threaded worker a core. Beside it, in turn and with as many workers, the network's convolutions and linear layers
one by one, each on the inputs that it has in the network: forward, and in training the gradients of its weights and
inputs. Both have the same GFLOP, the multiply-adds x 2 of these layers; normalisation, ReLU, pooling, the loss and the
step cost time and count for nothing. The ratio of the two rates counts, by processor time, which other programs beside
this one hardly change; by the clock it is printed, too.

Memory: `fedscope train` records two rounds of `resnet18`, five clients of a few noisy images, and is told to stop and
resumed; then seven commands analyse the second round, each as a subprocess. Peaks are of the process and its children,
less that of the same command on a tiny network, which has interpreter, torch, matplotlib and samples, too.

    python benchmarks/models.py [repetitions]     (0: memory alone)

What a command may take is what `docs/howto/models.md` states: so many models, and a working set a worker. The working
set is measured too: a worker alone that trains a client, or evaluates a model, beyond the same with a tiny network.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import (
    CLASSES,
    IMAGE,
    Line,
    cores,
    fedscope_command,
    forward_gflop,
    peak_of_tree,
    random_samples,
    spread,
    table,
)
from analysis_memory import peak_of

SHARE, BATCH, STEPS = 0.70, 50, 2
MODELS = ("resnet18-gn", "vgg11-gn")
CLIENTS, SAMPLES = 5, 20
NETWORKS = {"resnet18": ["--model", "resnet18"], "tiny": ["--model", "mlp", "--set", "model.hidden=[4]"]}
MODEL = 45  # megabytes of a model
LIBRARY = 150  # megabytes: torchvision, and the network that is copied
#: of round 2; the models that docs/howto/models.md says are held, and what each worker does beside them
QUESTIONS: dict[str, tuple[str, int, str]] = {
    "train": ("", CLIENTS + 3, "train"),
    "plane": ("plane {run}@1/global {run}@2/global {run}@2/client-0 --grid 5 --split test", 3, "evaluate"),
    "decompose": ("decompose {run} --rounds 2 --draws local:2 --split test", 2 * (CLIENTS + 1) + 2, "train"),
    "cka": ("cka {run} --rounds 2 --split test", CLIENTS + 2, "evaluate"),
    "reaggregate": ("reaggregate {run}@2 --server fedavgm", CLIENTS + 2, "evaluate"),
}
#: the same of those that read blocks, and the megabytes that their pages state
BLOCKS: dict[str, tuple[str, int]] = {
    "disperse": ("disperse {run} --rounds 2", 200),
    "updates": ("updates {run} --rounds 2", MODEL + 100),
    "synergy": ("synergy {run}@2", 190),
}


# --- speed ---


def workers(work: Callable[[Any], object], make: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time a core, of ``work`` once in every worker, after it was made."""
    from fedscope.evaluation.device import run_in_workers

    spent: list[float] = []

    def timed(_: int, own: Any, __: Any) -> float:
        began = time.thread_time()
        work(own)
        return time.thread_time() - began

    made = [make() for _ in range(cores())]
    began = time.perf_counter()
    spent = list(run_in_workers(timed, range(cores()), make=made.pop))
    return time.perf_counter() - began, statistics.mean(spent)


class Layers:
    """A network's convolutions and linear layers with what they are given, and gradients of what they return."""

    def __init__(self, module: Any, x: Any) -> None:
        import torch
        from torch import nn

        self.each: list[tuple[Any, Any, Any]] = []

        def keep(layer: Any, given: Any, output: Any) -> None:
            own = given[0].detach().clone()
            own.requires_grad_(bool(self.each))  # the images need no gradient
            self.each.append((layer, own, torch.randn_like(output)))

        products = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        hooks = [layer.register_forward_hook(keep) for layer in products]
        with torch.no_grad():
            module(x)
        for hook in hooks:
            hook.remove()

    def train(self, steps: int) -> None:
        """Forward and backward of each."""
        import torch

        for _ in range(steps):
            for layer, given, gradient in self.each:
                wanted = [*layer.parameters(), *([given] if given.requires_grad else [])]
                torch.autograd.grad(layer(given), wanted, gradient)

    def evaluate(self, steps: int) -> None:
        """Forward of each."""
        import torch

        with torch.inference_mode():
            for _ in range(steps):
                for layer, given, _ in self.each:
                    layer(given)


def speed(name: str, repetitions: int) -> list[Line]:
    """How much of the layers' own rate is left in a network."""
    import numpy as np

    from fedscope.checkpoints import Layout
    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.training import build_module, model_settings
    from fedscope.training.build import initial_model
    from fedscope.training.local.local_training import LocalTask, local_sgd
    from fedscope.training.local.worker_model import TrainableModel
    from fedscope.training.methods.base import LocalSchedule
    from fedscope.training.methods.clients.sgd import SGD
    from fedscope.training.models.model_info import ModelInfo

    module, samples = build_module(model_settings(name), IMAGE, CLASSES), random_samples(STEPS * BATCH)
    start, facts = initial_model(module), ModelInfo(Layout.of(module), CLASSES, CLIENTS)
    forward = forward_gflop(module, samples.x[:BATCH])
    # backward: of weights and inputs as much each, but of the images
    first = next(module.children())
    backward = 2 * forward - forward_gflop(first, samples.x[:BATCH])
    evaluator = Evaluator(module, samples, batch=BATCH)

    def train(bench: Any) -> None:
        indices = np.arange(len(samples))
        local_sgd(
            LocalTask(1, 0, samples.x, samples.y, indices, start, LocalSchedule(0.01, 1), 0, facts, bench=bench),
            SGD(batch=BATCH),
        )

    def layers() -> Layers:
        return Layers(TrainableModel(module).module, samples.x[:BATCH])

    def evaluate() -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time()
        evaluator.models([start] * cores())
        return time.perf_counter() - began, (time.process_time() - used) / cores()

    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "training": lambda: workers(train, lambda: TrainableModel(module)),
        "layers, forward and backward": lambda: workers(lambda own: own.train(STEPS), layers),
        "evaluation": evaluate,
        "layers, forward": lambda: workers(lambda own: own.evaluate(STEPS), layers),
    }
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(repetitions + 1):  # the first one chooses kernels
        for way, measure in ways.items():
            took[way].append(measure())
    lines = []
    for (whole, alone), gflop in zip((list(ways)[:2], list(ways)[2:]), (forward + backward, forward), strict=True):
        own, bare = took[whole][1:], took[alone][1:]
        clock, processor = ([b[i] / a[i] for a, b in zip(own, bare, strict=True)] for i in (0, 1))
        share = statistics.median(processor)
        lines += [
            Line(
                f"{name}, {whole}: GFLOP/s a core, of processor time",
                spread([STEPS * gflop / a[1] for a in own], "{:.0f}"),
            ),
            Line(f"  {alone}, one by one", spread([STEPS * gflop / b[1] for b in bare], "{:.0f}")),
            Line("  ratio, of processor time", spread(processor, "{:.0%}"), f">= {SHARE:.0%}", share >= SHARE),
            Line("  ratio, by the clock", spread(clock, "{:.0%}")),
        ]
    return lines


# --- memory ---


def alone(name: str, what: str) -> None:
    """Print the megabytes that a single worker needs to train a client of a network, or to evaluate a model."""
    import resource

    import numpy as np

    from fedscope.checkpoints import Layout
    from fedscope.evaluation.device import Compute
    from fedscope.evaluation.evaluator import Evaluator
    from fedscope.training import build_module, model_settings
    from fedscope.training.build import initial_model
    from fedscope.training.local.engine import Engine
    from fedscope.training.local.local_training import LocalTask
    from fedscope.training.methods.base import LocalSchedule
    from fedscope.training.methods.clients.sgd import SGD
    from fedscope.training.models.model_info import ModelInfo

    module, samples, compute = (
        build_module(model_settings(name), IMAGE, CLASSES),
        random_samples(100),
        Compute(workers=1),
    )
    start = initial_model(module)
    before = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if what == "train":
        facts = ModelInfo(Layout.of(module), CLASSES, 1)
        task = LocalTask(1, 0, samples.x, samples.y, np.arange(SAMPLES), start, LocalSchedule(0.01, 1), 0, facts)
        list(Engine(module, compute).each(SGD(batch=10).train, [task]))
    else:
        Evaluator(module, samples, compute=compute).models([start])
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / 1e6)


def working_set(what: str) -> float:
    """The megabytes of :func:`alone` in a process of its own."""
    words = [sys.executable, __file__, "alone", "resnet18", what]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def stopped_and_resumed(words: list[str], run: Path, folder: str) -> float:
    """Train a run, press Ctrl-C once its first round is there, and go on; the greater of both peaks, in bytes."""
    first, last = (run / "rounds" / f"0000{t}.h5" for t in (1, 2))
    log = Path(folder, "log.txt")
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen([fedscope_command(), "train", *words, "--out", run], stdout=file, stderr=file)
        peak: float = 0
        while process.poll() is None:
            peak = max(peak, peak_of_tree(process.pid))
            if first.exists() and not last.exists():
                process.send_signal(signal.SIGINT)
                process.wait()
            time.sleep(0.01)
    if process.returncode not in (0, 130):
        sys.exit(log.read_text(encoding="utf-8"))
    return peak if last.exists() else max(peak, peak_of([fedscope_command(), "train", "--resume", run], folder))


def memory() -> list[Line]:
    """Peaks beyond those of a tiny network."""
    import numpy as np

    peaks: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        draw = np.random.default_rng(0)
        count = CLIENTS * SAMPLES
        x, y = draw.integers(0, 256, (2 * count, *IMAGE[1:], 3), dtype=np.uint8), np.arange(2 * count) % CLASSES
        data = Path(folder, "noise.npz")
        np.savez(data, x_train=x[:count], y_train=y[:count], x_test=x[count:], y_test=y[count:])
        os.environ["FEDSCOPE_CACHE"] = "off"
        words = ["--data", f"npz:{data}", "--clients", str(CLIENTS), "--participation", "1", "--partition", "iid"]
        words += ["--method", "fma", "--rounds", "2", "--epochs", "1", "--batch", "10", "--lr", "0.01"]
        for network, model in NETWORKS.items():
            run = Path(folder, network)
            peaks["train", network] = stopped_and_resumed([*words, *model], run, folder)
            for name, (question, *_) in {**QUESTIONS, **BLOCKS}.items():
                if question:
                    asked = [*question.format(run=run).split(), "--out", str(Path(folder, f"{network}-{name}"))]
                    peaks[name, network] = peak_of([fedscope_command(), *asked], folder)
    sets = {what: working_set(what) for what in ("train", "evaluate")}
    lines = [Line(f"a worker that does nothing but {what}s: MB", f"{size:.0f}") for what, size in sets.items()]
    allowed = {name: LIBRARY + models * MODEL + cores() * sets[what] for name, (_, models, what) in QUESTIONS.items()}
    for name, most in (allowed | {name: stated for name, (_, stated) in BLOCKS.items()}).items():
        beyond = (peaks[name, "resnet18"] - peaks[name, "tiny"]) / 1e6
        shown = f"{beyond:.0f}, {beyond / MODEL:.1f} models"
        what = "trained, stopped and resumed" if name == "train" else name
        label = f"{what}: MB beyond a tiny network's {peaks[name, 'tiny'] / 1e6:.0f}"
        lines.append(Line(label, shown, f"<= {most:.0f}", beyond <= most))
    return lines


def main(repetitions: int) -> None:
    """Measure and print."""
    if repetitions:
        lines = [line for name in MODELS for line in speed(name, repetitions)]
        table(f"Networks of the papers against their own layers, batches of {BATCH}, {repetitions} times", lines)
    table(f"Memory of a ResNet-18 round of {CLIENTS} clients ({MODEL} MB each)", memory())


if __name__ == "__main__":
    if sys.argv[1:2] == ["alone"]:
        sys.exit(alone(*sys.argv[2:]))
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
