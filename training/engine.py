"""Where and how wide local training runs. The method's code is the same, and on CPUs so are the numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Literal, TypeVar

import numpy as np
from torch import nn

from ..checkpoints import FedscopeError, Layout, Weights
from ..landscape import run_in_workers
from ..landscape.evaluation.compute import CPU, Compute
from .bench import Workbench
from .local import LocalTask
from .methods import ClientMethod, ClientState, State

Result = TypeVar("Result")
EngineName = Literal["threads", "device"]


def engine_on(device: str, engine: str = "auto") -> EngineName:
    """``threads`` on CPUs and ``device`` on an accelerator, which is what ``auto`` means.

    Raises:
        FedscopeError: an engine that does not go with the device.
    """
    fitting: EngineName = "threads" if device.startswith("cpu") else "device"
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
        samples, steps, loss, reach: [C], see :class:`fedscope.training.local.LocalUpdate`.
        message: the average of what they send beside their models, float64.
        message_size: how many numbers one client sends beside its model.
        states: by name, what they keep for their next participation: models or vectors [C, P], or arrays [C, ...].
    """

    clients: Weights
    samples: np.ndarray
    steps: np.ndarray
    loss: np.ndarray
    reach: np.ndarray
    message: State
    message_size: int
    states: Mapping[str, Weights | np.ndarray]


@dataclass(frozen=True)
class Engine:
    """Trains clients of one architecture.

    ``threads`` trains one client a worker, one single-threaded worker a core: a client's numbers do not depend on how
    many workers there are. ``device`` trains one after the other on an accelerator.
    """

    module: nn.Module
    compute: Compute = CPU

    def train(
        self,
        method: ClientMethod,
        tasks: Sequence[LocalTask],
        p: np.ndarray,
        progress: Callable[[int, int], None] | None = None,
    ) -> Trained:
        """Local training of a cohort; ``progress`` is told how many of its clients are done.

        Args:
            p: [C], the weights of the clients, for their messages.
        """
        layout, count = Layout.of(self.module), len(tasks)
        clients = Weights(
            layout,
            np.empty((count, layout.size), layout.dtype),
            {entry.name: np.empty((count, *entry.shape), entry.dtype) for entry in layout.buffers},
        )
        samples, steps = np.empty(count, np.int64), np.empty(count, np.int64)
        loss, reach = np.empty(count), np.empty(count)
        states = _Rows(count)
        messages = _Average()
        shares = p if method.message_weighting == "p" else np.full(count, 1 / count)
        for k, update in enumerate(self.each(method.train, tasks)):
            clients.parameters[k] = update.weights.parameters
            for name, value in update.weights.buffers.items():
                clients.buffers[name][k] = value
            samples[k], steps[k], loss[k], reach[k] = update.samples, update.steps, update.loss, update.reach
            messages.add(update.message, float(shares[k]))
            states.put(k, update.state)
            if progress is not None:
                progress(k + 1, count)
        return Trained(clients, samples, steps, loss, reach, messages.total, messages.size, states.named)

    def survey(self, method: ClientMethod, tasks: Sequence[LocalTask], p: np.ndarray) -> State:
        """The average with p, in float64, of what the cohort's surveys give."""
        average = _Average()
        for k, found in enumerate(self.each(method.survey, tasks)):
            average.add(found, float(p[k]))
        return average.total

    def each(self, work: Callable[[LocalTask], Result], tasks: Sequence[LocalTask]) -> Generator[Result, None, None]:
        """``work(task)`` for every task, in their order, each with its worker's bench."""

        def on_bench(task: LocalTask, bench: Workbench, stop: Event) -> Result:
            return work(replace(task, bench=bench, stop=stop))

        def make() -> Workbench:
            return Workbench(self.module, self.compute)

        return run_in_workers(on_bench, tasks, make=make, workers=self.compute.workers)


class _Average:
    """A running weighted sum of arrays by name, so that messages are never in memory all at once."""

    def __init__(self) -> None:
        self.total: dict[str, np.ndarray] = {}
        self.size = 0

    def add(self, arrays: State, share: float) -> None:
        """Add one client's, weighted."""
        self.size = sum(np.size(array) for array in arrays.values())
        for name, array in arrays.items():
            if name not in self.total:
                self.total[name] = np.zeros(np.shape(array), np.float64)
            self.total[name] += share * np.asarray(array, np.float64)


class _Rows:
    """C states of equal names, filled row by row, so that they are in memory once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.named: dict[str, Weights | np.ndarray] = {}

    def put(self, k: int, state: ClientState) -> None:
        """One client's."""
        for name, value in state.items():
            if isinstance(value, Weights):
                self._model(k, name, value)
            else:
                if name not in self.named:
                    self.named[name] = np.empty((self.count, *np.shape(value)), np.asarray(value).dtype)
                rows = self.named[name]
                assert not isinstance(rows, Weights)
                rows[k] = value

    def _model(self, k: int, name: str, model: Weights) -> None:
        if name not in self.named:
            buffers = {key: np.empty((self.count, *value.shape), value.dtype) for key, value in model.buffers.items()}
            parameters = np.empty((self.count, *model.parameters.shape), model.parameters.dtype)
            self.named[name] = Weights(model.layout, parameters, buffers)
        rows = self.named[name]
        assert isinstance(rows, Weights)
        rows.parameters[k] = model.parameters
        for key, value in model.buffers.items():
            rows.buffers[key][k] = value
