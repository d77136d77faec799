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
    check_with: ClassVar = {"share": 0.25}  # of the check's few clients some are to be trimmed
    forgets_start: ClassVar[bool] = True

    share: float = setting(0.1, "share of the clients taken away at each end", least=0, below=0.5)

    def step(self, state, start, clients, cohort):
        count = len(clients.parameters)
        k = int(self.share * count)
        ordered = np.sort(clients.parameters, axis=0)  # NaN comes last
        mean = ordered[k : count - k].mean(axis=0, dtype=np.float64)
        mean[np.isnan(ordered[-1])] = np.nan  # a client that has diverged is not trimmed away without a word
        return Served(mean.astype(start.layout.dtype))
