"""``dirichlet:alpha``: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..settings import setting
from ..splitting import Partitioner

#: A draw in which every client has enough samples is tried for this often; then the poorest are topped up.
_TRIES = 100


@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Each class is split over the clients by Dir(alpha); sizes differ.

    Every client gets at least ten samples, or an equal share where the data do not allow that. Draws are repeated up
    to 100 times for it; after that samples move from the largest client to the smallest, so it always ends.
    """

    alpha: float = setting(0.1, "concentration; small means skewed", above=0)

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """See :class:`fedscope.training.splitting.Partitioner`."""
        least = min(10, len(labels) // clients)
        for _ in range(_TRIES):
            parts = self._draw(labels, clients, random)
            if min(map(len, parts)) >= least:
                return parts
        while min(map(len, parts)) < least:
            poorest = min(range(clients), key=lambda k: len(parts[k]))
            richest = max(range(clients), key=lambda k: len(parts[k]))
            given = random.integers(len(parts[richest]))
            parts[poorest] = np.append(parts[poorest], parts[richest][given])
            parts[richest] = np.delete(parts[richest], given)
        return parts

    def _draw(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = random.permutation(np.flatnonzero(labels == label))
            shares = random.dirichlet(np.full(clients, self.alpha))
            cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
            for part, piece in zip(parts, np.split(members, cuts), strict=True):
                part.append(piece)
        return [np.concatenate(part) for part in parts]


PROVIDES = Dirichlet
