"""Models as rows: one model ``w`` [P], or the matrix ``clients`` [C, P]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .errors import FedscopeError
from .layout import Layout


@dataclass(frozen=True, eq=False)
class Weights:
    """One model, or the models of C clients.

    Attributes:
        layout: what stands where.
        parameters: [P], or [C, P], in the layout's dtype.
        buffers: by name, [\\*shape] or [C, \\*shape], each in its own dtype.
    """

    layout: Layout
    parameters: np.ndarray
    buffers: dict[str, np.ndarray]

    def __len__(self) -> int:
        """C; 1 for one model."""
        return len(self.parameters) if self.parameters.ndim == 2 else 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All entries by name in layout order (``state_dict`` order); parameters are views."""
        views = self.layout.views(self.parameters)
        return {name: views[name] if name in views else self.buffers[name] for name in self.layout.names}

    def row(self, i: int) -> Weights:
        """The model of the i-th client, a view."""
        return Weights(self.layout, self.parameters[i], {name: value[i] for name, value in self.buffers.items()})


def stack(models: Sequence[Weights]) -> Weights:
    """C models [P] as one matrix [C, P].

    Raises:
        FedscopeError: no model; models of different layouts.
    """
    if not models:
        raise FedscopeError("there is no model to stack; give at least one")
    layout = models[0].layout
    for i, model in enumerate(models):
        if model.layout is not layout and (difference := layout.difference(model.layout)):
            raise FedscopeError(f"models 0 and {i} have different layouts: {difference}")
    return Weights(
        layout,
        np.stack([model.parameters for model in models]),
        {entry.name: np.stack([model.buffers[entry.name] for model in models]) for entry in layout.buffers},
    )


def weighted_mean(clients: Weights, p: np.ndarray | Sequence[float], integer_from: int = 0) -> Weights:
    """Σ_k p_k w_k, row by row in float64 and rounded once, so that anyone can repeat it bit for bit.

    ``acc = zeros(P); for k in order: acc += p[k] * clients[k]``, then cast to the layout's dtype. Buffers alike;
    integer buffers are those of row ``integer_from``.

    Args:
        clients: [C, P].
        p: [C], the weights of the rows; not normalised here.

    Raises:
        FedscopeError: another number of weights than of clients.
    """
    p = np.asarray(p, dtype=np.float64)
    if p.shape != (len(clients),):
        raise FedscopeError(f"p has shape {p.shape}, but there are {len(clients)} clients; give one weight a client")

    def combine(rows: np.ndarray) -> np.ndarray:
        total = np.zeros(rows.shape[1:], np.float64)
        term = np.empty_like(total)
        for k, weight in enumerate(p):
            np.multiply(rows[k], weight, out=term, dtype=np.float64)
            total += term
        return total.astype(rows.dtype)

    return _by_rows(clients, combine, integer_from)


def mean(clients: Weights, integer_from: int = 0) -> Weights:
    """(1/C) Σ_k w_k: summed in order in float64, then divided by C; of one row it is that row bit for bit.

    Integer buffers are those of row ``integer_from``.
    """

    def combine(rows: np.ndarray) -> np.ndarray:
        total = np.array(rows[0], dtype=np.float64)  # not from zeros: 0 + (-0) is 0
        for row in rows[1:]:
            total += row
        total /= len(rows)
        return total.astype(rows.dtype)

    return _by_rows(clients, combine, integer_from)


def _by_rows(clients: Weights, combine: Callable[[np.ndarray], np.ndarray], integer_from: int) -> Weights:
    if clients.parameters.ndim != 2:
        raise FedscopeError(f"a mean is over rows [C, P], but the parameters have shape {clients.parameters.shape}")
    buffers = {}
    for name, rows in clients.buffers.items():
        floating = np.issubdtype(rows.dtype, np.floating)
        buffers[name] = combine(rows) if floating else rows[integer_from].copy()
    return Weights(clients.layout, combine(clients.parameters), buffers)
