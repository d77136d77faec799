"""Which of a round's clients are kept whole, where not all of them are: a draw that nothing else depends on."""

from __future__ import annotations

import numpy as np

#: the bit that no key of a sketch has, nor any other stream of this package
_OWN = 1 << 63


def drawn(clients: int, count: int, *, seed: int, round: int) -> np.ndarray:
    """The places of the clients of a round that are kept, ascending: [m], or all of [C] where m is not less.

    Every client gets a number of 64 bits, drawn from (seed, round), and the m least ones are kept, so that every subset
    of m is equally likely. The stream is its own: whether and how many are kept changes no number of the training, and
    a resumed run draws as it would have. Keeping more in another run keeps these too.

    Args:
        clients: C, of the round.
        count: m.
        seed: ``data.seed``, which draws cohorts too, so that runs of other methods keep the same clients.

    >>> [drawn(clients, count, seed=0, round=1).tolist() for clients, count in ((10, 3), (10, 4), (2, 3))]
    [[0, 2, 7], [0, 2, 5, 7], [0, 1]]
    """
    draws = np.random.Philox(key=np.array([seed % 2**64, _OWN | round], np.uint64)).random_raw(clients)
    return np.sort(np.argsort(draws, kind="stable")[:count])
