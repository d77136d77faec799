"""A server method: the coordinate-wise trimmed mean."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedscope.methods import Served, ServerMethod, setting


@dataclass(frozen=True)
class TrimmedMean(ServerMethod):
    """w⁺_j = the mean of θ_ij over the clients i that are left when the k smallest and the k largest are taken away.

    k = ⌊share · C⌋, for each of the P parameters by itself. Clients count alike, whatever p.
    """

    reads: ClassVar[str] = "columns"  # a parameter of w⁺ depends on that parameter of the clients alone
    unweighted: ClassVar[bool] = True
    forgets_start: ClassVar[bool] = True

    share: float = setting(0.1, "share of the clients taken away at each end", least=0, below=0.5)

    def step(self, state, start, clients, cohort):
        count = len(clients.parameters)
        k = int(self.share * count)
        ordered = np.sort(clients.parameters.astype(np.float64), axis=0)[k : count - k]
        return Served(ordered.mean(axis=0).astype(start.layout.dtype))
