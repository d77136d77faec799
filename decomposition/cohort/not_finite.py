"""Which clients diverged: their models hold a value that is not finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...checkpoints import Weights
from ...checkpoints.errors import listed


def diverged_rows(clients: Weights) -> npt.NDArray[np.bool_]:
    """Which of the clients [C, P] have a NaN or an infinity in a parameter or a buffer, [C].

    Row by row, so that no mask of all parameters is made.

    >>> from fedscope.checkpoints import Layout
    >>> from torch import nn
    >>> values = np.array([[1, 2], [np.nan, 0], [3, -np.inf]], np.float32)
    >>> diverged_rows(Weights(Layout.of(nn.Linear(2, 1, bias=False)), values, {})).tolist()
    [False, True, True]
    """
    held = (clients.parameters, *clients.buffers.values())
    rows = range(len(clients.parameters))
    return np.array([not all(np.isfinite(values[k]).all() for values in held) for k in rows], np.bool_)


def diverged_words(ids: Sequence[int], round_: int) -> str:
    """The same of one round in words, by the clients' ids; "" where there is none.

    >>> diverged_words([2], 5), diverged_words([], 5)
    ('the model of client 2 in round 5 is not finite', '')
    >>> diverged_words([2, 7], 5)
    'the models of clients 2, 7 in round 5 are not finite'
    """
    if not ids:
        return ""
    models, clients, are = ("models", "clients", "are") if len(ids) > 1 else ("model", "client", "is")
    return f"the {models} of {clients} {listed(ids)} in round {round_} {are} not finite"
