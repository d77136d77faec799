"""``dirichlet-clients:alpha``: Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification", 2019."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..partitioner import Partitioner
from .pathological import dealt, holders_of


@dataclass(frozen=True)
class DirichletClients(Partitioner):
    """Each client draws a mixture of classes q ~ Dir(α, ..., α), then its samples from that mixture; all sizes are
    equal.

    Client after client, in random order, takes ⌊n/N⌋ or ⌈n/N⌉ samples without replacement: their classes are a
    multinomial draw by q; a class that runs out is left out, and q rescaled over those that are left (over their
    numbers of samples where q is 0 on all of them). All samples are used, so the last clients take what there is. α = 0
    is one class a client; where clients do not divide over classes their sizes differ then.

    Not `dirichlet:α`, which splits every class over the clients and gives unequal sizes.
    """

    alpha: float = setting(0.1, "concentration; small means skewed, 0 means one class per client", least=0)

    @property
    def places_every_class(self) -> bool:
        """With one class a client."""
        return self.alpha == 0

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: α = 0 and fewer clients than classes.
        """
        present, left = np.unique(labels, return_counts=True)
        if self.alpha == 0:
            if clients < len(present):
                raise FedscopeError(
                    f"data.partition = 'dirichlet-clients:0' gives one class a client, but there are {len(present)} "
                    f"classes and {clients} clients; take at least {len(present)} clients, or a greater alpha"
                )
            return dealt(labels, holders_of(len(present), clients, 1, random), random)
        counts = np.zeros((clients, len(present)), dtype=np.int64)
        for client, size in zip(random.permutation(clients), equal_sizes(len(labels), clients), strict=True):
            mixture = random.dirichlet(np.full(len(present), self.alpha))
            counts[client] = drawn(mixture, left, size, random)
            left = left - counts[client]
        return by_counts(labels, counts, random)


def equal_sizes(samples: int, clients: int) -> list[int]:
    """Count each client's samples: n // N, and one more for the first n mod N.

    >>> equal_sizes(11, 3)
    [4, 4, 3]
    """
    least, more = divmod(samples, clients)
    return [least + 1] * more + [least] * (clients - more)


def drawn(mixture: np.ndarray, left: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Draw how many samples of each class one client takes: ``size`` in all, by ``mixture`` [C], at most ``left`` [C].

    Every pass either ends or empties a class, so there are C at most.
    """
    taken = np.zeros_like(left)
    while size:
        room = left - taken
        q = np.where(room > 0, mixture, 0.0)
        q = q if q.sum() > 0 else room.astype(np.float64)
        some = np.minimum(random.multinomial(size, q / q.sum()), room)
        taken += some
        size -= int(some.sum())
    return taken


def by_counts(labels: np.ndarray, counts: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Each client's samples, where it takes ``counts`` [N, C] random ones of each of the classes that there are."""
    parts: list[list[np.ndarray]] = [[] for _ in counts]
    for label, column in zip(np.unique(labels), counts.T, strict=True):
        members = random.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.split(members, np.cumsum(column)[:-1]), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


PROVIDES = DirichletClients
