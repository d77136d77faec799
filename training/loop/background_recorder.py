"""Rounds written by one thread while the next one is played."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ...checkpoints import Background, RoundRecord, RunWriter, Weights
from ..config.config import Config
from ..guards.own_calls import ask
from ..methods.base import ClientState
from .federation import Watcher
from .record_policy import record_round
from .state import Memory, Position

#: bytes of a round's arrays up to which it is written beside the next: larger ones would be in memory twice
BESIDE = 2**26


class Recording:
    """Records rounds in their order. A small round is written while the next one is played, by one thread, so that at
    most one complete round is not on the disk; a larger one before the next begins, unless ``always``.

    It is a watcher that passes on what it sees, and tells of each round once it is durable; and a memory that waits for
    what is being written before it reads.

    Args:
        always: write large rounds during the next one, too: two rounds are in memory then. A GPU plays on meanwhile.
        never: write all rounds before the next begins.
    """

    def __init__(
        self,
        writer: RunWriter,
        config: Config,
        memory: Memory,
        watcher: Watcher,
        *,
        always: bool = False,
        never: bool = False,
    ) -> None:
        self._writer, self._config, self._memory, self._watcher = writer, config, memory, watcher
        self._always, self._never = always, never
        self._background = Background()
        self._written: deque[RoundRecord] = deque()  # not told of yet

    def add(self, record: RoundRecord, position: Position) -> None:
        """Record the round that led to ``position``.

        Raises:
            FedscopeError: the disk is full, perhaps already for the round before this one.
        """
        self.wait()

        def write() -> None:
            record_round(self._writer, record, position, self._config)
            self._written.append(record)

        if not self._never and (self._always or _size(record) <= BESIDE):
            self._background.add(write)
        else:
            write()
            self._tell()

    def wait(self) -> None:
        """Until all rounds are on the disk. Raises as :meth:`add`."""
        try:
            self._background.wait()
        finally:
            self._tell()

    def _tell(self) -> None:
        while self._written:
            # the next round begins with what the record holds
            ask(self._watcher, self._watcher.round, self._written.popleft(), self._config.run.rounds)

    # --- a watcher ---

    def begin(self, rounds: int, size: int) -> None:
        """See :class:`fedscope.training.loop.federation.Watcher`."""
        self._watcher.begin(rounds, size)

    def client(self, round: int, done: int, of: int) -> None:
        """See :class:`fedscope.training.loop.federation.Watcher`."""
        self._tell()
        self._watcher.client(round, done, of)

    def round(self, record: RoundRecord, of: int) -> None:
        """See :class:`fedscope.training.loop.federation.Watcher`."""
        self._watcher.round(record, of)

    # --- a memory ---

    def row(self, round: int, *, mean: bool = False) -> Weights:
        """See :class:`fedscope.training.loop.state.Memory`."""
        self.wait()
        return self._memory.row(round, mean=mean)

    def client_states(self, last: Mapping[int, int]) -> dict[int, ClientState]:
        """See :class:`fedscope.training.loop.state.Memory`."""
        if last:
            self.wait()
        return self._memory.client_states(last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Whatever ends the training, what was played is recorded."""
        with self._background:
            self.wait()


def _size(record: RoundRecord) -> int:
    """Bytes of the clients' models and of what clients keep."""
    parts = [record.clients, *record.client_state.values()]
    arrays = [
        a
        for part in parts
        for a in ([part.parameters, *part.buffers.values()] if isinstance(part, Weights) else [part])
    ]
    return sum(array.nbytes for array in arrays if array is not None)
