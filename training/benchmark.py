"""``bench``: how fast this machine trains and evaluates a model, multiplies matrices and writes to its disk."""

from __future__ import annotations

import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from ..checkpoints.io.errors import count_of
from ..results.versions import versions

if TYPE_CHECKING:
    from torch import nn

    from ..evaluation.device import Compute

#: one client and one round of the papers' federations on CIFAR-10
IMAGE, CLASSES, BATCH, OWN, CLIENTS, EPOCHS = (3, 32, 32), 10, 50, 500, 10, 5
#: rows and columns of the matrices that are multiplied, on a processor and on an accelerator
_SIZE, _LARGE = 1024, 8192
_DISK = 256 * 2**20


@dataclass(frozen=True)
class Rate:
    """The speed at which samples pass through a model.

    Attributes:
        samples: a second; gflops: 1e9 products and sums a second in them.
        share: of the machine's matrix products in the same arithmetic, 0 to 1.
    """

    samples: float
    gflops: float
    share: float


@dataclass(frozen=True)
class BenchmarkResult:
    """The measured speeds of a machine.

    Attributes:
        model: by name; device: where, in words; engine: as runs would choose it; workers: threads.
        products: 1e9 products and sums a second by precision; training, evaluation: of the model, by precision.
        written, read: bytes a second of the disk; None where this system cannot drop what it keeps in memory.
        versions: of what computed.
    """

    model: str
    device: str
    engine: str
    workers: int
    products: Mapping[str, float]
    training: Mapping[str, Rate]
    evaluation: Mapping[str, Rate]
    written: float
    read: float | None
    versions: Mapping[str, str]

    def round_seconds(self, precision: str) -> float:
        """Of local training alone, in a round of 10 clients of 500 samples and 5 epochs."""
        return CLIENTS * OWN * EPOCHS / self.training[precision].samples

    def findings(self) -> dict[str, Any]:
        """All of it, for programs."""

        def said(rates: Mapping[str, Rate]) -> dict[str, dict[str, float]]:
            return {name: {"samples": r.samples, "gflops": r.gflops, "share": r.share} for name, r in rates.items()}

        return {
            "model": self.model,
            "device": self.device,
            "engine": self.engine,
            "workers": self.workers,
            "products_gflops": dict(self.products),
            "training": said(self.training),
            "evaluation": said(self.evaluation),
            "round_seconds": {name: self.round_seconds(name) for name in self.training},
            "disk_written": self.written,
            "disk_read": self.read,
            "versions": dict(self.versions),
        }

    def summary(self) -> str:
        """A table, and what follows for a run's settings."""
        rows = [
            f"{self.device}; {', '.join(f'{name} {own}' for name, own in self.versions.items())}",
            f"engine {self.engine}, {count_of(self.workers, 'worker')}; model {self.model}, "
            f"{'x'.join(map(str, IMAGE))}, batches of {BATCH}",
            "",
            f"{'':<10} {'products':>15} {'training':>30} {'evaluation':>30}",
        ]
        for name in self.training:
            cells = [
                f"{rate.samples:,.0f} samples/s, {100 * rate.share:.0f} %"
                for rate in (self.training[name], self.evaluation[name])
            ]
            rows.append(f"{name:<10} {f'{self.products[name]:,.0f} GFLOP/s':>15} {cells[0]:>30} {cells[1]:>30}")
        rows += ["shares are of the products in the same arithmetic", ""]
        times = ", ".join(f"{self.round_seconds(name):.3g} s in {name}" for name in self.training)
        rows.append(f"a round of {CLIENTS} clients x {OWN} samples x {EPOCHS} epochs trains for about {times}")
        best = min(self.training, key=self.round_seconds)
        if best != "float32":
            gain = self.round_seconds("float32") / self.round_seconds(best)
            rows.append(f"{best} trains {gain:.2g} times as fast as float32: --set run.precision={best}")
        read = "" if self.read is None else f", read {self.read / 1e6:,.0f} MB/s"
        rows.append(f"disk: written {self.written / 1e6:,.0f} MB/s{read}")
        return "\n".join(rows)


