"""Work done in order in a second thread, a few pieces ahead at most: for what waits for a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self


class Background:
    """A bounded queue of work and the one thread that does it.

    A piece that fails ends the work: its error is raised in the caller's thread, once, by whatever is called next, and
    what was waiting behind it is not done.

    Args:
        limit: how many pieces may wait or be at work; :meth:`add` waits for the eldest where there are as many.

    >>> done = []
    >>> with Background() as background:
    ...     background.add(lambda: done.append(1))
    ...     background.add(lambda: done.append(2))
    >>> done
    [1, 2]
    """

    def __init__(self, limit: int = 1) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit} is not a number of pieces; give 1 or more")
        self.limit = limit
        self._thread = ThreadPoolExecutor(1, "fedscope-background")
        self._pieces: deque[Future[None]] = deque()
        self._failed = self._closed = False

    def add(self, work: Callable[[], None]) -> None:
        """Have it done, after waiting for room.

        Raises what an earlier piece raised, and then ``work`` is not done.
        """
        self._collect()
        while len(self._pieces) >= self.limit:
            self._pieces[0].exception()  # waits: an interrupt here leaves the piece in its place
            self._collect()
        if self._failed:
            self.wait()
            raise RuntimeError("a piece of work has failed; nothing more is done")
        piece = _once(lambda: self._do(work))
        try:
            self._pieces.append(self._thread.submit(piece))
        except RuntimeError:
            if self._closed:
                raise
            piece()  # no thread can be started, as when the program ends; a later one may find the piece in its queue

    def wait(self) -> None:
        """Until all is done; raises what a piece raised."""
        while self._pieces:
            self._pieces[0].exception()
            self._collect()

    @property
    def waiting(self) -> int:
        """The number of pieces that are not done; raises the error of a piece."""
        self._collect()
        return len(self._pieces)

    def _do(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise

    def _collect(self) -> None:
        """Forget what is done, so that nothing holds its memory; raises what it raised."""
        while self._pieces and self._pieces[0].done():
            self._pieces.popleft().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread; also amid an error or an interrupt, what was added is done first."""
        self._closed = True
        try:
            self.wait()
        finally:
            self._thread.shutdown()


def _once(work: Callable[[], None]) -> Callable[[], None]:
    """Return what does a piece of work the first time that it is called, and nothing later."""
    left = deque((work,))  # which also lets go of the work once it is done

    def piece() -> None:
        try:
            first = left.pop()
        except IndexError:
            return
        first()

    return piece
