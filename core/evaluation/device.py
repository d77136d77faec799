"""The device, the arithmetic and the threads of a computation: one answer for evaluation, analyses and training."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from threading import Event, Lock, local
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..checkpoints import FedscopeError, Layout
from ..checkpoints.io.given_values import plain_device
from ..distributed.cores import cores
from .accelerators import resolve_devices
from .float32_products import float32_products

if TYPE_CHECKING:
    from torch import nn

    from ..distributed.scheduler import WorkerPool

PRECISIONS = ("float32", "tf32", "bf16")
#: what else people call them
_CALLED = {"fp32": "float32", "bfloat16": "bf16"}
# How many results of each worker may wait for the one that the caller waits for: they stand in memory.
AHEAD = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Compute:
    """A device, the arithmetic of products, and how many threads.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:1``, ``mps``, ``xpu``; ``auto`` becomes the accelerator that is there and
            computes in float64, else ``cpu``. Of several, given as ``cuda:0,cuda:1``, it becomes the first.
        precision: ``float32`` (TF32 off), ``tf32`` or ``bf16`` (autocast).
        workers: threads, by default one a core; on GPUs always one a device. No number depends on it.
        cluster: workers elsewhere that do what goes well in pieces: clients' training, replays, a surface's points. Nor
            does any number depend on that.
        devices: all of them by name, one or several of a kind. Computations that know of several spread their work over
            them, each piece as one of them alone does it.

    Raises:
        FedscopeError: a device that this machine does not have, devices of several kinds, an unknown precision, a
            cluster of another kind.

    >>> Compute(workers=2)
    Compute(device='cpu', precision='float32', workers=2)
    """

    device: str = "cpu"
    precision: str = "float32"
    workers: int | None = None
    cluster: WorkerPool | None = field(default=None, repr=False, compare=False)
    devices: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", precision_word(self.precision))
        object.__setattr__(self, "device", plain_device(self.device, several=True))
        if self.precision not in PRECISIONS:
            raise FedscopeError(f"precision {self.precision!r} is unknown; take one of {', '.join(PRECISIONS)}")
        object.__setattr__(self, "devices", resolve_devices(self.device))
        object.__setattr__(self, "device", self.devices[0])
        if self.cluster is not None and self.cluster.device != self.kind:
            raise FedscopeError(
                f"the cluster's workers compute on {self.cluster.device}, and device = {self.name!r}; give --device "
                f"{self.cluster.device}, or leave --engine out"
            )
        if self.is_gpu:
            object.__setattr__(self, "workers", len(self.devices))

    @property
    def name(self) -> str:
        """The names of all devices, as they are given: what runs and results record.

        >>> Compute().name
        'cpu'
        """
        return ",".join(self.devices)

    def on(self, k: int) -> Compute:
        """Return the same on the k-th device alone.

        >>> Compute(workers=2).on(0)
        Compute(device='cpu', precision='float32', workers=2)
        """
        return self if len(self.devices) == 1 else replace(self, device=self.devices[k])

    @property
    def kind(self) -> str:
        """The device's kind: ``cpu``, ``cuda``, ..."""
        return self.device.partition(":")[0]

    @property
    def is_gpu(self) -> bool:
        """True on an accelerator, where one worker a device does all."""
        return not self.device.startswith("cpu")

    @property
    def here(self) -> Compute:
        """The same without the cluster, as each of its workers has it: on the device of its own."""
        return self if self.cluster is None else replace(self, device=self.kind, cluster=None, workers=1)

    @property
    def exact(self) -> Compute:
        """The same in float32."""
        return self.in_precision("float32")

    def in_precision(self, precision: str) -> Compute:
        """Return the same with other arithmetic, on all of its devices.

        Raises:
            FedscopeError: an unknown precision.

        >>> Compute(workers=2).in_precision("bf16")
        Compute(device='cpu', precision='bf16', workers=2)
        """
        return replace(self, device=self.name, precision=precision)

    def products(self) -> AbstractContextManager[None]:
        """Float32 products are float32: on a GPU TF32 is on for ``tf32`` only, though torch has it on for
        convolutions. Nothing to do elsewhere."""
        return float32_products(self.precision == "tf32") if self.kind == "cuda" else nullcontext()

    def forward(self) -> AbstractContextManager[None]:
        """Autocast for a forward pass in ``bf16``, nothing for the others.

        Without autocast's cache of cast weights: threads share it, and the first one to leave empties it for all, so
        that a weight used twice had the gradient of one cast or of two, as it happened.
        """
        import torch

        enabled = self.precision == "bf16"
        return torch.autocast(self.kind, torch.bfloat16, enabled=enabled, cache_enabled=False)


def precision_word(given: Any) -> Any:
    """Return the word for a precision that is called otherwise, as ``fp32`` or by a type of torch's; anything else as
    it is.

    >>> precision_word("fp32"), precision_word("torch.bfloat16"), precision_word("tf32")
    ('float32', 'bf16', 'tf32')
    """
    word = plain_device(given)
    if not isinstance(word, str):
        return word
    return _CALLED.get(word.removeprefix("torch."), word.removeprefix("torch."))


#: every core in float32: what functions take where nothing else is said
CPU = Compute()


