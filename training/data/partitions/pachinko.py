"""``pachinko``: Reddi et al., "Adaptive Federated Optimization", ICLR 2021: classes by superclass, as for CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..partitioner import Partitioner
from ..split import group_of
from .dirichlet_clients import by_counts, drawn, equal_sizes


@dataclass(frozen=True)
class Pachinko(Partitioner):
    """Pachinko allocation: superclasses by Dir(root), then classes inside each by Dir(leaf); all sizes are equal.

    Client after client, in random order, draws its mixtures, then its samples without replacement: a superclass by the
    root mixture, a class by that superclass's leaf mixture. A class that runs out is left out of its superclass, a
    superclass that runs out of the root, and the mixture rescaled. All samples are used.
    """

    root: float = setting(0.1, "concentration over superclasses; small means skewed", above=0)
    leaf: float = setting(10.0, "concentration over the classes of a superclass", above=0)

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: data that do not know their superclasses; a class in two of them.
        """
        above = group_of(groups, "superclass", "pachinko")
        present, first, which, left = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
        if len(astray := np.flatnonzero(above != above[first][which])):
            label, one, other = labels[astray[0]], above[first][which[astray[0]]], above[astray[0]]
            raise FedscopeError(
                f"data.partition = {self.written()!r}: class {label} is in superclasses {one} and {other}; give each "
                "class one superclass"
            )
        trees = [np.flatnonzero(above[first] == number) for number in np.unique(above)]
        counts = np.zeros((clients, len(present)), dtype=np.int64)
        for client, size in zip(random.permutation(clients), equal_sizes(len(labels), clients), strict=True):
            root = random.dirichlet(np.full(len(trees), self.root))
            leaves = [random.dirichlet(np.full(len(tree), self.leaf)) for tree in trees]
            shares = drawn(root, np.array([left[tree].sum() for tree in trees]), size, random)
            for tree, leaf, share in zip(trees, leaves, shares, strict=True):
                if share:  # most clients have few of the superclasses
                    counts[client, tree] = drawn(leaf, left[tree], int(share), random)
            left = left - counts[client]
        return by_counts(labels, counts, random)


PROVIDES = Pachinko
