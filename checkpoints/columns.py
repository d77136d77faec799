"""The clients of a round in blocks of columns: every client's values of some parameters, however large the models."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from .pieces import read_pieces
from .recorded import recorded_clients
from .rounds import Round
from .runs import Run

# Numbers of all clients in a block: 16 MiB of float32, so that a block and its float64 temporaries stay near the
# processor, and reading it costs few calls.
NUMBERS = 4 * 2**20


@dataclass(frozen=True, eq=False)
class Columns:
    """A block of columns of ``clients``.

    Attributes:
        layer: the ``state_dict`` key of the parameter they belong to.
        where: their place in the flat vector [P].
        start: of the first one, in the flattened layer.
        values: [C, n], in the layout's dtype.
    """

    layer: str
    where: slice
    start: int
    values: np.ndarray


def read_columns(round_: Round, layers: Collection[str] | None = None, numbers: int = NUMBERS) -> Iterator[Columns]:
    """The clients' parameters, a block after the other in the layout's order; each number is read once.

    Args:
        layers: only these; all by default.
        numbers: of all clients in a block, at most (at least a column).

    Raises:
        FedscopeError: the round has no clients; a layer that is no parameter of the model (says which are).
    """
    for piece in read_pieces(round_, max(1, numbers // max(1, len(round_.client_ids))), layers):
        yield Columns(piece.layer, piece.where, piece.start, piece.read())


def columns_of(run: Run, number: int, layers: Collection[str] | None = None) -> Iterator[Columns]:
    """:func:`read_columns` of a round of a run; where its clients were not recorded, it says which rounds have them."""
    return read_columns(recorded_clients(run, number, start=False), layers)
