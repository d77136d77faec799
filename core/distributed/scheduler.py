"""The driver's side: items given to workers that may be lost at any moment, results in the order of the items."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..checkpoints import FedscopeError
from ..checkpoints.io.warn_user import warn_user
from .serialization import Parcel, Serializer
from .worker import CONTEXTS, Item, MapJob, Result, TaskResult, WorkerInfo

#: batches that a worker has at a time: the next one is there when it has done one
IN_FLIGHT = 2
#: small items go in batches of about so many seconds: a message takes about a millisecond
BATCH = 0.04
#: losses of a worker after which its item is taken to be the reason
MAX_LOSSES = 3
#: workers in a row that end before they have begun, after which the reason is the same for all
FAILED_STARTS = 5
#: seconds to wait for a first worker
PATIENCE = 60.0


class WorkerLost(Exception):
    """A worker is gone, or its result."""


class WorkerBackend(Protocol):
    """A source of workers. A ticket stands for an answer that comes later."""

    @property
    def device(self) -> str:
        """The kind of device on which its workers compute: ``cpu``, ``cuda``."""

    @property
    def size(self) -> int:
        """The number of workers that there is room for now."""

    @property
    def serializer(self) -> Serializer:
        """The serializer for its workers."""

    @property
    def about(self) -> dict[str, str]:
        """The backend's entries in a run's provenance."""

    def start(self) -> Any:
        """Ask for a worker; calls to it wait until it is there."""

    def info(self, worker: Any) -> Any:
        """Ask for a worker's :class:`WorkerInfo`; returns a ticket."""

    def set_context(self, worker: Any, context: str, make: Parcel) -> Any:
        """Have a worker make a context; returns a ticket for the :class:`TaskResult`."""

    def work(self, worker: Any, context: str, batch: Parcel) -> Any:
        """Have a worker do a batch; returns a ticket for the results."""

    def done(self, tickets: Sequence[Any], timeout: float) -> list[Any]:
        """Wait for tickets whose answers are there, so many seconds at most."""

    def answer(self, ticket: Any) -> Any:
        """Take the answer of a ticket.

        Raises:
            WorkerLost: there will be none.
        """

    def stop(self, worker: Any) -> None:
        """End a worker, if it is not gone."""


@dataclass(frozen=True)
class _Assignment:
    """Work sent to a worker: a batch of items, or with no items a context to make; ``parcel`` is its name."""

    ticket: Any
    numbers: list[int]
    parcel: str = ""


@dataclass
class _PoolWorker:
    """A worker with its contexts (the last ones that were set: the worker itself forgets the same ones) and its
    assignments, of which it does the first."""

    worker: Any
    starting: Any
    info: WorkerInfo | None = None
    contexts: deque[str] = field(default_factory=lambda: deque(maxlen=CONTEXTS))
    assignments: deque[_Assignment] = field(default_factory=deque)

    @property
    def busy(self) -> int:
        """Batches that it has."""
        return sum(bool(assignment.numbers) for assignment in self.assignments)


class _Work:
    """The items of a job: those that wait, the results of others, and their losses of workers."""

    def __init__(self, job: MapJob[Any, Any], items: list[Any]) -> None:
        self.job, self.items = job, items
        self.waiting = deque(range(len(items)))
        self.results: dict[int, Any] = {}
        self._losses: Counter[int] = Counter()

    def next(self, most: int, before: int) -> list[int]:
        """Take up to so many items that wait; one that has lost a worker goes alone."""
        taken: list[int] = []
        while self.waiting and len(taken) < most and self.waiting[0] < before:
            if taken and (self._losses[self.waiting[0]] or self._losses[taken[0]]):
                break
            taken.append(self.waiting.popleft())
        return taken

    def requeue(self, numbers: list[int]) -> None:
        """Let items wait once more."""
        self.waiting = deque(sorted([*self.waiting, *numbers]))

    def count_loss(self, numbers: list[int]) -> None:
        """Count a loss.

        Raises:
            FedscopeError: one too many for one item.
        """
        self._losses.update(numbers)
        for number in numbers:
            if self._losses[number] > MAX_LOSSES:
                raise FedscopeError(
                    f"{self.job.name(self.items[number])} has ended its worker {self._losses[number]} times, and no "
                    "other work has: look for too little memory (Ray ends workers that take too much) or for code that "
                    "ends its process; what was complete is kept, and --resume goes on"
                )


