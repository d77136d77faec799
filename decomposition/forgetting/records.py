"""Right answers of one round, before and after its local training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...checkpoints.results import Kept

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers(Kept):
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
