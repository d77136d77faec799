"""A recorded round's clients [C, P], read from its file a row or a block of columns at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..models.weights import Weights
from .columns import read_columns, read_pieces
from .disk_matrix import NUMBERS, RowsOnDisk, as_array
from .models import read_buffers
from .round import Round


class RecordedRows(RowsOnDisk):
    """The parameters of a round's clients, in the order of ``client_ids``; whatever is read is verified, once.

    Raises:
        FedscopeError: on reading, as :meth:`Round.clients` and :func:`read_pieces`.
    """

    def __init__(self, round_: Round) -> None:
        self._round, self._ids = round_, round_.client_ids
        super().__init__((len(self._ids), round_.layout.size), round_.layout.dtype)

    def read(self, k: int, where: slice) -> np.ndarray:
        return self._round.client(int(self._ids[k])).parameters[where]

    def block(self, where: slice) -> np.ndarray:
        values = np.empty((len(self), where.stop - where.start), self.dtype)
        for layer, own in self._round.layout.slices.items():
            begin, end = max(own.start, where.start), min(own.stop, where.stop)
            if begin < end:
                for piece in read_pieces(self._round, own.stop - own.start, [layer]):
                    values[:, begin - where.start : end - where.start] = piece.read()[
                        :, begin - own.start : end - own.start
                    ]
        return values

    def blocks(self, numbers: int = NUMBERS) -> Iterator[tuple[slice, np.ndarray]]:
        for columns in read_columns(self._round, numbers=numbers):
            yield columns.where, columns.values


def recorded_rows(round_: Round) -> Weights:
    """The clients of a round, [C, P]: their parameters stay in the file, their buffers are read.

    Raises:
        FedscopeError: they were not recorded.
    """
    round_.refuse_missing_clients()
    with round_.open(stacked=True) as file:
        buffers = read_buffers(file, range(len(round_.client_ids)))
    return Weights(round_.layout, as_array(RecordedRows(round_)), buffers)
