"""The Gram matrix of many models from sketches: of rounds that kept no models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...checkpoints import FedscopeError, Round, Run, recorded_clients
from .gram import Gram
from .shown_models import Models, models_of


def sketched_gram(asked: Sequence[tuple[Run, int]], *, progress: Callable[[int, int], None] | None = None) -> Gram:
    """Compute the Gram matrix of the clients of some rounds, and of ``global`` and ``averaged`` there, from sketches.

    Sketches of one layout and size have the same buckets and signs in all rounds and runs, and add up as models do.
    With S(w) of a model itself and S_i of client i's update from the ``start`` of its round, about r = the first
    round's ``start``::

        S(w_i − r) = S(start_t) − S(r) + S_i,    S(global_t − r) = S(global_t) − S(r)
        g_ij ≈ ⟨S(w_i − r), S(w_j − r)⟩

    so that distances between rounds are as exact as those within one: a squared one is off by √(2/k) of itself, a
    distance by 1/√(2k), one standard deviation, where no few parameters have most of it. Layers cannot be told apart,
    because all of a model's parameters share the buckets. Reads n × k numbers.

    Args:
        asked: runs and numbers of rounds with sketches, see :func:`told_from_sketches`.
        progress: told (rounds read, in all).

    Raises:
        FedscopeError: rounds without sketches; sketches of different sizes; what is not finite.
    """
    models = models_of(asked, sketched=True)
    common_size(models.rounds)
    reference = models.rounds[0].whole_sketch("start")
    parts = []
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged, who are named below
        for done, round_ in enumerate(models.rounds, start=1):
            parts.append(round_.sketch() + (round_.whole_sketch("start") - reference))
            if progress is not None:
                progress(done, len(models.rounds))
        parts += [(models.rounds[at].whole_sketch(which) - reference)[None] for at, which in models.servers]
        rows = np.concatenate(parts)
    _refuse_not_finite(models, rows)
    return Gram(models.points, _products(rows), tuple(models.layout.slices))


def told_from_sketches(asked: Sequence[tuple[Run, int]]) -> bool:
    """Tell whether the clients of some rounds are told from sketches: some of the rounds kept no models, and all have
    sketches.

    Raises:
        FedscopeError: a round without models and sketches; one with models alone together with one with sketches alone.
    """
    rounds = [(run, run.round(number)) for run, number in asked]
    lacking = [(run, round_) for run, round_ in rounds if not round_.has_clients]
    if not lacking:
        return False
    for run, round_ in lacking:
        if not has_sketches(round_):
            recorded_clients(run, round_.number, start=False)  # says what there is
    if bare := [round_ for _, round_ in rounds if not has_sketches(round_)]:
        raise FedscopeError(
            f"{bare[0].label} has its clients' models and no sketches, {lacking[0][1].label} sketches and not all "
            "models, between which there is no distance; ask for rounds of one kind"
        )
    return True


def has_sketches(round_: Round) -> bool:
    """Tell whether a round's clients have places among others' from their sketches."""
    return round_.has_sketch and "start" in round_.whole_sketches


def common_size(rounds: Sequence[Round]) -> int:
    """k of the sketches of some rounds.

    Raises:
        FedscopeError: they are of different sizes.
    """
    sizes = [len(round_.whole_sketch("start")) for round_ in rounds]
    for round_, k in zip(rounds, sizes, strict=True):
        if k != sizes[0]:
            raise FedscopeError(
                f"{rounds[0].label} has sketches of {sizes[0]:,} numbers, {round_.label} of {k:,}, between which there "
                "is no distance; show them one by one"
            )
    return sizes[0]


def _refuse_not_finite(models: Models, rows: np.ndarray) -> None:
    broken = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        raise FedscopeError(
            f"{models.address(int(broken.argmax()))} has parameters that are not finite, so its sketch has no distance "
            "to others; ask for other rounds"
        )


def _products(rows: np.ndarray) -> np.ndarray:
    """⟨S_i, S_j⟩, in one thread: threads add up in the order in which they end, and t-SNE amplifies the rounding."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        matrix: np.ndarray = rows @ rows.T
    symmetric: np.ndarray = np.triu(matrix) + np.triu(matrix, 1).T
    return symmetric
