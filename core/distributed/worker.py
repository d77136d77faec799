"""The worker's side: tasks, the contexts that they run in, and their results."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from time import perf_counter
from typing import Any, Generic, TypeVar

from ..checkpoints import FedscopeError, FedscopeWarning
from .serialization import unpack

Item = TypeVar("Item")
Result = TypeVar("Result")

#: contexts of a worker, at most
CONTEXTS = 4


@dataclass(frozen=True)
class MapJob(Generic[Item, Result]):
    """A task to be done for each of many items.

    Attributes:
        task: called with an item, the worker's context, and an event that is never set; depends on these alone.
        make: makes a worker's context; None for none. Where it is equal to that of an earlier job, a worker has it.
        name: what sentences call an item, ``client 7``.
        constants: what many items hold and nothing changes, the training data for example: each goes to the workers
            once.
        ahead: results of each worker that may wait for an earlier one: they stand in memory.
    """

    task: Callable[[Item, Any, Event], Result]
    make: Callable[[], Any] | None = None
    name: Callable[[Item], str] = str
    constants: Sequence[Any] = ()
    ahead: int = 8


@dataclass(frozen=True)
class WorkerInfo:
    """The settings of a process that numbers depend on, and its machine.

    Attributes:
        versions: of fedscope, torch and Python.
        capability: which instructions of the processor torch uses.
        threads: of torch.
        place: the machine's name.
        device: what the accelerator calls itself; "" on a processor.
    """

    versions: tuple[str, str, str]
    capability: str
    threads: int
    place: str
    device: str = ""

    @classmethod
    def here(cls, device: str = "cpu") -> WorkerInfo:
        """Look at this process, which computes on a device."""
        import platform

        import torch

        from ..results.versions import versions

        said = versions()
        return cls(
            (said["fedscope"], said["torch"], said["python"]),
            torch.backends.cpu.get_cpu_capability(),
            torch.get_num_threads(),
            platform.node(),
            "" if device == "cpu" else str(torch.get_device_module(device).get_device_name()),
        )


@dataclass(frozen=True)
class TaskResult:
    """The result of one item, or its error.

    Attributes:
        content: the result, or the error, pickled: arrays in it are the receiver's own.
        failed: whether it is an error.
        seconds: that it took.
        said: warnings of fedscope's own.
    """

    content: bytes
    failed: bool
    seconds: float
    said: tuple[str, ...]

    def result(self) -> Any:
        """Return the result.

        Raises:
            the error.
        """
        found = pickle.loads(self.content)
        if self.failed:
            raise found
        return found


def become_worker() -> None:
    """Have this process compute as a worker does: with one thread of torch's."""
    import torch

    torch.set_num_threads(1)
    # arrays come read only, because several processes share them; nothing writes into what it is given
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    _keep_freed_memory()


def take_device(kind: str, given: Sequence[Any]) -> None:
    """Have this process compute on the device that it was given: ``cuda`` without a number is that one from then on.

    Args:
        given: numbers of devices on this machine. Where torch sees no more than these, the others are hidden from this
            process, and the first one is its own.

    Raises:
        FedscopeError: torch does not see it.
    """
    import torch

    if not torch.accelerator.is_available():
        raise FedscopeError(f"torch {torch.__version__} sees no {kind} device there")
    module = torch.get_device_module(kind)
    module.set_device(int(given[0]) if module.device_count() > len(given) else 0)


def _keep_freed_memory() -> None:
    """Have glibc keep what a batch frees for the next one; given back and taken again it is cleared page by page, which
    takes a fifth of a convolutional network's training (measured). Nothing to do on other systems."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in ((-1, 2**31 - 1), (-3, 2**25)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: its greatest
        mallopt(option, value)


class ClusterWorker:
    """A worker, with the contexts that were set.

    Args:
        dumps: pickles results.
        device: on which it computes.
    """

    def __init__(self, dumps: Callable[[Any], bytes] = pickle.dumps, device: str = "cpu") -> None:
        self._dumps, self._device = dumps, device
        self._known: OrderedDict[str, Any] = OrderedDict()

    def info(self) -> WorkerInfo:
        """Look at this worker."""
        return WorkerInfo.here(self._device)

    def set_context(self, context: str, content: bytes, arrays: Sequence[Any]) -> TaskResult:
        """Make a context; the last :data:`CONTEXTS` that were set are kept, on which the caller relies."""
        made: list[Any] = []
        outcome = self._done(lambda: made.append(unpack(content, arrays)()))
        self._known[context] = made[0] if made else outcome
        while len(self._known) > CONTEXTS:
            self._known.popitem(last=False)
        return outcome

    def work(self, context: str, content: bytes, arrays: Sequence[Any]) -> list[TaskResult]:
        """Do a task for some items, in their order; an error ends them.

        Args:
            context: the name of one that was learnt, "" for none.
            content: the task and the items.
        """
        own = self._known[context] if context else None
        if isinstance(own, TaskResult):  # the error with which it could not be made
            return [own]
        task, items = unpack(content, arrays)
        outcomes: list[TaskResult] = []
        for item in items:
            outcomes.append(self._done(partial(task, item, own, Event())))
            if outcomes[-1].failed:
                break
        return outcomes

    def _done(self, work: Callable[[], Any]) -> TaskResult:
        began = perf_counter()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", FedscopeWarning)
            try:
                found, failed = self._dumps(work()), False
            except Exception as error:
                found, failed = self._error(error), True
        said = tuple(str(one.message) for one in told if issubclass(one.category, FedscopeWarning))
        return TaskResult(found, failed, perf_counter() - began, said)

    def _error(self, error: Exception) -> bytes:
        """Pickle an error; what cannot be is said in its words, and so is memory that has run out on a device."""
        if self._device != "cpu" and isinstance(error, RuntimeError) and "out of memory" in str(error):
            import platform

            error = FedscopeError(
                f"a worker on {platform.node()} has no memory left on its {self._device} device; have fewer workers "
                "share one (--engine ray@1), give a smaller --batch, or --device cpu"
            )
        try:
            found = self._dumps(error)
            pickle.loads(found)
            return found
        except Exception:
            return self._dumps(FedscopeError(f"{type(error).__name__}: {error}"))
