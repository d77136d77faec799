"""How a data set is split over clients: the ways by name, and the split itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from ..checkpoints import FedscopeError, Partition
from .randomness import generator
from .registry import find
from .settings import Settings, setting


@dataclass(frozen=True)
class Partitioner(Settings):
    """A way to split; its fields are what stands behind the colon in ``name:value``.

    Attributes:
        needs_classes: whether it looks at the samples' classes.
    """

    section: ClassVar[str] = "data.partition"
    needs_classes: ClassVar[bool] = True

    def written(self) -> str:
        """As it is written in a configuration, with the values that were left out: ``dirichlet:0.1``.

        >>> parse_partition("dirichlet").written(), parse_partition("shards:03").written()
        ('dirichlet:0.1', 'shards:3')
        """
        name = type(self).__name__.lower()
        values = [getattr(self, key.name) for key in fields(self)]
        words = [repr(value).removesuffix(".0") for value in values if value is not None]
        return f"{name}:{','.join(words)}" if words else name

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """Indices of each client's samples; disjoint, together all samples unless the partition says otherwise.

        Args:
            labels: of the training split, [n] int64.
            clients: N.
            random: the partition's own generator.
        """
        raise NotImplementedError


def parse_partition(text: str) -> Partitioner:
    """``iid``, ``shards:2``, ``dirichlet:0.1`` as a partitioner.

    Raises:
        FedscopeError: an unknown name, too many values, or a value that is not a number.

    >>> parse_partition("shards:3")
    Shards(shards=3, size=None)
    """
    name, _, rest = text.partition(":")
    cls = find("partitions", name)
    values: dict[str, float | int] = {}
    known = [key.name for key in fields(cls)]
    given = rest.split(",") if rest else []
    if len(given) > len(known):
        raise FedscopeError(f"data.partition = {text!r} gives {len(given)} values, but {name} takes {len(known)}")
    for key, word in zip(known, given, strict=False):
        try:
            values[key] = int(word) if word.strip().lstrip("+-").isdigit() else float(word)
        except ValueError:
            raise FedscopeError(f"data.partition = {text!r}: {word!r} is not a number ({name}:{key})") from None
    made: Partitioner = cls(**values)
    return made


def partition(
    text: str, labels: np.ndarray, classes: int, clients: int, *, seed: int, client_test: float = 0.0
) -> Partition:
    """Split the training samples over N clients; the same seed gives the same split, whatever the method or run seed.

    Args:
        client_test: the share of each client's own samples set aside as its test part.

    Raises:
        FedscopeError: more clients than samples; a split that leaves a client without samples.
    """
    if clients > len(labels):
        raise FedscopeError(
            f"data.clients = {clients} is more than the {len(labels)} training samples; use fewer clients"
        )
    parts = parse_partition(text).split(labels, clients, generator(seed, "partition"))
    empty = [k for k, part in enumerate(parts) if not len(part)]
    if empty:
        raise FedscopeError(
            f"data.partition = {text!r} leaves client {empty[0]} without samples; use fewer clients or another seed"
        )
    test: tuple[np.ndarray, ...] | None = None
    if client_test:
        kept, aside = [], []
        for k, part in enumerate(parts):
            mixed = generator(seed, "client-test", client=k).permutation(part)
            held = min(round(client_test * len(part)), len(part) - 1)
            aside.append(np.sort(mixed[:held]))
            kept.append(mixed[held:])
        parts, test = kept, tuple(aside)
    sorted_parts = tuple(np.sort(part).astype(np.int64) for part in parts)
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in sorted_parts])
    return Partition(clients=sorted_parts, test=test, label_counts=counts)


@dataclass(frozen=True)
class IID(Partitioner):
    """All samples shuffled and dealt out; sizes differ by one at most."""

    needs_classes: ClassVar[bool] = False

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        return np.array_split(random.permutation(len(labels)), clients)


@dataclass(frozen=True)
class Shards(Partitioner):
    """Samples sorted by label, cut into N c shards of equal size, c random shards a client.

    Where N c does not divide the samples, shard sizes differ by one. With a ``size`` shards have that many samples, N c
    random ones of all the shards that the data make are dealt out, and the other samples are nobody's: 10 clients with
    ``shards:2,250`` own 5,000 samples, as the cross-silo clients of Zhou et al. (IMA) do.
    """

    shards: int = setting(2, "shards a client, about its number of classes", least=1)
    size: int | None = setting(None, "samples a shard; without it the shards hold all samples", least=1)

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
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


PROVIDES = {"iid": IID, "shards": Shards, "dirichlet": Dirichlet}
