"""Right answers of one round, before and after its local training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answers:
    """Counts of samples by client and true class, int64 [K, classes], for one ``round`` with ``client_ids`` [K].

    ``own``: samples that are the client's, ``others``: those that are not. Of these ``before_own`` and
    ``before_others`` are classified rightly by the model the clients were sent, ``after_own`` and ``after_others`` by
    the client's model after local training. ``labels``: how many training samples the client has, by class.
    """

    round: int
    client_ids: Counts
    labels: Counts
    own: Counts
    others: Counts
    before_own: Counts
    after_own: Counts
    before_others: Counts
    after_others: Counts

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for the store of an interrupted analysis."""
        return {one.name: np.asarray(getattr(self, one.name)).tolist() for one in fields(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Answers:
        """The inverse of :meth:`to_json`."""
        counts = {name: np.array(lists, dtype=np.int64) for name, lists in value.items() if name != "round"}
        return cls(round=int(value["round"]), **counts)