def bench(
    model: str = "cnn", device: str = "auto", *, folder: Path | str = ".", seconds: float = 3.0, disk: int = _DISK
) -> BenchmarkResult:
    """Measure this machine: matrix products, local training and evaluation of a model on noise, and a disk.

    Training is that of runs: SGD with momentum in batches of 50, a client a worker. Nothing else should run meanwhile.

    Args:
        model: one that takes 3 x 32 x 32 images; device: as of ``train``.
        folder: where the disk is measured, as runs will lie there; disk: bytes that are written and read.
        seconds: of each measurement, of which there are three for each precision.

    Raises:
        FedscopeError: a model or a device that there is not; a folder that cannot be written.
    """
    from ..distributed.cores import cores
    from ..evaluation.device import Compute
    from .build import build_module, model_settings
    from .local.engine_choice import is_small, one_by_one

    if not 0 < seconds < math.inf:
        what = "never ends" if seconds == math.inf else "measures nothing"
        raise FedscopeError(f"--seconds {seconds:g} {what}; give a time above 0")
    written, read = _disk(Path(folder), disk)
    first = Compute(device)
    kinds = ("float32", "tf32", "bf16") if first.kind == "cuda" else ("float32", "bf16")
    module = build_module(model_settings(model), IMAGE, CLASSES, seed=0)
    forward, backward = _work(module)
    products: dict[str, float] = {}
    training: dict[str, Rate] = {}
    evaluation: dict[str, Rate] = {}
    for kind in kinds:
        compute = Compute(first.device, kind)
        products[kind] = _products(compute, seconds)
        of_training, of_evaluation = _training_speed(module, compute, seconds), _evaluation(module, compute, seconds)
        for rates, samples, work in (
            (training, of_training, forward + backward),
            (evaluation, of_evaluation, forward),
        ):
            gflops = samples * work / 1e9
            rates[kind] = Rate(samples, gflops, gflops / products[kind])
    return BenchmarkResult(
        model=model,
        device=_describe_device(first),
        engine="cohort" if is_small(module, first.device) else one_by_one(first.device),
        workers=first.workers or cores(),
        products=products,
        training=training,
        evaluation=evaluation,
        written=written,
        read=read,
        versions=versions(),
    )


def _describe_device(compute: Compute) -> str:
    """Return the device in words."""
    import torch

    from ..distributed.cores import cores
    from ..evaluation.accelerators import device_name

    if compute.is_gpu:
        return f"{compute.name}, {device_name(compute.device)}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"cpu, {count_of(cores(), 'core')}, {platform.machine()}, {capability}"


def _time_call(work: Callable[[], object], seconds: float, compute: Compute) -> float:
    """Seconds of one call, on average over at least as long as was asked for, after a first one that is not counted."""
    from ..evaluation.accelerators import synchronize

    def finish() -> None:
        synchronize(compute.device)

    work()
    finish()
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or not count:
        work()
        finish()
        count += 1
    return spent / count


def _products(compute: Compute, seconds: float) -> float:
    """1e9 products and sums a second of matrix products, each worker its own (2 n^3 each)."""
    import torch

    from ..distributed.cores import cores
    from ..evaluation.device import run_in_workers

    size = _LARGE if compute.is_gpu else _SIZE
    kind = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    workers = compute.workers or cores()
    pairs = [[torch.rand(size, size, device=compute.device).to(kind) for _ in range(3)] for _ in range(workers)]

    def multiply(own: list[torch.Tensor], *_more: Any) -> None:
        with compute.products():
            for _ in range(4):
                torch.mm(own[0], own[1], out=own[2])

    def once() -> None:
        for _ in run_in_workers(multiply, pairs, workers=workers):
            pass

    return 4 * workers * 2 * size**3 / _time_call(once, seconds, compute) / 1e9


