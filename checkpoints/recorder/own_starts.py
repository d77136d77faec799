"""Rounds whose clients start from models of their own: gossip, rings, stale and personal models; what is given of them,
read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..models.weights import Layout
from ..rounds.drift import NUMBERS
from .coerce_models import ModelTensors, numbers_of
from .labelled import table_by_index

#: how far the sum of a row may be from 1: of float32 weights
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class OwnStarts:
    """What clients started from, in their order.

    Attributes:
        models: one each.
        mixing: [C, C], float64, rows sum to 1: row i has the weights of the clients in node i's next start.
        staleness: [C], how many rounds old each start was.
    """

    models: Sequence[ModelTensors]
    mixing: np.ndarray | None = None
    staleness: np.ndarray | None = None


def refuse_without_starts(place: str, *, start: Any, starts: Any, **others: Any) -> None:
    """Make sure that what is said of clients' own starts comes with them, and not beside one start for all.

    Raises:
        FedscopeError: both ``start`` and ``starts``; ``mixing`` or ``staleness`` without ``starts``.
    """
    if start is not None and starts is not None:
        raise FedscopeError(
            f"{place}: start= is one model for all clients, and starts= is one each; give one of the two"
        )
    for what, given in others.items():
        if given is not None and starts is None:
            raise FedscopeError(
                f"{place}: {what}= is of clients that start from models of their own; give them as starts=, or leave "
                f"{what}= out"
            )


def refuse_unmatched(place: str, starts: Iterable[int], clients: Iterable[int]) -> None:
    """Make sure that each client that started has answered, and the other way round.

    Raises:
        FedscopeError: a client without one of the two.
    """
    began, answered = set(starts), set(clients)
    if lost := sorted(began - answered):
        raise FedscopeError(
            f"{place}: client {lost[0]} has a start, but no model after its training (clients "
            f"{list_few(sorted(answered), 6)} have); leave those that have not answered out of starts="
        )
    if unknown := sorted(answered - began):
        raise FedscopeError(
            f"{place}: client {unknown[0]} has a model, but no start (clients {list_few(sorted(began), 6)} have); "
            "give starts= of all clients"
        )


def read_mixing(given: Any, ids: Sequence[int], place: str) -> np.ndarray | None:
    """Read a mixing matrix, [C, C] in the order of the clients.

    Args:
        given: [C, C], rows and columns in the order of the clients' numbers; or by number, ``{i: {j: weight}}``, where
            what is not named is 0; or a table of pandas, whose index and columns say the numbers.

    Raises:
        FedscopeError: another shape; other clients; weights that are no finite numbers, or a row that does not sum
            to 1.
    """
    if given is None:
        return None
    given = table_by_index(given, f"{place}: mixing=", "mixing={i: {j: weight}}")
    matrix = _by_number(given, ids, place) if isinstance(given, Mapping) else _array(given, place)
    shape = (len(ids), len(ids))
    if matrix.shape != shape:
        raise FedscopeError(
            f"{place}: mixing has shape {list(matrix.shape)}, and {len(ids)} clients have a model; give "
            f"{list(shape)}, a row a client in the order of their numbers"
        )
    if not np.isfinite(matrix).all():
        node = ids[int(np.argmin(np.isfinite(matrix).all(axis=1)))]
        raise FedscopeError(f"{place}: the weights of client {node} in mixing are not finite; give numbers")
    off = abs(matrix.sum(axis=1) - 1)
    if (off > ROUNDING).any():
        node = int(np.argmax(off))
        turned = (abs(matrix.sum(axis=0) - 1) <= ROUNDING).all()
        columns = " (its columns do; give mixing.T if you write it the other way round)" if turned else ""
        raise FedscopeError(
            f"{place}: the weights of client {ids[node]} in mixing sum to {matrix[node].sum():.6g}, not 1{columns}; "
            "row i has the weights of the clients' models in the next start of client i, or leave mixing= out"
        )
    return matrix


def read_staleness(found: np.ndarray | None, place: str) -> np.ndarray | None:
    """Check ages of starts, one a client.

    Raises:
        FedscopeError: no whole numbers from 0.
    """
    if found is not None and not ((found >= 0) & (found < 2**53) & (found % 1 == 0)).all():
        raise FedscopeError(
            f"{place}: staleness is {list_few(found.tolist(), 4)}; give how many rounds old each start was, whole "
            "numbers from 0 on"
        )
    return found


def distances_of(layout: Layout, starts: Sequence[ModelTensors], clients: Sequence[ModelTensors]) -> dict[str, float]:
    """Measure the consensus distances of a round whose models are not all kept: numbers by column of ``metrics.csv``.

    They are those that ``fedscope consensus`` gives of a round that kept all: ``consensus_before`` is √(1/C Σ ‖w_c −
    w̄‖²) of the clients, before they are mixed, ``consensus_start`` that of their starts, which is the distance after
    the mixing of the round before.
    """
    return {"consensus_before": _distance(layout, clients), "consensus_start": _distance(layout, starts)}


def _distance(layout: Layout, models: Sequence[ModelTensors]) -> float:
    square, step = 0.0, max(1, NUMBERS // len(models))
    for entry in layout.parameters:
        rows = [(one.arrays[entry.name].reshape(-1), one.dtypes[entry.name]) for one in models]
        for at in range(0, len(rows[0][0]), step):
            block = np.array([numbers_of(row[at : at + step], dtype) for row, dtype in rows], np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
                block -= block.mean(axis=0)
                square += float((block**2).sum())
    return float(np.sqrt(square / len(models)))


def _array(given: Any, place: str) -> np.ndarray:
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise FedscopeError(
            f"{place}: mixing is a {type(given).__name__} that is no matrix of numbers; give an array [C, C], or "
            "{client: {client: weight}}"
        ) from None


def _by_number(given: Mapping[Any, Any], ids: Sequence[int], place: str) -> np.ndarray:
    row_of, matrix = {k: i for i, k in enumerate(ids)}, np.zeros((len(ids), len(ids)))
    if lacking := [k for k in ids if k not in given]:
        raise FedscopeError(f"{place}: client {lacking[0]} has a model, but no row in mixing; give a row of each")
    for node, row in given.items():
        members = row if isinstance(row, Mapping) else {}
        if other := [k for k in (node, *members) if k not in row_of]:
            raise FedscopeError(
                f"{place}: mixing names client {other[0]!r}, which has no model in this round (clients "
                f"{list_few(ids, 6)} have); leave it out"
            )
        if not isinstance(row, Mapping):
            raise FedscopeError(
                f"{place}: the row of client {node} in mixing is a {type(row).__name__}; give {{client: weight}}"
            )
        for k, weight in members.items():
            try:
                matrix[row_of[node], row_of[k]] = float(weight)
            except (TypeError, ValueError):
                raise FedscopeError(
                    f"{place}: mixing has {weight!r} for clients {node} and {k}, which is not a number"
                ) from None
    return matrix
