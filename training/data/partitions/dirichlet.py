"""``dirichlet:alpha``: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", ICML 2019."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...settings.settings import setting
from ..partitioner import Partitioner

#: samples that a client gets, where the data allow it
LEAST = 10
#: A draw in which every client has enough samples is tried for this often; then the poorest are topped up.
_TRIES = 100


@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Each class is split over the clients by Dir(alpha); sizes differ, and are ten samples at least.

    Where the data do not allow ten samples a client, each gets at least an equal share. Draws are repeated up to 100
    times for it; after that samples move from the largest client to the smallest, so it always ends. Where more than
    5 % of the samples move, a warning says so: that is no more the split that was drawn.
    """

    alpha: float = setting(0.1, "concentration; small means skewed", above=0)

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`."""
        return self.split_counting(labels, clients, random, groups)[0]

    def split_counting(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> tuple[list[np.ndarray], int]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`."""
        least, moved = min(LEAST, len(labels) // clients), 0
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        for _ in range(_TRIES):
            mixed, cuts = self._draw(classes, clients, random)
            sizes = np.diff(cuts, prepend=0, append=[[len(members)] for members in classes]).sum(0)
            if sizes.min() >= least:
                break
        pieces = [np.split(members, cut) for members, cut in zip(mixed, cuts, strict=True)]
        parts = [np.concatenate(own) for own in zip(*pieces, strict=True)]
        while sizes.min() < least:
            poorest, richest = sizes.argmin(), sizes.argmax()
            given = random.integers(sizes[richest])
            parts[poorest] = np.append(parts[poorest], parts[richest][given])
            parts[richest] = np.delete(parts[richest], given)
            sizes[[poorest, richest]] += 1, -1
            moved += 1
        return parts, moved

    def _draw(
        self, classes: list[np.ndarray], clients: int, random: np.random.Generator
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """The samples of each class in random order, and where they are cut, [C, N − 1].

        A draw is only looked at by its sizes until one is taken: cutting all of them takes ten times as long.
        """
        mixed, cuts = [], []
        for members in classes:
            mixed.append(random.permutation(members))
            shares = random.dirichlet(np.full(clients, self.alpha))
            cuts.append(np.round(np.cumsum(shares)[:-1] * len(members)).astype(int))
        return mixed, np.stack(cuts)


PROVIDES = Dirichlet
