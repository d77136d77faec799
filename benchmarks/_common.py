"""What the benchmarks share: the machine's own speed to compare with, memory, and a small table."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: the source papers' images, and how many of them a point of a landscape is measured on
IMAGE, CLASSES, SAMPLES = (3, 32, 32), 10, 2_000


@dataclass(frozen=True)
class Line:
    """One measured figure beside its target; without a target it is only told."""

    what: str
    measured: str
    target: str = ""
    holds: bool | None = None


def table(title: str, lines: Sequence[Line]) -> None:
    """Print the figures, their targets, and whether they hold."""
    print(f"\n{title}\n{machine()}")
    wide = [max(len(getattr(line, column)) for line in lines) for column in ("what", "measured", "target")]
    for line in lines:
        verdict = "" if line.holds is None else "pass" if line.holds else "FALLS SHORT"
        print(f"  {line.what:<{wide[0]}}  {line.measured:>{wide[1]}}  {line.target:<{wide[2]}}  {verdict}".rstrip())
    sys.stdout.flush()


def machine() -> str:
    """Where and with what this was measured."""
    import numpy as np
    import torch

    import fedscope

    return (
        f"  {cores()} cores, {platform.machine()}, {platform.system()}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}, fedscope {fedscope.__version__}"
    )


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def fedscope_command() -> Path:
    """The ``fedscope`` that is installed beside this Python."""
    command = Path(sys.executable).with_name("fedscope")
    if not command.exists():
        sys.exit(f"{command} does not exist: run the benchmark with the Python that fedscope is installed in")
    return command


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """``median (least to greatest)``."""
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


# --- recorded clients of large models ---


def resnet18() -> Any:
    """The layout of ResNet-18 as federated papers use it (3 x 3 stem, GroupNorm, 10 classes), in torchvision's order:
    11.2 million parameters."""
    from fedscope.checkpoints import Layout, TensorEntry

    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 3, 3)}

    def norm(name: str, width: int) -> None:
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    norm("bn1", 64)
    before = 64
    for layer, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{layer}.{block}"
            for i in (1, 2):
                shapes[f"{name}.conv{i}.weight"] = (width, before if i == 1 else width, 3, 3)
                norm(f"{name}.bn{i}", width)
            if before != width:
                shapes[f"{name}.downsample.0.weight"] = (width, before, 1, 1)
                norm(f"{name}.downsample.1", width)
            before = width
    shapes.update({"fc.weight": (CLASSES, 512), "fc.bias": (CLASSES,)})
    return Layout(tuple(TensorEntry(name, shape, "float32", "parameter") for name, shape in shapes.items()))


def write_clients(path: Path, clients: int, compression: str = "none") -> None:
    """A round of clients that scatter about one model, the last three times as far as the first."""
    import numpy as np

    from fedscope.checkpoints import RoundRecord, Weights, write_round

    layout, draw = resnet18(), np.random.default_rng(0)
    start = 0.03 * draw.standard_normal(layout.size, dtype=np.float32)
    rows = draw.standard_normal((clients, layout.size), dtype=np.float32)
    rows *= np.linspace(0.002, 0.006, clients, dtype=np.float32)[:, None]
    rows += start
    one, numbers = Weights(layout, start, {}), np.arange(clients)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = RoundRecord(1, one, Weights(layout, rows, {}), one, None, *[numbers] * 4, np.full(clients, 1 / clients))
    write_round(path, record, compression)  # type: ignore[arg-type]


def read_seconds(path: Path) -> float:
    """Seconds of reading a file once from its beginning to its end, a MiB at a time."""
    buffer = bytearray(2**20)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def forget(path: Path) -> bool:
    """Drop a file from the system's cache, so that the disk is read; whether this system can."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def cold_lines(path: Path, work: Callable[[], object], size: int, wanted: float, repetitions: int) -> list[Line]:
    """How fast a file that is not in the system's cache is worked on, beside reading it, in turn.

    Args:
        size: bytes of the clients; wanted: GB/s from a warm cache, below which a disk is slow.
    """
    if not forget(path):
        return []
    reading, working = [], []
    for _ in range(repetitions):
        forget(path)
        reading.append(path.stat().st_size / read_seconds(path) / 1e9)
        forget(path)
        began = time.perf_counter()
        work()
        working.append(size / (time.perf_counter() - began) / 1e9)
    share = statistics.median(b / a for a, b in zip(reading, working, strict=True))
    slow = statistics.median(reading) < wanted
    return [
        Line("not in the cache: reading the file, GB/s", spread(reading)),
        Line("not in the cache: the same work, GB/s", spread(working)),
        Line(
            "as a share of reading",
            f"{share:.2f}",
            f">= 0.7 where the disk reads < {wanted:g}",
            share >= 0.7 if slow else None,
        ),
    ]


# --- the machine's own rate ---


@dataclass(frozen=True)
class Rate:
    """GFLOP/s by the clock on the wall, and GFLOP a second of processor time on all cores together."""

    wall: float
    processor: float