def precision_of(module: nn.Module | Layout, asked: str) -> str:
    """Return the precision in which a module, or one of this layout, computes: ``float64`` where its parameters are,
    whatever was asked for, because no lower one is taken for those.

    >>> from torch import nn
    >>> precision_of(nn.Linear(2, 2), "float32"), precision_of(nn.Linear(2, 2).double(), "float32")
    ('float32', 'float64')
    """
    layout = module if isinstance(module, Layout) else Layout.of(module)
    return "float64" if layout.dtype == "float64" else asked


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Have torch compute with so many threads in this thread; afterwards with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_in_workers(
    task: Callable[[Item, Any, Event], Result],
    items: Iterable[Item],
    *,
    make: Callable[[], Any] | None = None,
    workers: int | None = None,
    idle: list[Any] | None = None,
    ahead: int = AHEAD,
) -> Generator[Result, None, None]:
    """Yield ``task(item, context, stop)`` for every item, in the order of the items, whatever the number of workers.

    Every worker is a thread in which torch computes with one thread of its own; the caller's setting is what it was
    afterwards. A task must depend on its item alone, then so do the results.

    Args:
        task: called in a worker with the item, the worker's context, and an event that is set when everybody should
            stop: a long task looks at it now and then and may raise anything.
        items: taken one at a time, when a worker is free: what is taken may hold files or memory.
        make: makes a worker's context, in the worker and once; without it the context is ``None``.
        workers: at most so many threads; default one a core.
        idle: contexts of earlier calls, which are used before new ones are made; afterwards this call's are there, too.
        ahead: how many items a worker are begun at most before the eldest is done: their results wait in memory.

    Raises:
        the first exception of a task, after the others have stopped. When the caller leaves the loop or presses
        Ctrl-C, the workers stop at their next item too.

    >>> list(run_in_workers(lambda item, context, stop: item**2, range(5)))
    [0, 1, 4, 9, 16]
    """
    count = max(1, workers if workers is not None else cores())
    # One job an item, where it is known how many there are: a job costs as much as a small task.
    unasked = len(items) if isinstance(items, Sized) else None
    if unasked is not None:
        count = max(1, min(count, unasked))
    import torch

    threads_before = torch.get_num_threads()
    threads = _Threads(task, items, make, idle if idle is not None else [], count)
    results: dict[int, Result] = {}  # a worker may have overtaken the one that took the item before
    try:
        more = unasked != 0
        for number in numbers():
            while number not in results and (more or threads.jobs):
                if more:
                    jobs = ahead * count - len(results) - len(threads.jobs)
                    if unasked is not None:
                        jobs = min(jobs, unasked)
                        unasked -= jobs
                        more = unasked > 0
                    threads.submit(jobs)
                if (done := threads.wait()) is None:
                    more = False
                else:
                    results[done[0]] = done[1]
            if number not in results:
                return
            yield results.pop(number)
    finally:
        threads.close()
        # The setting is a thread's own, but torch hands the latest one to threads that start later.
        torch.set_num_threads(threads_before)


class _Threads(Generic[Item, Result]):
    """Worker threads of one call of :func:`run_in_workers`: each takes the next item and has a context of its own.

    Attributes:
        jobs: submitted and not yet waited for, each of which takes one item.
    """

    def __init__(
        self,
        task: Callable[[Item, Any, Event], Result],
        items: Iterable[Item],
        make: Callable[[], Any] | None,
        idle: list[Any],
        count: int,
    ) -> None:
        self.jobs: deque[Future[tuple[int, Result] | None]] = deque()
        self._task, self._make, self._idle = task, make, idle
        self._numbered, self._taking = enumerate(items), Lock()
        self._stop, self._own = Event(), local()
        self._used: list[Any] = []
        self._failures: list[BaseException] = []
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="fedscope-")

    def submit(self, jobs: int) -> None:
        """Have so many further items worked on."""
        self.jobs.extend(self._pool.submit(self._work) for _ in range(jobs))

    def wait(self) -> tuple[int, Result] | None:
        """Wait for the eldest job: an item's number and its result; None where no item was left for it.

        Raises:
            the first exception of a task.
        """
        try:
            return self.jobs.popleft().result()
        except BaseException:
            if self._failures:
                raise self._failures[0] from None
            raise

    def close(self) -> None:
        """Stop the threads at their next item, and give their contexts back."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        self._idle.extend(self._used)

    def _work(self) -> tuple[int, Result] | None:
        if self._stop.is_set():
            raise InterruptedError("the workers were told to stop")
        try:
            if not hasattr(self._own, "context"):
                import torch

                torch.set_num_threads(1)
                self._own.context = self._context()
            with self._taking:
                taken = next(self._numbered, None)
            return None if taken is None else (taken[0], self._task(taken[1], self._own.context, self._stop))
        except BaseException as error:
            # what the others raise once they are told to stop is a consequence
            if not self._stop.is_set():
                self._failures.append(error)
            self._stop.set()
            raise

    def _context(self) -> Any:
        try:
            taken = self._idle.pop()
        except IndexError:
            taken = self._make() if self._make is not None else None
        self._used.append(taken)
        return taken
