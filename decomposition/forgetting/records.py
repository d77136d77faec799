"""Right answers of one round, before and after its local training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """Counts of samples by client and true class, int64 [K, classes], for one ``round`` with ``client_ids`` [K].

    ``own``: samples that are the client's, ``others``: those that are not. Of these ``before_own`` and
    ``before_others`` are classified rightly by the model the clients were sent, ``after_own`` and ``after_others`` by
    the client's model after local training. ``labels``: how many training samples the client has, by class.
    ``diverged`` [K]: whether the client's model holds a NaN or an infinity; None where that is not known.
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
    diverged: Flags | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for the store of an interrupted analysis."""
        known = (one.name for one in fields(self) if getattr(self, one.name) is not None)
        return {name: np.asarray(getattr(self, name)).tolist() for name in known}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Answers:
        """The inverse of :meth:`to_json`."""
        lists = {name: own for name, own in value.items() if name != "round"}
        arrays = {name: np.array(own, dtype=bool if name == "diverged" else np.int64) for name, own in lists.items()}
        return cls(round=int(value["round"]), **arrays)