def product_rate(seconds: float = 0.6, sizes: Sequence[int] = (768, 1536)) -> Rate:
    """Float32 matrix products (2 n^3 each): the best of several sizes and of two ways to use the cores.

    One single-threaded worker a core, and torch's own threads: which is faster depends on the machine, and a ratio is
    only honest against the better one. Processor time is that of the workers: idle torch threads spin.
    """
    each = seconds / (2 * len(sizes))
    workers = [_workers_rate(size, each) for size in sizes]
    threads = [_multiply(size, time.perf_counter() + each) for size in sizes]
    return Rate(max([rate.wall for rate in workers] + threads), max(rate.processor for rate in workers))


def _workers_rate(size: int, seconds: float) -> Rate:
    import torch

    wall, processor = [0.0] * cores(), [0.0] * cores()
    own = torch.get_num_threads()
    ready = threading.Barrier(len(wall))

    def work(i: int) -> None:
        torch.set_num_threads(1)
        ready.wait()
        wall[i] = _multiply(size, time.perf_counter() + seconds)
        processor[i] = _multiply(size, time.thread_time() + seconds, time.thread_time)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(wall))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(own)
    return Rate(sum(wall), sum(processor))


def _multiply(size: int, end: float, clock: Callable[[], float] = time.perf_counter) -> float:
    import torch

    a, b, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    torch.mm(a, b, out=out)
    count, began = 0, clock()
    while clock() < end or not count:
        torch.mm(a, b, out=out)
        count += 1
    return count * 2 * size**3 / (clock() - began) / 1e9


def forward_gflop(module: Any, x: Any) -> float:
    """GFLOP of one forward pass: multiply-adds x 2 of the convolutions and linear layers, nothing else."""
    import torch
    from torch import nn

    total = 0

    def count(layer: Any, _: Any, output: Any) -> None:
        nonlocal total
        if isinstance(layer, nn.Linear):
            total += 2 * output.numel() * layer.in_features
        else:
            total += 2 * output.numel() * layer.weight[0].numel()

    hooks = [
        layer.register_forward_hook(count) for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.inference_mode():
        module(x[:1])
    for hook in hooks:
        hook.remove()
    return total * len(x) / 1e9


# --- the papers' network, with random but seeded samples and models ---


def paper_cnn() -> Any:
    """The source papers' CNN for colour images."""
    from fedscope.training import build_module, model_settings

    return build_module(model_settings("cnn"), IMAGE, CLASSES, seed=0)


def random_samples(count: int = SAMPLES) -> Any:
    """Images of noise, as the data sets of fedscope hand them out (channels last)."""
    import numpy as np
    import torch

    from fedscope.evaluation.samples import Samples

    draw = torch.Generator().manual_seed(0)
    x = torch.randn(count, *IMAGE, generator=draw).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (count,), generator=draw)
    return Samples(x, y, CLASSES, "noise", "test", np.arange(count))


def random_clients(module: Any, count: int, seed: int = 0) -> Any:
    """``count`` models [C, P] that scatter about the module's own parameters as clients do about their start."""
    import numpy as np

    from fedscope.checkpoints import Layout, Weights

    layout = Layout.of(module)
    start = layout.flatten({name: value.numpy() for name, value in module.state_dict().items()}).parameters
    rows = np.random.default_rng(seed).standard_normal((count, layout.size), dtype=np.float32)
    rows *= 0.1 * start.std()
    rows += start
    return Weights(layout, rows, {})


# --- memory ---


def memory_from_now() -> int:
    """Bytes in memory now; from here on :func:`peak_memory` counts anew, where the system can do that (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return _kilobytes(Path("/proc/self/status").read_text(encoding="ascii"), "VmRSS") * 1024
    except OSError:
        return peak_memory()


def peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    status = Path("/proc/self/status")
    if status.exists():
        return _kilobytes(status.read_text(encoding="ascii"), "VmHWM") * 1024
    # Not on Linux, where this number of a child starts at its parent's.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak_of_tree(process: int) -> int:
    """The peak memory of a process and its descendants that live now, added up: an upper bound of their common peak."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has just ended
            continue
        number = int(path.parent.name)
        parents[number], peaks[number] = _kilobytes(text, "PPid"), _kilobytes(text, "VmHWM") * 1024
    total = 0
    for number, peak in peaks.items():
        above = number
        while above not in (process, 0, 1) and above in parents:
            above = parents[above]
        total += peak if above == process else 0
    return total


def _kilobytes(status: str, key: str) -> int:
    for line in status.splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    return 0


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the script returns when a new Python calls it: peaks of memory start anew there."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(there, function, arguments))
    child.start()
    there.close()
    try:
        result = here.recv()
    except EOFError:
        sys.exit("the measuring process ended early")
    finally:
        child.join()
    return result


def _answer(there: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    there.send(function(*arguments))
    there.close()


def durable(run: Path | str) -> list[float]:
    """When each round of a run was on the disk, in seconds, as its files say.

    A watcher may be told later: of a round that was written beside the next one only while that is played.
    """
    return [path.stat().st_mtime_ns / 1e9 for path in sorted(Path(run, "rounds").glob("*.h5"))]
