"""How a data set is split over clients: what a file in ``partitions/`` supplies, and the split itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from ..checkpoints import FedscopeError, Partition
from .randomness import generator
from .registry import find, method_name
from .settings import Settings


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
        name = method_name(self)
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
