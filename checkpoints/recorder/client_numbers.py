"""Numbers beside a round's clients: how these are numbered, what they weigh, and what else is given of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from .client_order import is_counted, refuse_uncounted
from .labelled import by_index

#: client numbers are stored as int64
LARGEST_ID = 2**63 - 1
#: what to do with pairs (n_k, model), as FedML's servers collect them
SAMPLES_OF_PAIRS = "give clients=[model for _, model in pairs], samples=[n for n, _ in pairs]"


def number_clients(given: Any, place: str, what: str) -> dict[int, Any]:
    """Models by the clients' numbers, given by number, as a list, or as pairs.

    Args:
        what: ``clients`` or ``starts``.

    Raises:
        FedscopeError: none; in another form; a client twice, or with another number than a whole one from 0.
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        pairs = list(given) if isinstance(given, list | tuple) else []
        if is_counted(pairs):
            pairs = list(enumerate(pairs))
    if not pairs:
        none = given is None or (isinstance(given, Sized) and not len(given))
        how = f"no {what}" if none else f"{what} as {type(given).__name__}"
        leave = "leave the round out where nobody has answered, or " if none and what == "clients" else ""
        raise FedscopeError(f"{place}: {how} were given; {leave}give {what}={{number: model}}, or a list")
    found: dict[int, Any] = {}
    for k, model in pairs:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= LARGEST_ID:
            models = "models.items()" if isinstance(given, Mapping) else "models"
            raise FedscopeError(
                f"{place}: client {k!r} is not a whole number from 0 to 2^63 - 1; number all clients once, before the "
                "rounds: numbers = {name: k for k, name in enumerate(names)}, and give "
                f"{what}={{numbers[name]: model for name, model in {models}}}"
            )
        if int(k) in found:
            counts = f"; where {k} is a number of samples, {SAMPLES_OF_PAIRS}" if what == "clients" else ""
            raise FedscopeError(
                f"{place}: client {k} is there twice in {what}=; give one model of it, and what came later in the next "
                f"round{counts}"
            )
        found[int(k)] = model
    return found


def read_samples(given: Any, ids: Sequence[int], place: str) -> np.ndarray | None:
    """n_k in the order of the clients.

    Raises:
        FedscopeError: no whole numbers from 0; of other clients.
    """
    counts = column_of(given, ids, place, "samples")
    if counts is not None and not ((counts >= 0) & (counts < 2**53) & (counts % 1 == 0)).all():
        raise FedscopeError(
            f"{place}: samples are {list_few(counts.tolist(), 4)}; give whole numbers from 0 on, and others as weights="
        )
    return counts


def read_weights(given: Any, counts: np.ndarray | None, ids: Sequence[int], place: str) -> np.ndarray:
    """p in the order of the clients, sum 1.

    Raises:
        FedscopeError: negative or not finite, or all of them 0; of other clients.
    """
    p = column_of(given, ids, place, "weights")
    p = p if p is not None else counts if counts is not None else np.ones(len(ids))
    if not (np.isfinite(p).all() and (p >= 0).all() and p.max() > 0):
        raise FedscopeError(
            f"{place}: the clients' weights are {list_few(p.tolist(), 4)}; give numbers from 0 on, at least one above 0"
        )
    p = p / p.max()  # so that no sum is infinite
    shares: np.ndarray = p / p.sum()
    return shares


def by_client(given: Any, clients: Mapping[int, Any], place: str, what: str) -> Any:
    """Numbers beside the clients by what names them: a mapping, or a list that is counted as the clients came.

    Raises:
        FedscopeError: numbers in no order; a list beside clients that came in another.
    """
    found = by_index(given, f"{place}: {what}=", f"{what}={{number: ...}}")
    refuse_uncounted(found, clients, place, what)
    return found


def column_of(given: Any, ids: Sequence[int], place: str, what: str) -> np.ndarray | None:
    """Numbers in the order of the clients.

    Raises:
        FedscopeError: of other clients; no numbers.
    """
    if given is None:
        return None
    try:
        by_id = dict(enumerate(given)) if not isinstance(given, Mapping) else dict(given)
    except TypeError:  # one number
        raise FedscopeError(f"{place}: {what}= is {given!r}; give one of each client: {what}={{number: ...}}") from None
    known = set(ids)
    if other := [k for k in by_id if k not in known and not isinstance(k, int | np.integer)]:
        raise FedscopeError(
            f"{place}: {what}= has {other[0]!r}, which is no client's number; number them as clients= does "
            f"({list_few(ids, 6)})"
        )
    if lacking := [k for k in ids if k not in by_id]:
        raise FedscopeError(f"{place}: client {lacking[0]} has a model, but no {what}; give {what} of all clients")
    if other := [k for k in by_id if k not in known]:
        raise FedscopeError(
            f"{place}: client {other[0]} has {what}, but no model (clients {list_few(ids, 6)} have); give both or "
            "neither"
        )
    try:
        return np.array([float(by_id[k]) for k in ids])
    except (TypeError, ValueError, OverflowError):
        raise FedscopeError(
            f"{place}: {what} are {list_few([by_id[k] for k in ids], 4)}, not numbers; give one number a client"
        ) from None
