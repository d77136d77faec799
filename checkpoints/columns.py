"""The clients of a round in blocks of columns: every client's values of some parameters, however large the models."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from .errors import FedscopeError, listed, nearest
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
        numbers: of all clients in a block, at most (at least one slice of a layer along its first axis).

    Raises:
        FedscopeError: the round has no clients; a layer that is no parameter of the model (says which are).
    """
    if not round_.has_clients:
        raise FedscopeError(f"{round_.label}: the clients of round {round_.number} were not recorded")
    layout = round_.layout
    for layer in layers or ():
        if layer not in layout.slices:
            hint = nearest(layer, list(layout.slices))
            raise FedscopeError(
                f"{round_.label} has no parameter {layer!r}{hint or '; it has ' + listed(list(layout.slices))}"
            )
    for layer, where in layout.slices.items():
        if layers is not None and layer not in layers:
            continue
        for start, values in round_.client_columns(layer, numbers):
            first = where.start + start
            yield Columns(layer, slice(first, first + values.shape[1]), start, values)


def columns_of(run: Run, number: int, layers: Collection[str] | None = None) -> Iterator[Columns]:
    """:func:`read_columns` of a round of a run; where its clients were not recorded, it says which rounds have them."""
    return read_columns(recorded_clients(run, number, start=False), layers)
