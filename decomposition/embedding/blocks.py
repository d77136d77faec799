"""All models in blocks of columns: the same columns of every round at a time, each number read once."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from math import prod
from tempfile import TemporaryFile

import numpy as np

from ...checkpoints import FedscopeError, Round, read_columns
from ...checkpoints.hdf5 import reading
from ...checkpoints.round_files import FORMAT, VERSION
from .points import Models

Stream = Generator[np.ndarray, None, None]

# Files that a process has open beside the rounds': standard streams, libraries, what waits on disk.
OTHER_FILES = 64


@dataclass(frozen=True, eq=False)
class Block:
    """Some columns of one layer.

    Attributes:
        layer: the ``state_dict`` key.
        values: of every round's clients [C_t, b], then of the server's models [s, b]; together a row a point.
        reference: what all are compared with, [b].
    """

    layer: str
    values: list[np.ndarray]
    reference: np.ndarray


def read_blocks(models: Models, layer: str, columns: int) -> Iterator[Block]:
    """A layer of all models in blocks of at most ``columns`` columns, but at least a slice along its first axis.

    The files of all rounds are open at once. What is compressed (``record.compression = delta``) is read a whole layer
    of a round at a time; where that is more than a block it waits in a temporary file, so that memory does not grow
    with the rounds.
    """
    shape = next(entry.shape for entry in models.layout.parameters if entry.name == layer)
    width = prod(shape[1:])
    if not prod(shape):
        return
    step = max(1, columns // width) * width
    streams = [_clients(round_, layer, step) for round_ in models.rounds]
    servers = [_server(models.rounds[at], which, layer, step) for at, which in models.servers]
    first = models.rounds[0]
    start = [_server(first, "start", layer, step)] if "start" in first.models else []
    try:
        for clients in zip(*streams, strict=True):
            own = [next(stream) for stream in servers]
            yield Block(layer, [*clients, *own], next(start[0])[0] if start else clients[0][0])
    finally:
        for stream in (*streams, *servers, *start):
            stream.close()


def refuse_too_many(models: Models) -> None:
    """Say before reading that the system would not let so many files be open.

    Raises:
        FedscopeError: more rounds than that.
    """
    from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit

    allowed = getrlimit(RLIMIT_NOFILE)[0]
    if allowed != RLIM_INFINITY and len(models.rounds) > allowed - OTHER_FILES:
        raise FedscopeError(
            f"{len(models.rounds):,} rounds are read side by side, but a process may open {allowed:,} files here; ask "
            f"for {max(1, allowed - OTHER_FILES):,} rounds at most, or raise the limit with ulimit -n"
        )


def _clients(round_: Round, layer: str, step: int) -> Stream:
    """[C, step] after [C, step]; the last one is narrower."""
    count = len(round_.client_ids)
    for columns in read_columns(round_, [layer], step * count):
        if columns.values.shape[1] <= step:
            yield columns.values
            continue
        with TemporaryFile() as file:
            _, n = columns.values.shape
            for start in range(0, n, step):
                file.write(np.ascontiguousarray(columns.values[:, start : start + step]).data)
            dtype = columns.values.dtype
            del columns
            file.seek(0)
            for start in range(0, n, step):
                part = np.empty((count, min(step, n - start)), dtype)
                file.readinto(part.data)
                yield part


def _server(round_: Round, which: str, layer: str, step: int) -> Stream:
    """[1, step] after [1, step] of one of the server's models."""
    with reading(round_.path, FORMAT, VERSION, "a round of a fedscope run") as file:
        dataset = file[which][layer]
        length, width = (dataset.shape[0], prod(dataset.shape[1:])) if dataset.shape else (1, 1)
        rows = step // width
        for start in range(0, length, rows):
            values = dataset[start : start + rows] if dataset.shape else dataset[()]
            yield np.asarray(values).reshape(1, -1)