class WorkerPool:
    """Workers of a backend, kept from job to job.

    Retries are decided here: a worker that is lost loses all that it had to do, which goes to others, and another one
    is asked for in its place; a worker gets work only once it has said what it is. So results do not depend on who is
    lost, and an item that ends worker after worker is named.

    Args:
        pool: where workers come from.
        patience: seconds without any worker after which the work ends.
    """

    def __init__(self, backend: WorkerBackend, *, patience: float = PATIENCE) -> None:
        self.backend, self.patience = backend, patience
        self._members: list[_PoolWorker] = []
        self._contexts: OrderedDict[Hashable, tuple[str, Parcel]] = OrderedDict()
        self._numbers = 0
        self._seconds: dict[str, float] = {}
        self._warned: set[str] = set()
        self._alone_since = time.monotonic()
        self._failed_starts = 0

    @property
    def device(self) -> str:
        """The kind of device on which the workers compute."""
        return self.backend.device

    def begin(self) -> list[WorkerInfo]:
        """Wait for the workers that there is room for, some seconds longer than for the first; returns what they are.

        Raises:
            FedscopeError: no worker comes; one is of another version.
        """
        self._start_missing()
        self._alone_since = began = time.monotonic()
        late = began + self.patience
        while any(member.info is None for member in self._members) and time.monotonic() < late:
            self._collect()
            if any(member.info for member in self._members):
                late = min(late, max(began + 15.0, time.monotonic()))
        return [member.info for member in self._members if member.info is not None]

    def describe(self) -> dict[str, str]:
        """Describe the workers: whose, how many on how many machines, and what their numbers depend on. Raises as
        :meth:`begin`."""
        infos = self.begin()
        places = {one.place for one in infos}
        devices = {"devices": ", ".join(sorted({one.device for one in infos}))} if self.device != "cpu" else {}
        return {
            "workers": f"{len(infos)} on {len(places)} machine{'s' if len(places) > 1 else ''}",
            "capability": ", ".join(sorted({one.capability for one in infos})),
            **devices,
            **self.backend.about,
        }

    def run(self, job: MapJob[Item, Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield ``task(item, context, stop)`` for every item, in the order of the items.

        Raises:
            FedscopeError: an item whose worker is lost time and again; no worker is left.
            the error of a task.
        """
        work = _Work(job, list(items))
        if not work.items:
            return
        self.backend.serializer.keep(job.constants)
        context = self._context(job)
        self._start_missing()
        self._alone_since = time.monotonic()
        try:
            for number in range(len(work.items)):
                while number not in work.results:
                    self._hand_out(work, context, number)
                    self._collect(work, context)
                yield work.results.pop(number)
        finally:
            for member in self._members:  # of a job that has ended early: nobody asks for what is being done
                for assignment in member.assignments:
                    self.backend.serializer.release(assignment.parcel)
                member.assignments.clear()

    def close(self) -> None:
        """End all workers."""
        for member in self._members:
            self.backend.stop(member.worker)
        self._members.clear()

    # --- workers ---

    def _start_missing(self) -> None:
        """Start workers where some are missing."""
        while len(self._members) < max(1, self.backend.size):
            worker = self.backend.start()
            self._members.append(_PoolWorker(worker, self.backend.info(worker)))

    def _admit(self, member: _PoolWorker, info: WorkerInfo) -> None:
        own = WorkerInfo.here(self.device)
        if info.versions != own.versions:
            names = ("fedscope", "torch", "Python")
            other = [
                f"{name} {there}, not {here}"
                for name, there, here in zip(names, info.versions, own.versions, strict=True)
                if there != here
            ]
            raise FedscopeError(
                f"a worker on {info.place} has {' and '.join(other)} as here; install the same there, and start the "
                "cluster again"
            )
        if info.capability != own.capability:
            self._warn_once(
                f"the cluster is mixed: {info.place} computes with {info.capability}, this machine with "
                f"{own.capability}; last bits of what is computed there may differ"
            )
        if info.device != own.device:
            self._warn_once(
                f"the cluster is mixed: {info.place} computes on {info.device}, this machine on {own.device}; last "
                "bits of what is computed there may differ"
            )
        member.info = info
        self._failed_starts = 0

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            warn_user(sentence)

    def _replace(self, member: _PoolWorker, work: _Work | None) -> None:
        """Give up a lost worker: its items go to others, one by one, and another worker is started."""
        self._members.remove(member)
        self.backend.stop(member.worker)
        if work is not None:
            for assignment in member.assignments:
                self.backend.serializer.release(assignment.parcel)
                work.requeue(assignment.numbers)
            if member.assignments:
                work.count_loss(member.assignments[0].numbers)
        self._start_missing()
        if not any(member.info for member in self._members):
            self._alone_since = time.monotonic()

    # --- work ---

    def _context(self, job: MapJob[Any, Any]) -> str:
        """Name a job's context, whose parcel stays as long as workers may have it; "" where it has none."""
        if job.make is None:
            return ""
        if job.make not in self._contexts:
            name = self._named("context")
            self._contexts[job.make] = name, self.backend.serializer.pack(name, job.make)
            while len(self._contexts) > CONTEXTS:
                _, (old, _) = self._contexts.popitem(last=False)
                self.backend.serializer.release(old)
                self._seconds.pop(old, None)
        self._contexts.move_to_end(job.make)
        return self._contexts[job.make][0]

    def _hand_out(self, work: _Work, context: str, wanted: int) -> None:
        """Give workers what they can take, the earliest items first."""
        ready = [member for member in self._members if member.info is not None]
        for depth in range(1, IN_FLIGHT + 1):  # everybody has one before anybody has two
            for member in ready:
                if member.busy >= depth:
                    continue
                numbers = work.next(self._batch(work, context, len(ready)), wanted + work.job.ahead * len(ready))
                if not numbers:
                    return
                if context and context not in member.contexts:
                    make = next(parcel for name, parcel in self._contexts.values() if name == context)
                    member.assignments.append(_Assignment(self.backend.set_context(member.worker, context, make), []))
                    member.contexts.append(context)
                name = self._named("batch")
                content = (work.job.task, [work.items[number] for number in numbers])
                ticket = self.backend.work(member.worker, context, self.backend.serializer.pack(name, content))
                member.assignments.append(_Assignment(ticket, numbers, name))

    def _named(self, what: str) -> str:
        self._numbers += 1
        return f"{what} {self._numbers}"

    def _batch(self, work: _Work, context: str, workers: int) -> int:
        seconds = self._seconds.get(context)
        if not seconds:
            return 1
        fair = -(-len(work.waiting) // (IN_FLIGHT * workers))
        return max(1, min(int(BATCH / seconds), fair))

    def _collect(self, work: _Work | None = None, context: str = "") -> None:
        """Wait for some answer, a second at most, and take all that are there."""
        asked: dict[Any, _PoolWorker] = {}
        for member in self._members:
            if member.info is None:
                asked[member.starting] = member
            elif member.assignments:
                asked[member.assignments[0].ticket] = member
        for ticket in self.backend.done(list(asked), 1.0):
            member = asked[ticket]
            try:
                answer = self.backend.answer(ticket)
            except WorkerLost as why:
                self._failed_starts += member.info is None
                if self._failed_starts >= FAILED_STARTS:
                    raise FedscopeError(
                        f"workers of the cluster end as they begin ({why}); install fedscope on every machine, as here"
                    ) from None
                self._replace(member, work)
                continue
            if isinstance(answer, WorkerInfo):
                self._admit(member, answer)
                continue
            assignment = member.assignments.popleft()
            self.backend.serializer.release(assignment.parcel)
            assert work is not None
            if not assignment.numbers:
                self._result_of(answer)
                continue
            for number, outcome in zip(assignment.numbers, answer, strict=False):  # an error is the last one
                work.results[number] = self._result_of(outcome)
                self._seconds[context] = outcome.seconds
        if any(member.info for member in self._members):
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > self.patience:
            raise FedscopeError(
                f"the cluster has given no worker for {self.patience:.0f} s: it has left, or others use all of it; "
                "what was complete is kept, so give the same command again, or go on with --resume"
            )

    def _result_of(self, outcome: TaskResult) -> Any:
        for sentence in outcome.said:
            self._warn_once(sentence)
        return outcome.result()
