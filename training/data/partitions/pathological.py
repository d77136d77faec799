"""``pathological:c``: exactly c classes per client; each class is split equally over the clients that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..partitioner import Partitioner


@dataclass(frozen=True)
class Pathological(Partitioner):
    """Every client holds exactly c classes; every class has equally many holders, which share it equally.

    With N clients and C classes a class has ⌊N c / C⌋ or ⌈N c / C⌉ holders, and its samples are dealt to them in
    shares that differ by one at most. All samples are used. (`shards:c` cuts sorted labels, so that a shard may hold
    the end of one class and the beginning of the next; here the number of classes is exact.)
    """

    classes: int = setting(2, "exact number of classes per client", least=1)

    @property
    def places_every_class(self) -> bool:
        """Yes."""
        return True

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: more classes a client than there are; fewer places than classes; a class with fewer samples
                than holders.
        """
        present = np.unique(labels)
        if self.classes > len(present):
            raise FedscopeError(
                f"data.partition = {self.written()!r} wants {self.classes} classes a client, but the training samples "
                f"have {len(present)}; take at most that many"
            )
        if clients * self.classes < len(present):
            raise FedscopeError(
                f"data.partition = {self.written()!r} with {clients} clients has room for {clients * self.classes} of "
                f"the {len(present)} classes; take more clients, or more classes a client"
            )
        return dealt(labels, holders_of(len(present), clients, self.classes, random), random)


def holders_of(classes: int, clients: int, each: int, random: np.random.Generator) -> np.ndarray:
    """Choose which client holds which class, bool [N, C]: ``each`` classes a client, ⌊N each/C⌋ or ⌈N each/C⌉ clients a
    class.

    Client after client takes the classes with the most places left, ties at random: so the places left never differ by
    more than one, and the last client still finds ``each`` different classes.
    """
    places = np.full(classes, clients * each // classes)
    places[random.permutation(classes)[: clients * each % classes]] += 1
    held = np.zeros((clients, classes), dtype=bool)
    for client in random.permutation(clients):
        taken = np.lexsort((random.random(classes), -places))[:each]
        held[client, taken] = True
        places[taken] -= 1
    return held


def dealt(labels: np.ndarray, held: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Each client's samples, where every class is cut into equal shares for its holders ``held`` [N, C].

    Raises:
        FedscopeError: a class with fewer samples than holders.
    """
    parts: list[list[np.ndarray]] = [[] for _ in held]
    for label, holders in zip(np.unique(labels), held.T, strict=True):
        members = random.permutation(np.flatnonzero(labels == label))
        owners = random.permutation(np.flatnonzero(holders))
        if len(members) < len(owners):
            raise FedscopeError(
                f"class {label} has {len(members)} training samples for the {len(owners)} clients that are to hold it; "
                "use fewer clients, or fewer classes a client"
            )
        for owner, share in zip(owners, np.array_split(members, len(owners)), strict=True):
            parts[owner].append(share)
    return [np.concatenate(part) for part in parts]


PROVIDES = Pathological
