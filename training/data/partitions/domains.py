"""``domains:m`` or ``domains:m,shards:2``: feature skew; every domain is split over m clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..partitioner import Partitioner, counted_split
from ..split import group_of, parse_partition


@dataclass(frozen=True)
class Domains(Partitioner):
    """Clients 0 to m − 1 have only samples of the first domain, the next m clients only samples of the second, and
    so on.

    Inside a domain its samples are split as ``inside`` says: ``iid``, or with label skew ``shards:2``,
    ``dirichlet:0.1``.
    """

    needs_classes: ClassVar[bool] = True
    each: int = setting(20, "clients per domain", least=1)
    inside: str = setting("iid", "the split of a domain's samples over its clients")

    @classmethod
    def parse(cls, name: str, rest: str) -> Self:
        """``20`` or ``20,shards:2``."""
        each, _, inside = rest.partition(",")
        if each and not each.strip().isdigit():
            raise FedscopeError(f"data.partition = '{name}:{rest}': {each!r} is not a number ({name}:each)")
        given: dict[str, Any] = {"each": int(each)} if each else {}
        made = cls(**given | ({"inside": inside} if inside else {}))
        if isinstance(parse_partition(made.inside), Domains):
            raise FedscopeError(f"data.partition = '{name}:{rest}' splits domains by domain; give another one inside")
        return made

    def written(self) -> str:
        """``domains:20,shards:2``."""
        return f"domains:{self.each},{parse_partition(self.inside).written()}"

    @property
    def counted_by_client(self) -> bool:
        """As inside a domain."""
        return parse_partition(self.inside).counted_by_client

    @property
    def places_every_class(self) -> bool:
        """As inside a domain."""
        return parse_partition(self.inside).places_every_class

    def is_settled_as(self, other: Partitioner) -> bool:
        """As inside a domain."""
        if not isinstance(other, Domains) or self.each != other.each:
            return False
        return parse_partition(self.inside).is_settled_as(parse_partition(other.inside))

    def resolved(self) -> Self:
        """With the split inside resolved."""
        return replace(self, inside=parse_partition(self.inside).resolved().written())

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`; raises as :meth:`split_counting`."""
        return self.split_counting(labels, clients, random, groups)[0]

    def split_counting(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> tuple[list[np.ndarray], int]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: data that do not know their domains; another number of clients than m a domain; what the
                split inside refuses.
        """
        domain = group_of(groups, "domain", self.written())
        present = np.unique(domain)
        if clients != self.each * len(present):
            raise FedscopeError(
                f"data.partition = {self.written()!r} splits each of {len(present)} domains into {self.each} clients; "
                f"give --clients {self.each * len(present)}"
            )
        inside = parse_partition(self.inside)
        parts: list[np.ndarray] = []
        moved = 0
        for number in present:
            rows = np.flatnonzero(domain == number)
            if len(rows) < self.each:
                raise FedscopeError(
                    f"data.partition = {self.written()!r}: domain {number} has {len(rows)} samples for {self.each} "
                    "clients; take fewer clients a domain"
                )
            within = {kind: of[rows] for kind, of in groups.items()}
            own, of_them = counted_split(inside, labels[rows], self.each, random, within)
            parts += [rows[part] for part in own]
            moved += of_them
        return parts, moved


PROVIDES = Domains
