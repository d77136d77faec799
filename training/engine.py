"""Where and how wide local training runs. The method's code is the same, and on CPUs so are the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Literal

import torch
from torch import nn

from ..checkpoints import FedscopeError
from ..landscape import run_in_workers
from .local import LocalTask, LocalUpdate, Workbench
from .methods import ClientMethod

EngineName = Literal["threads", "device"]


def resolve_device(device: str) -> str:
    """``auto`` as ``cuda`` where there is one, else ``cpu``.

    Raises:
        FedscopeError: a device that this machine does not have.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise FedscopeError(f"device = {device!r} is not a device; use auto, cpu or cuda") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise FedscopeError(
            f"device = {device!r}, but torch {torch.__version__} sees no CUDA device here; use --device cpu"
        )
    if kind not in ("cpu", "cuda"):
        raise FedscopeError(f"device = {device!r} is not supported; use auto, cpu or cuda")
    return device


def resolve_engine(engine: str, device: str) -> EngineName:
    """``auto`` as ``threads`` on CPUs and ``device`` on an accelerator.

    Raises:
        FedscopeError: an engine that does not go with the device.
    """
    fitting: EngineName = "threads" if torch.device(device).type == "cpu" else "device"
    if engine not in ("auto", fitting):
        raise FedscopeError(
            f"run.engine = {engine!r} does not go with run.device = {device!r}; give --set run.engine=auto"
        )
    return fitting


@dataclass(frozen=True)
class Engine:
    """Trains clients of one architecture.

    ``threads`` trains one client a worker, one single-threaded worker a core: a client's numbers do not depend on how
    many workers there are. ``device`` trains one after the other on an accelerator.
    """

    module: nn.Module
    name: EngineName = "threads"
    device: str = "cpu"
    precision: str = "float32"
    workers: int | None = None

    def train(self, method: ClientMethod, tasks: Sequence[LocalTask]) -> Iterator[LocalUpdate]:
        """The clients' updates, in the order of the tasks, each as soon as it and its predecessors are ready."""

        def work(task: LocalTask, bench: Workbench, stop: Event) -> LocalUpdate:
            return method.train(replace(task, bench=bench, stop=stop))

        make: Callable[[], Workbench] = lambda: Workbench(self.module, self.device, self.precision)  # noqa: E731
        workers = 1 if self.name == "device" else self.workers
        return run_in_workers(work, tasks, make=make, workers=workers)
