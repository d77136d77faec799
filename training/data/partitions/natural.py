"""``natural``: every client is one user of the data set: a writer of FEMNIST, a role of Shakespeare, or an author
of GLDv2 User-160k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....checkpoints import FedscopeError
from ..partitioner import Partitioner
from ..split import group_of


@dataclass(frozen=True)
class Natural(Partitioner):
    """Every client has the samples of one user, in the order of the users' ids.

    With fewer clients than users so many users are drawn, and the samples of the others are nobody's.
    """

    needs_classes: ClassVar[bool] = False

    @property
    def counted_by_client(self) -> bool:
        """A client brings all samples of its user."""
        return True

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`.

        Raises:
            FedscopeError: data that do not know their users; more clients than users.
        """
        user = group_of(groups, "user", "natural")
        users = np.unique(user)
        if clients > len(users):
            raise FedscopeError(
                f"data.partition = 'natural' with {clients} clients, but the data have {len(users)} users; give "
                f"--clients {len(users)} or fewer"
            )
        drawn = np.sort(random.choice(users, clients, replace=False))
        order = np.argsort(user, kind="stable")
        begins, ends = (np.searchsorted(user[order], drawn, side=side) for side in ("left", "right"))
        return [order[begin:end] for begin, end in zip(begins, ends, strict=True)]


PROVIDES = Natural
