"""Whether sketches of updates go with the models that were recorded beside them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..checkpoints import Round
from ..checkpoints.errors import listed
from ..checkpoints.sketches import sketch

# Of the models' lengths: a float32 parameter is off by 2^-24 of itself at most, global is rounded once, and a sketch
# adds what it is given, so that four times that is beyond any rounding.
_TOLERANCE = 2.0**-22


def sketch_contradictions(round_: Round, *, is_mean: bool) -> Iterator[str]:
    """What does not hold between a round's sketches S_k, [C, k], and its models, a clause each:

    - S_k is the sketch of w_k − start, bit for bit, of every client whose model was recorded;
    - Σ_k p_k S_k is the sketch of ``global`` − ``start``, up to rounding, where ``is_mean`` says that the server took
      the weighted mean, and not all clients were recorded, which would show it bit for bit.

    Without sketches or ``start`` nothing is compared. One client is in memory at a time.
    """
    if not round_.has_sketch or "start" not in round_.models:
        return
    start, rows = round_.read("start").parameters, round_.sketch()
    ids = round_.client_ids if round_.has_clients else round_.sampled_ids
    place = {int(k): i for i, k in enumerate(round_.client_ids)}
    k = rows.shape[1]
    other = [
        int(client)
        for client in ids
        if not _same(
            sketch(round_.layout, start, round_.client(int(client)).parameters[None], k)[0], rows[place[int(client)]]
        )
    ]
    if other:
        yield f"the sketch of client {listed(other, 6)} is not that of its recorded model"
    if not is_mean or round_.has_clients or "global" not in round_.models:
        return
    end = round_.read("global").parameters
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        found = sketch(round_.layout, start, end[None], k)[0].astype(np.float64)
        away = float(np.linalg.norm(found - round_.weights @ rows.astype(np.float64)))
        norms = [float(np.linalg.norm(values.astype(np.float64))) for values in (start, end)]
        size = sum(norms) + float(round_.weights @ np.linalg.norm(rows.astype(np.float64), axis=1))
    if away > _TOLERANCE * size:
        yield (
            "global is not the mean of its clients with the weights p, as their sketches have it "
            f"(off by {away / max(float(np.linalg.norm(found)), 1e-300):.1e} of the server's step)"
        )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))
