"""Whether sketches go with each other, and with the models that were recorded beside them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...checkpoints import Round
from ...checkpoints.errors import listed
from ...checkpoints.rounds.sketches import reader, sketch, sketch_whole

# Of the models' lengths: a float32 parameter is off by 2^-24 of itself at most, global is rounded once, and a sketch
# adds what it is given, so that four times that is beyond any rounding.
_TOLERANCE = 2.0**-22


def sketch_contradictions(round_: Round, *, is_mean: bool) -> Iterator[str]:
    """What does not hold between a round's sketches S_k, [C, k], and its models, a clause each:

    - S_k is the sketch of w_k − start, bit for bit, of every client whose model was recorded, where start was;
    - the sketches of ``start``, ``global`` and ``averaged`` are those of these models, bit for bit, where recorded;
    - the sketch of ``global`` less that of ``start`` is Σ_k p_k S_k, up to rounding, where ``is_mean`` says that the
      server took the weighted mean. That needs no model, and so holds for rounds that recorded none.

    Without sketches nothing is compared. One client is in memory at a time.
    """
    if not round_.has_sketch:
        return
    rows = round_.sketch()
    other = _others(round_, rows)
    if other:
        yield f"the sketch of client {listed(other, 6)} is not that of its recorded model"
    whole = {name: round_.whole_sketch(name) for name in round_.whole_sketches}
    for name in whole:
        if name in round_.models:
            own = reader(round_.layout, round_.read(name).parameters)
            if not _same(sketch_whole(round_.layout, [own], rows.shape[1])[0], whole[name]):
                yield f"the sketch of {name} is not that of the recorded model"
    if is_mean and {"start", "global"} <= whole.keys():
        with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
            step, updates = whole["global"] - whole["start"], rows.astype(np.float64)
            away = float(np.linalg.norm(step - round_.weights @ updates))
            size = sum(float(np.linalg.norm(one)) for one in whole.values())
            size += float(round_.weights @ np.linalg.norm(updates, axis=1))
        if away > _TOLERANCE * size:
            share = away / max(float(np.linalg.norm(step)), np.finfo(np.float64).tiny)
            yield (
                "global is not the mean of its clients with the weights p, as their sketches have it "
                f"(off by {share:.1e} of the server's step)"
            )


def _others(round_: Round, rows: np.ndarray) -> list[int]:
    """The clients whose sketch is not that of their model."""
    if "start" not in round_.models:
        return []
    ids = round_.client_ids if round_.has_clients else round_.sampled_ids
    start, k = round_.read("start").parameters, rows.shape[1]
    places = np.searchsorted(round_.client_ids, ids).tolist()
    return [
        client
        for client, place in zip(ids.tolist(), places, strict=True)
        if not _same(sketch(round_.layout, start, round_.client(client).parameters[None], k)[0], rows[place])
    ]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))
