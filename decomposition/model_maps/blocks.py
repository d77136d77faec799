"""All models in blocks of columns: the same columns of every round at a time, each number read once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...checkpoints import FedscopeError, Piece, read_pieces
from ...checkpoints.pieces import AHEAD
from .points import Models

# Files that a process has open beside the rounds': standard streams, libraries.
OTHER_FILES = 64


@dataclass(frozen=True, eq=False)
class Block:
    """Some columns of one layer, still on disk.

    Attributes:
        pieces: of every round's clients, then of the server's models; together a row a point.
        reference: what all are compared with, one row.
    """

    pieces: tuple[Piece, ...]
    reference: Piece

    @property
    def layer(self) -> str:
        """The ``state_dict`` key."""
        return self.reference.layer

    @property
    def count(self) -> int:
        """How many columns."""
        return self.reference.count

    def read(self, buffer: np.ndarray) -> list[np.ndarray]:
        """The rows of piece after piece, [C_t, count], in ``buffer``: at least n times ``count`` numbers, flat."""
        made, at = [], 0
        for piece in self.pieces:
            made.append(piece.read(buffer[at:]))
            at += made[-1].size
        return made


def read_blocks(models: Models, layers: Sequence[str], columns: int) -> Generator[Block, None, None]:
    """All models in blocks of at most ``columns`` columns, which whoever works on a block reads.

    The files of all rounds are open at once.
    """
    clients = [read_pieces(round_, columns, layers) for round_ in models.rounds]
    servers = [read_pieces(models.rounds[at], columns, layers, which=which) for at, which in models.servers]
    first = models.rounds[0]
    start = read_pieces(first, columns, layers, which="start") if "start" in first.models else None
    for pieces in zip(*clients, *servers, strict=True):
        # without a start, the first client
        yield Block(pieces, replace(pieces[0], places=pieces[0].places[:1]) if start is None else next(start))


def refuse_too_many(models: Models, workers: int) -> None:
    """Say before reading that the system would not let so many files be open.

    Raises:
        FedscopeError: more rounds than that.
    """
    from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit

    allowed = getrlimit(RLIMIT_NOFILE)[0]
    if allowed == RLIM_INFINITY:
        return
    # the clients', a file a model of the server's; what is unpacked lies in files of its own, one a layer in work
    own = 1 + len(models.servers) / len(models.rounds)
    own += 1 + AHEAD + workers if any(round_.is_packed for round_ in models.rounds) else 0
    most = max(1, int((allowed - OTHER_FILES) / own))
    if len(models.rounds) > most:
        raise FedscopeError(
            f"{len(models.rounds):,} rounds are read side by side, but a process may open {allowed:,} files here; ask "
            f"for {most:,} rounds at most, or raise the limit with ulimit -n"
        )