def _work(module: nn.Module) -> tuple[float, float]:
    """Products and sums a sample of a forward and of a backward pass, as torch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.zeros(2, *IMAGE)
    with FlopCounterMode(display=False) as counted:
        outputs = module.train()(x)
    forward = counted.get_total_flops()
    with FlopCounterMode(display=False) as counted:
        outputs.sum().backward()
    module.zero_grad(set_to_none=True)
    return forward / len(x), counted.get_total_flops() / len(x)


def _noise(count: int, device: str) -> Any:
    """Images of noise with their labels, as data sets hand them out: channels last."""
    import torch

    draw = torch.Generator().manual_seed(0)
    x = torch.randn(count, *IMAGE, generator=draw).contiguous(memory_format=torch.channels_last)
    return x.to(device), torch.randint(0, CLASSES, (count,), generator=draw).to(device)


def _training_speed(module: nn.Module, compute: Compute, seconds: float) -> float:
    """Samples a second of a cohort: with a client a worker, or on an accelerator with several in one pass where `auto`
    trains so."""
    import numpy as np

    from ..checkpoints import Layout
    from ..distributed.cores import cores
    from .build import initial_model
    from .local.engine import Engine
    from .local.engine_choice import is_small
    from .local.local_training import LocalTask
    from .methods.base import LocalSchedule
    from .methods.clients.sgd import SGD
    from .models.model_info import ModelInfo

    in_one_pass = compute.is_gpu and is_small(module, compute.device)
    count = CLIENTS if in_one_pass else compute.workers or cores()
    x, y = _noise(OWN, compute.device)
    facts, start = ModelInfo(Layout.of(module), CLASSES, count), initial_model(module)
    method, engine = SGD(batch=BATCH, momentum=0.9), Engine(module, compute, None, "cohort" if in_one_pass else "auto")
    tasks = [LocalTask(1, k, x, y, np.arange(OWN), start, LocalSchedule(1e-4, 1), 0, facts) for k in range(count)]
    p = np.full(count, 1 / count)
    return count * OWN / _time_call(lambda: engine.train(method, tasks, p), seconds, compute)


def _evaluation(module: nn.Module, compute: Compute, seconds: float) -> float:
    """Samples a second of a model a worker."""
    import numpy as np

    from ..distributed.cores import cores
    from ..evaluation.evaluator import Evaluator
    from ..evaluation.samples import Samples
    from .build import initial_model

    count = compute.workers or cores()
    x, y = _noise(20 * OWN if compute.is_gpu else 2 * OWN, "cpu")  # as many as a GPU is given at a time
    samples = Samples(x, y, CLASSES, "noise", "test", np.arange(len(y)))
    evaluator = Evaluator(module, samples, compute=compute)
    models = [initial_model(module)] * count
    return count * len(y) / _time_call(lambda: evaluator.models(models), seconds, compute)


def _disk(folder: Path, size: int) -> tuple[float, float | None]:
    """Bytes a second written durably, and read where the system can forget a file. Folders that are made for it go.

    Raises:
        FedscopeError: the folder cannot be written.
    """
    block, made = os.urandom(2**22), list[Path]()
    try:
        made += [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began = time.perf_counter()
            for _ in range(max(1, size // len(block))):
                file.write(block)
            os.fsync(file.fileno())
            written = file.tell() / (time.perf_counter() - began)
            if not hasattr(os, "posix_fadvise"):
                return written, None
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            began, buffer = time.perf_counter(), bytearray(len(block))
            while file.readinto(buffer):
                pass
            return written, file.tell() / (time.perf_counter() - began)
    except OSError as error:
        raise FedscopeError(f"{folder} cannot be written: {error.strerror}; give another --folder") from error
    finally:
        for one in made:
            with suppress(OSError):  # somebody has put something there
                one.rmdir()
