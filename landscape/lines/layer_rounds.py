"""The barriers of layers in one round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...results import Serializable
from .layer_result import LayerLine


@dataclass(frozen=True)
class LayerBarrier(Serializable):
    """The barrier of one line of layers in a round, None where a loss is not finite or no point between was measured.

    Attributes:
        layer: what moves: a layer's name, ``to NAME``, a pattern, or ``all layers``.
        others: the model at which the other layers stay: ``global``, ``start``, ``client-3``.
        parameters: how many move.
        barrier, barrier_beta, barrier_stderr: as in :class:`~fedscope.LayerLine`.
    """

    round: int
    layer: str
    others: str
    parameters: int
    barrier: float | None
    barrier_beta: float | None
    barrier_stderr: float | None


@dataclass(frozen=True)
class RoundBarriers(Serializable):
    """One round: two rows a selection of layers, those of all last."""

    cells: tuple[LayerBarrier, ...]


def round_barriers(number: int, line: LayerLine) -> RoundBarriers:
    """Return the rows of a round's lines."""
    names = [end.rpartition("/")[2] for end in line.ends]
    return RoundBarriers(
        tuple(
            LayerBarrier(
                number,
                layer,
                names[others],
                int(line.parameters[i]),
                _known(line.barrier[others, i]),
                _known(line.barrier_beta[others, i]) if np.isfinite(line.barrier[others, i]) else None,
                _known(line.barrier_stderr[others, i]),
            )
            for i, layer in enumerate(line.layers)
            for others in (0, 1)
        )
    )


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
