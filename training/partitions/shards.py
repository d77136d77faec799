"""``shards:c``: McMahan et al., AISTATS 2017, Section 3; the source papers' "#C = c"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...checkpoints import FedscopeError
from ..settings import setting
from ..splitting import Partitioner


@dataclass(frozen=True)
class Shards(Partitioner):
    """Samples sorted by label, cut into N c shards of equal size, c random shards a client.

    Where N c does not divide the samples, shard sizes differ by one.
    """

    shards: int = setting(2, "shards a client, about its number of classes", least=1)

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """See :class:`fedscope.training.splitting.Partitioner`.

        Raises:
            FedscopeError: more shards than samples.
        """
        wanted = clients * self.shards
        if wanted > len(labels):
            raise FedscopeError(
                f"data.partition = 'shards:{self.shards}' with {clients} clients needs {wanted} shards, but there are "
                f"only {len(labels)} training samples; use fewer clients or fewer shards"
            )
        # Shuffled before the stable sort, so that a class's samples fall on its shards at random.
        mixed = random.permutation(len(labels))
        cut = np.array_split(mixed[np.argsort(labels[mixed], kind="stable")], wanted)
        dealt = random.permutation(wanted).reshape(clients, self.shards)
        return [np.concatenate([cut[shard] for shard in hand]) for hand in dealt]


PROVIDES = Shards
