"""The interface of partitions: those in ``partitions/``, and of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ..settings.registry import method_name
from ..settings.settings import Settings


@dataclass(frozen=True)
class Partitioner(Settings):
    """A way to split; its fields are what stands behind the colon in ``name:value``.

    Attributes:
        needs_classes: whether it looks at the samples' classes.
        takes: what may follow behind the colon, where the fields do not say it.
    """

    section: ClassVar[str] = "data.partition"
    needs_classes: ClassVar[bool] = True
    takes: ClassVar[str] = ""

    @property
    def counted_by_client(self) -> bool:
        """True if a client's samples do not depend on how many clients there are, so that fewer have fewer in all."""
        return False

    @property
    def places_every_class(self) -> bool:
        """True if clients hold so many classes each, and every class has a client: fewer may have no room for all."""
        return False

    def resolved(self) -> Self:
        """With values that only another package knows; as it is where there are none.

        Raises:
            FedscopeError: the other package is not installed, or refuses a value.
        """
        return self

    def is_settled_as(self, other: Partitioner) -> bool:
        """Check whether another one is this one, with values of :meth:`resolved`."""
        return self.written() == other.written()

    @classmethod
    def form(cls) -> str:
        """Write it with its defaults, and what may follow in brackets.

        >>> from fedscope.training.settings.registry import find
        >>> find("partitions", "shards").form(), find("partitions", "iid").form()
        ('shards:2[,size]', 'iid')
        """
        return cls().written() + (cls.takes or "".join(f"[,{key.name}]" for key in fields(cls) if key.default is None))

    def written(self) -> str:
        """As it is written in a configuration, with the values that were left out: ``dirichlet:0.1``.

        >>> from fedscope.training.settings.registry import find
        >>> find("partitions", "shards").parse("shards", "03").written()
        'shards:3'
        """
        name = method_name(self)
        values = [getattr(self, key.name) for key in fields(self)]
        words = [repr(value).removesuffix(".0") for value in values if value is not None]
        return f"{name}:{','.join(words)}" if words else name

    @classmethod
    def parse(cls, name: str, rest: str) -> Self:
        """From what stands behind the colon: numbers, in the order of the fields.

        Raises:
            FedscopeError: too many values, or a value that is not a number.
        """
        text, given = f"{name}:{rest}", rest.split(",") if rest else []
        known = [key.name for key in fields(cls)]
        if len(given) > len(known):
            raise FedscopeError(f"data.partition = {text!r} gives {len(given)} values, but {name} takes {len(known)}")
        values: dict[str, float | int] = {}
        for key, word in zip(known, given, strict=False):
            try:
                values[key] = int(word) if word.strip().lstrip("+-").isdigit() else float(word)
            except ValueError:
                raise FedscopeError(f"data.partition = {text!r}: {word!r} is not a number ({name}:{key})") from None
        return cls(**values)

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Indices of each client's samples; disjoint, together all samples unless the partition says otherwise.

        Args:
            labels: of the training split, [n] int64.
            clients: N.
            random: the partition's own generator.
            groups: what else is known of the samples, by name: ``user``, ``domain``, ``superclass``, each [n] int64.
        """
        raise NotImplementedError

    def split_counting(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> tuple[list[np.ndarray], int]:
        """As :meth:`split`, and how many samples were moved between clients so that each has a minimum.

        Called by :func:`counted_split`.
        """
        return self.split(labels, clients, random, groups), 0


def counted_split(
    partitioner: Partitioner,
    labels: np.ndarray,
    clients: int,
    random: np.random.Generator,
    groups: Mapping[str, np.ndarray],
) -> tuple[list[np.ndarray], int]:
    """Split, and count what was moved as far as it is known: a class that derives from one that counts may have a
    ``split`` of its own, which is what counts then."""
    derived = next(one for one in type(partitioner).__mro__ if not {"split", "split_counting"}.isdisjoint(vars(one)))
    if "split_counting" in vars(derived):
        return partitioner.split_counting(labels, clients, random, groups)
    return partitioner.split(labels, clients, random, groups), 0
