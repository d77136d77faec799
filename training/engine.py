"""Where and how wide local training runs. The method's code is the same, and on CPUs so are the numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Literal, TypeVar

import numpy as np
from torch import nn

from ..checkpoints import FedscopeError, Weights
from ..landscape import run_in_workers
from ..landscape.evaluation.compute import CPU, Compute
from .local_training import LocalTask
from .methods import ClientMethod, ClientState, State
from .profile import Profile, timed
from .workbench import Workbench

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
        samples, steps, loss, reach: [C], see :class:`fedscope.training.local_training.LocalUpdate`.
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
    profile: Profile | None = None

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
        count = len(tasks)
        models, states, messages = _Rows(count), _Rows(count), _Average()
        shares = p if method.message_weighting == "p" else np.full(count, 1 / count)
        numbers = []
        for k, update in enumerate(self.each(method.train, tasks)):
            models.put(k, {"model": update.weights})
            states.put(k, update.state)
            messages.add(update.message, float(shares[k]))
            numbers.append((update.samples, update.steps, update.loss, update.reach))
            if progress is not None:
                progress(k + 1, count)
        clients = models.named["model"]
        assert isinstance(clients, Weights)
        samples, steps, loss, reach = map(np.array, zip(*numbers, strict=True))
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
            with timed(self.profile, getattr(work, "__name__", "work"), task.round, task.client):
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
    """C states of equal names, models among them, filled row by row, so that they are in memory once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.named: dict[str, Weights | np.ndarray] = {}

    def put(self, k: int, state: ClientState) -> None:
        """One client's."""
        for name, value in state.items():
            if isinstance(value, Weights):
                if name not in self.named:
                    empty = {key: self._empty(buffer) for key, buffer in value.buffers.items()}
                    self.named[name] = Weights(value.layout, self._empty(value.parameters), empty)
                rows = self.named[name]
                assert isinstance(rows, Weights)
                rows.parameters[k] = value.parameters
                for key, buffer in value.buffers.items():
                    rows.buffers[key][k] = buffer
            else:
                if name not in self.named:
                    self.named[name] = self._empty(value)
                rows = self.named[name]
                assert isinstance(rows, np.ndarray)
                rows[k] = value

    def _empty(self, like: np.ndarray) -> np.ndarray:
        return np.empty((self.count, *np.shape(like)), np.asarray(like).dtype)
