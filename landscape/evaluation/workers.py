"""Worker threads for torch: one single-threaded worker a core is faster than one worker with a thread a core."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from threading import Condition, Event, Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# How many items the workers may be ahead of the one the caller waits for, for each worker: results wait in memory.
AHEAD = 16


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def run_in_workers(
    task: Callable[[Item, Any, Event], Result],
    items: Iterable[Item],
    *,
    make: Callable[[], Any] | None = None,
    workers: int | None = None,
) -> Generator[Result, None, None]:
    """Yield ``task(item, context, stop)`` for every item, in the order of the items, whatever the number of workers.

    Every worker is a thread in which torch computes with one thread of its own; the caller's setting is what it was
    afterwards. A task must depend on its item alone, then so do the results.

    Args:
        task: called in a worker with the item, the worker's context, and an event that is set when everybody should
            stop: a long task looks at it now and then and may raise anything.
        items: taken one at a time, when a worker is free.
        make: makes a worker's context, in the worker and once; without it the context is ``None``.
        workers: at most so many threads; default one a core.

    Raises:
        the first exception of a task, after the others have stopped. When the caller leaves the loop or presses
        Ctrl-C, the workers stop at their next item too.

    >>> list(run_in_workers(lambda item, context, stop: item**2, range(5)))
    [0, 1, 4, 9, 16]
    """
    count = max(1, workers if workers is not None else cores())
    if isinstance(items, Sized):
        count = max(1, min(count, len(items)))
    crew = _Crew(task, items, make, AHEAD * count)
    import torch

    own = torch.get_num_threads()
    threads = [Thread(target=crew.work, name=f"fedscope-{i}", daemon=True) for i in range(count)]
    try:
        for thread in threads:
            thread.start()
        yield from crew.results(count)
    finally:
        crew.halt()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        # The setting is a thread's own, but torch hands the latest one to threads that start later.
        torch.set_num_threads(own)


class _Crew:
    """What the workers share: the items still to take, the results still to hand out."""

    def __init__(self, task: Callable[..., Any], items: Iterable[Any], make: Callable[[], Any] | None, ahead: int):
        self.task, self.items, self.make, self.ahead = task, iter(items), make, ahead
        self.stop = Event()
        self.changed = Condition()
        self.done: dict[int, Any] = {}
        self.taken = self.handed = self.finished = 0
        self.error: BaseException | None = None

    def work(self) -> None:
        import torch

        try:
            torch.set_num_threads(1)
            context = self.make() if self.make is not None else None
            while (taken := self._take()) is not None:
                result = self.task(taken[1], context, self.stop)
                with self.changed:
                    self.done[taken[0]] = result
                    self.changed.notify_all()
        except BaseException as error:
            with self.changed:
                # what the others raise once they are told to stop is a consequence
                if self.error is None and not self.stop.is_set():
                    self.error = error
                self.stop.set()
        finally:
            with self.changed:
                self.finished += 1
                self.changed.notify_all()

    def _take(self) -> tuple[int, Any] | None:
        with self.changed:
            while self.taken - self.handed >= self.ahead and not self.stop.is_set():
                self.changed.wait()
            if self.stop.is_set():
                return None
            for item in self.items:
                self.taken += 1
                return self.taken - 1, item
            return None

    def results(self, count: int) -> Iterator[Any]:
        while True:
            with self.changed:
                while self.handed not in self.done and self.error is None and self.finished < count:
                    self.changed.wait()
                if self.error is not None:
                    break
                if self.handed not in self.done:
                    return
                result = self.done.pop(self.handed)
                self.handed += 1
                self.changed.notify_all()
            yield result
        raise self.error

    def halt(self) -> None:
        with self.changed:
            self.stop.set()
            self.changed.notify_all()
