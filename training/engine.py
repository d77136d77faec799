"""Where and how wide local training runs. The method's code is the same, and on CPUs so are the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Literal

import numpy as np
import torch
from torch import nn

from ..checkpoints import FedscopeError, Layout, Weights
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
class Trained:
    """A cohort after local training, in the order of its tasks.

    Attributes:
        clients: [C, P], filled row by row as clients finish, so that a cohort is in memory once.
        samples, steps, loss: [C]; the loss is the mean over the local steps.
        states: what each client keeps for its next participation.
    """

    clients: Weights
    samples: np.ndarray
    steps: np.ndarray
    loss: np.ndarray
    states: tuple[Mapping[str, np.ndarray], ...]


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

    def train(
        self, method: ClientMethod, tasks: Sequence[LocalTask], progress: Callable[[int, int], None] | None = None
    ) -> Trained:
        """Local training of a cohort; ``progress`` is told how many of its clients are done."""

        def work(task: LocalTask, bench: Workbench, stop: Event) -> LocalUpdate:
            return method.train(replace(task, bench=bench, stop=stop))

        def make() -> Workbench:
            return Workbench(self.module, self.device, self.precision)

        layout, count = Layout.of(self.module), len(tasks)
        clients = Weights(
            layout,
            np.empty((count, layout.size), layout.dtype),
            {entry.name: np.empty((count, *entry.shape), entry.dtype) for entry in layout.buffers},
        )
        samples, steps, loss = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
        states: list[Mapping[str, np.ndarray]] = []
        workers = 1 if self.name == "device" else self.workers
        for k, update in enumerate(run_in_workers(work, tasks, make=make, workers=workers)):
            clients.parameters[k] = update.weights.parameters
            for name, value in update.weights.buffers.items():
                clients.buffers[name][k] = value
            samples[k], steps[k], loss[k] = update.samples, update.steps, update.loss
            states.append(update.state)
            if progress is not None:
                progress(k + 1, count)
        return Trained(clients, samples, steps, loss, tuple(states))
