"""``shards:c`` or ``shards:c,size``: McMahan et al., AISTATS 2017, Section 3; the source papers' "#C = c"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..partitioner import Partitioner


@dataclass(frozen=True)
class Shards(Partitioner):
    """Samples are sorted by label and cut into N c shards of equal size; each client gets c random shards.

    Where N c does not divide the samples, shard sizes differ by one. With a ``size`` shards have that many samples, N c
    random ones of all the shards that the data make are dealt out, and the other samples are nobody's: 10 clients with
    ``shards:2,250`` own 5,000 samples, as the cross-silo clients of Zhou et al. (IMA) do.
    """

    shards: int = setting(2, "shards per client, about its number of classes", least=1)
    size: int | None = setting(None, "samples per shard; without it, the shards hold all samples", least=1)

    @property
    def counted_by_client(self) -> bool:
        """With a ``size`` it has so many."""
        return self.size is not None

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: more shards than samples.
        """
        wanted = clients * self.shards
        made = len(labels) // self.size if self.size else wanted
        if wanted > made:
            raise FedscopeError(
                f"data.partition = {self.written()!r} with {clients} clients needs {wanted} shards of {self.size} "
                f"samples, but the {len(labels)} training samples make only {made}; use fewer clients, fewer shards or "
                "smaller ones"
            )
        if wanted > len(labels):
            raise FedscopeError(
                f"data.partition = 'shards:{self.shards}' with {clients} clients needs {wanted} shards, but there are "
                f"only {len(labels)} training samples; use fewer clients or fewer shards"
            )
        # Shuffled before the stable sort, so that a class's samples fall on its shards at random.
        mixed = random.permutation(len(labels))
        ordered = mixed[np.argsort(labels[mixed], kind="stable")]
        cut = np.array_split(ordered[: made * self.size] if self.size else ordered, made)
        dealt = random.permutation(made)[:wanted].reshape(clients, self.shards)
        return [np.concatenate([cut[shard] for shard in hand]) for hand in dealt]


PROVIDES = Shards
