"""Engines of local training: where it runs, and how wide. The method's code is the same, and on CPUs so are the
numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from torch import Tensor, nn

from ...checkpoints import Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...distributed.worker import MapJob
from ...evaluation.accelerators import empty_cache, is_out_of_memory, refuse_without_memory
from ...evaluation.device import AHEAD, CPU, Compute, run_in_workers
from ...evaluation.uint8_images import Inputs
from ..guards.own_calls import ask, work_of
from ..guards.returned_arrays import is_own_method
from .cohort_storage import MEMORY, CohortStorage
from .local_training import LocalTask, LocalUpdate
from .own_samples import on_device
from .own_updates import refuse_group, refuse_survey, refused_updates
from .profile import Profile, time_span
from .subnormals import subnormals_as_zero
from .vectorized_model import VectorizedModel
from .vectorized_training import VectorizedTask, updates_of
from .worker_model import TrainableModel

if TYPE_CHECKING:
    from ..methods.base import ClientMethod, ClientState, State

Result = TypeVar("Result")
EngineName = Literal["threads", "device", "cohort"]

#: how many clients are trained in one pass, at most, and below which number they are trained one by one: fixed, because
#: the last bits of their numbers may depend on it
TOGETHER, FEWEST = 32, 4
#: parameters of a model for which a group's matrices, 2 x 32 models, take at most 26 MB
SMALL = 100_000
#: bytes of trained models that wait for a slower client, a worker, where two of them are not more
WAITING = 2**26


def group_by_samples(samples: Sequence[int]) -> list[list[int]]:
    """Clients by their number of samples, the largest first, in groups of at most `TOGETHER`.

    In a group the smaller wait for the largest: at most half of its rows' time is spent waiting.

    >>> group_by_samples([9, 50, 10, 400, 11])
    [[3, 1], [4, 2, 0]]
    """
    groups: list[list[int]] = []
    total = 0
    for k in sorted(range(len(samples)), key=lambda k: -samples[k]):
        own = groups[-1] if groups else []
        if not own or len(own) == TOGETHER or (len(own) + 1) * samples[own[0]] > 2 * (total + samples[k]):
            groups.append([k])
            total = samples[k]
        else:
            own.append(k)
            total += samples[k]
    return groups


@dataclass(frozen=True)
class Trained:
    """A cohort after local training, in the order of its tasks.

    Attributes:
        clients: [C, P], filled row by row as clients finish, so that a cohort is in memory once, or on the disk.
        samples, steps, loss, reach: [C], see :class:`fedscope.training.local.local_training.LocalUpdate`.
        message: the average of what they send with their models, float64.
        message_size: how many numbers one client sends with its model.
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
    many workers there are. ``device`` trains one after the other on an accelerator; on several of a kind each device
    trains clients of its own, with the numbers that one of them alone would give. ``cohort`` trains up to
    :data:`TOGETHER` clients in one pass, which numbers differ from by rounding; what else is asked of clients is done
    one by one. See :func:`fedscope.training.local.engine_choice.engine_of`.

    A device without memory for several clients trains one by one from then on, with a warning. On a cluster
    (``compute.cluster``) a client, or a group of clients that go together, is a task of a worker there, with the same
    numbers; a profile holds the round's parts alone then.

    Attributes:
        kind: of a run; ``auto`` is one by one.

    Raises:
        FedscopeError: a device without memory for one client.
    """

    module: nn.Module
    compute: Compute = CPU
    profile: Profile | None = None
    kind: Literal["auto", "threads", "device", "cohort"] = "auto"
    _narrowed: Event = field(default_factory=Event, repr=False, compare=False)
    _benches: list[GroupBenches] = field(default_factory=list, init=False, repr=False, compare=False)
    _copies: dict[str, tuple[Inputs, Tensor, Inputs, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def train(
        self,
        method: ClientMethod,
        tasks: Sequence[LocalTask],
        p: np.ndarray,
        progress: Callable[[int, int], None] | None = None,
        storage: CohortStorage = MEMORY,
    ) -> Trained:
        """Local training of a cohort; ``progress`` is told how many of its clients are done.

        Args:
            p: [C], the weights of the clients, for their messages.
            storage: where their models and what they keep are collected.
        """
        count = len(tasks)
        models, states, messages = _Rows(count, storage), _Rows(count, storage), _Average()
        shares = p if method.message_weighting == "p" else np.full(count, 1 / count)
        samples, steps, loss, reach = (np.empty(count, dtype) for dtype in (np.int64, np.int64, float, float))
        together = self.kind == "cohort" and method.takes_several and not self._narrowed.is_set()
        trained = self._together(method, tasks) if together else enumerate(self.each(work_of(method, "train"), tasks))
        updates = refused_updates(method, tasks, trained)
        waiting: dict[int, State] = {}
        for done, (k, update) in enumerate(updates, start=1):
            models.put(k, {"model": tasks[k].facts.settled(update.weights, tasks[k].start)})
            states.put(k, {**update.state, **update.optimiser})
            samples[k], steps[k], loss[k], reach[k] = update.samples, update.steps, update.loss, update.reach
            waiting[k] = update.message
            # in the cohort's order, in which sums of floats are always the same
            while (following := messages.count) in waiting:
                messages.add(waiting.pop(following), float(shares[following]))
            if progress is not None:
                progress(done, count)
        clients = models.named["model"]
        assert isinstance(clients, Weights)
        return Trained(clients, samples, steps, loss, reach, messages.total, messages.size, states.named)

    def _together(
        self, method: ClientMethod, tasks: Sequence[LocalTask]
    ) -> Generator[tuple[int, LocalUpdate], None, None]:
        """Yield the updates of all tasks and where these stand; clients with about as many steps go together, see
        :func:`group_by_samples`."""

        @subnormals_as_zero()
        def in_one_pass(group: Sequence[int], benches: GroupBenches, stop: Event) -> list[LocalUpdate]:
            members = [self._brought(tasks[k], benches.compute.device) for k in group]
            task = replace(VectorizedTask.of(members), bench=benches.of(len(group)), stop=stop)
            with time_span(self.profile, "train", task.round, task.client):
                return updates_of(task, refuse_group(method, task, ask(method, method.train, task)))

        def on_bench(group: Sequence[int], benches: GroupBenches, stop: Event) -> list[LocalUpdate]:
            device = benches.compute.device
            if len(group) >= FEWEST and not self._narrowed.is_set():
                with suppress(NoMemory), out_of_memory_as_one():
                    return in_one_pass(group, benches, stop)
                # here and not in an `except`, which would keep the tensors of the failed attempt alive
                benches.clear()
                empty_cache(device)
                if not self._narrowed.is_set():
                    self._narrowed.set()
                    warn_user(
                        f"{device} ran out of memory with {len(group)} clients at a time; they are trained one by one"
                    )
            train = work_of(method, "train")
            return [self._alone(train, tasks[k], self._bench(benches.compute), stop) for k in group]

        groups = group_by_samples([len(task.indices) for task in tasks])
        if self.compute.cluster is not None:
            job = self._job(OfGroup(method), tasks, groups=True)
            done = self.compute.cluster.run(job, [[tasks[k] for k in group] for group in groups])
            for group, updates in zip(groups, done, strict=True):
                yield from zip(group, updates, strict=True)
            return
        benches = self._benches if self._small else []
        if not benches:  # one for each device, the first of which is taken first
            places = reversed(range(len(self.compute.devices)))
            benches += [GroupBenches(self.module, self.compute.on(k)) for k in places]
        # one thread of torch's each: with several the last bits depend on how many, where a loss has exponentials
        done = run_in_workers(
            on_bench,
            groups,
            make=lambda: GroupBenches(self.module, self.compute.on(0)),
            workers=self.compute.workers,
            idle=benches,
        )
        for group, updates in zip(groups, done, strict=True):
            yield from zip(group, updates, strict=True)

    @property
    def _small(self) -> bool:
        """True if a group's models and gradients take so little memory that they are kept between rounds."""
        return sum(parameter.numel() for parameter in self.module.parameters()) <= SMALL

    @property
    def _ahead(self) -> int:
        """The number of clients that a worker may be ahead of the eldest one that trains: their models wait in
        memory."""
        size = sum(parameter.numel() * parameter.element_size() for parameter in self.module.parameters())
        return max(2, min(AHEAD, WAITING // max(1, size)))

    def survey(self, method: ClientMethod, tasks: Sequence[LocalTask], p: np.ndarray) -> State:
        """Compute the average with p, in float64, of what the cohort's surveys give."""
        average, first = _Average(), None
        for k, found in enumerate(self.each(work_of(method, "survey"), tasks)):
            if is_own_method(method):
                first = found if first is None else first
                refuse_survey(method, found, first, tasks[k])
            average.add(found, float(p[k]))
        return average.total

    def each(self, work: Callable[[LocalTask], Result], tasks: Sequence[LocalTask]) -> Generator[Result, None, None]:
        """``work(task)`` for every task, in their order, each with its worker's bench."""
        if self.compute.cluster is not None:
            yield from self.compute.cluster.run(self._job(OfOne(work), tasks), tasks)
            return

        def on_bench(task: LocalTask, bench: TrainableModel, stop: Event) -> Result:
            return self._alone(work, task, bench, stop)

        turn = numbers()

        def make() -> TrainableModel:
            return self._bench(self.compute.on(next(turn) % len(self.compute.devices)))

        yield from run_in_workers(on_bench, tasks, make=make, workers=self.compute.workers, ahead=self._ahead)

    def _job(self, work: Any, tasks: Sequence[LocalTask], *, groups: bool = False) -> MapJob[Any, Any]:
        """For a cluster, whose workers keep the data."""
        constants = [tasks[0].x, tasks[0].y, tasks[0].facts] if tasks else []
        ahead = min(MapJob.ahead, self._ahead)
        return MapJob(work, NewBench(self.module, self.compute.here, groups=groups), _describe_task, constants, ahead)

    def _bench(self, compute: Compute) -> TrainableModel:
        """Make a worker's bench on one device. Raises FedscopeError: it has no memory for a model."""
        with refuse_without_memory(compute.device, "hold one model and its gradient"):
            return TrainableModel(self.module, compute)

    def _brought(self, task: LocalTask, device: str) -> LocalTask:
        """Return a task with its data on a device, to each of which they are brought once."""
        if device == self.compute.device:
            return task
        known = self._copies.get(device)
        if known is None or known[0] is not task.x or known[1] is not task.y:
            with refuse_without_memory(device, "hold the training data", "name fewer devices, or give --device cpu"):
                known = (task.x, task.y, task.x.to(device), task.y.to(device))
            self._copies[device] = known
        return replace(task, x=known[2], y=known[3])

    @subnormals_as_zero()
    def _alone(
        self, work: Callable[[LocalTask], Result], task: LocalTask, bench: TrainableModel, stop: Event
    ) -> Result:
        device = bench.compute.device
        doing = f"train client {task.client} in round {task.round}"
        with (
            time_span(self.profile, getattr(work, "__name__", "work"), task.round, task.client),
            refuse_without_memory(device, doing, "give a smaller --batch, or --device cpu"),
        ):
            return work(replace(self._brought(task, device), bench=bench, stop=stop))


@dataclass(frozen=True)
class NewBench:
    """Makes a worker's bench elsewhere, or with ``groups`` a place for those of groups of clients."""

    module: nn.Module
    compute: Compute
    groups: bool = False

    def __call__(self) -> TrainableModel | GroupBenches:
        """Return the bench."""
        return GroupBenches(self.module, self.compute) if self.groups else TrainableModel(self.module, self.compute)


class GroupBenches:
    """Benches on one device, by how many clients they are for.

    Attributes:
        compute: the device.
    """

    def __init__(self, module: nn.Module, compute: Compute) -> None:
        self.compute = compute
        self._module = module
        self._alone: TrainableModel | None = None
        self._made: dict[int, VectorizedModel] = {}

    @property
    def one(self) -> TrainableModel:
        """For one client."""
        if self._alone is None:
            self._alone = TrainableModel(self._module, self.compute)
        return self._alone

    def of(self, count: int) -> VectorizedModel:
        """For so many clients."""
        if count not in self._made:
            self._made[count] = VectorizedModel(self._module, count, self.compute)
        return self._made[count]

    def clear(self) -> None:
        """Let go of all of them."""
        self._alone, self._made = None, {}


class NoMemory(Exception):
    """Memory has run out, however it was said."""


@contextmanager
def out_of_memory_as_one() -> Iterator[None]:
    """Raise :class:`NoMemory` for whatever says that memory has run out."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise NoMemory from None


@dataclass(frozen=True)
class OfOne:
    """The work on one client's task, on another machine."""

    work: Callable[[LocalTask], Any]

    @subnormals_as_zero()
    def __call__(self, task: LocalTask, bench: TrainableModel, stop: Event) -> Any:
        """Do the work."""
        (task,) = on_device([task], bench.compute)
        return self.work(replace(task, bench=bench, stop=stop))


@dataclass(frozen=True)
class OfGroup:
    """Local training of a group of clients in one pass, elsewhere: as :meth:`Engine.train` does it here."""

    method: ClientMethod

    @subnormals_as_zero()
    def __call__(self, tasks: list[LocalTask], benches: GroupBenches, stop: Event) -> list[LocalUpdate]:
        """Return the updates, in the order of the tasks."""
        tasks = on_device(tasks, benches.one.compute)
        if len(tasks) < FEWEST:
            train = work_of(self.method, "train")
            return [train(replace(task, bench=benches.one, stop=stop)) for task in tasks]
        task = replace(VectorizedTask.of(tasks), bench=benches.of(len(tasks)), stop=stop)
        return updates_of(task, refuse_group(self.method, task, ask(self.method, self.method.train, task)))


def _describe_task(item: LocalTask | list[LocalTask]) -> str:
    """``round 3, client 7``: what sentences call a task, or a group of them."""
    tasks = item if isinstance(item, list) else [item]
    which = "client" if len(tasks) == 1 else "clients"
    return f"round {tasks[0].round}, {which} {list_few([task.client for task in tasks], 6)}"


class _Average:
    """A running weighted sum of arrays by name, so that messages need not be in memory all at once."""

    def __init__(self) -> None:
        self.total: dict[str, np.ndarray] = {}
        self.size = self.count = 0

    def add(self, arrays: State, share: float) -> None:
        """Add one client's, weighted."""
        self.count += 1
        self.size = sum(np.size(array) for array in arrays.values())
        for name, array in arrays.items():
            if name not in self.total:
                self.total[name] = np.zeros(np.shape(array), np.float64)
            self.total[name] += share * np.asarray(array, np.float64)


class _Rows:
    """C states of equal names, models among them, filled row by row, so that they are in memory once.

    Of arrays of several types the rows have the one that holds all: 0 and 0.75 are 0.0 and 0.75, in whichever order.
    """

    def __init__(self, count: int, storage: CohortStorage) -> None:
        self.count, self.storage = count, storage
        self.named: dict[str, Weights | np.ndarray] = {}
        self._filled: list[int] = []

    def put(self, k: int, state: ClientState) -> None:
        """One client's."""
        for name, value in state.items():
            if isinstance(value, Weights):
                if name not in self.named:
                    empty = {key: self._empty(buffer) for key, buffer in value.buffers.items()}
                    self.named[name] = Weights(value.layout, self._vectors(value.parameters), empty)
                rows = self.named[name]
                assert isinstance(rows, Weights)
                rows.parameters[k] = value.parameters
                for key, buffer in value.buffers.items():
                    rows.buffers[key][k] = buffer
            else:
                found = self.named.get(name)
                assert not isinstance(found, Weights)
                array = np.asarray(value)
                kind = array.dtype if found is None else np.result_type(found.dtype, array.dtype)
                if found is None or kind != found.dtype:
                    self.named[name] = found = self._widened(found, np.empty(array.shape, kind))
                found[k] = array
        self._filled.append(k)

    def _widened(self, rows: np.ndarray | None, like: np.ndarray) -> np.ndarray:
        """Rows of a type, with those that are filled already."""
        wide = self._vectors(like) if like.ndim == 1 else self._empty(like)
        if rows is not None:
            for k in self._filled:
                wide[k] = rows[k]
        return wide

    def _vectors(self, like: np.ndarray) -> np.ndarray:
        return self.storage.rows(self.count, like.size, like.dtype)

    def _empty(self, like: np.ndarray) -> np.ndarray:
        return np.empty((self.count, *np.shape(like)), np.asarray(like).dtype)
