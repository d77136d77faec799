"""How often the clients of a round disagree on the sign of an update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round, Weights, as_disk_matrix, recorded_matrix
from ...checkpoints.models.products import Adapters
from ..adapters.inner_products import differences
from ..adapters.recorded_adapters import factors_of, read_parameter

Array = npt.NDArray[np.float64]

#: entries of products that are formed at a time, 8 MiB a client
ENTRIES = 2**20
#: of an entry's factors, ‖b‖ ‖a‖: a smaller change is the rounding of factors in float32
ROUNDING = 2.0**-22


def sign_conflict(round_: Round, adapters: Adapters | None = None) -> float | None:
    """Compute the share of the parameters which some clients of a round have raised and others lowered.

    Of the parameters that any client has moved; NaN where none has, None where the round's ``start`` was not recorded.
    A number that is not finite, as of a client that diverged, has no sign and has not moved. Clients are read in blocks
    of columns.

    Args:
        adapters: what the models add, where they are adapters: the parameters are then the entries of s B A, of which
            a block of rows of one layer is formed at a time, and those beside the adapters. It does not depend on the
            choice of factors. An entry that changed by less than its factors' rounding has not moved.
    """
    if "start" not in round_.models:
        return None
    if adapters is not None:
        return share(counts(*signs) for signs in _of_adapters(round_, adapters))
    rows = as_disk_matrix(recorded_matrix(round_).parameters)
    assert rows is not None, "the clients of a recorded round are on the disk"
    return conflicts_in(round_.read("start"), rows.blocks())


def conflicts_in(start: Weights, blocks: Iterable[tuple[slice, np.ndarray]]) -> float:
    """Compute the share of moved parameters with updates of both signs, from blocks of columns of the clients.

    Args:
        blocks: where columns lie, and their values [C, n].

    >>> from fedscope.checkpoints import Layout, TensorEntry
    >>> start = Weights(Layout((TensorEntry("w", (4,), "float32", "parameter"),)), np.zeros(4, np.float32), {})
    >>> clients = np.float32([[1, 2, -1, 0], [1, -2, 0, 0]])
    >>> conflicts_in(start, [(slice(0, 4), clients)])  # the last one has not moved
    0.3333333333333333
    """
    return share(counts(*_signs(values, start.parameters[where])) for where, values in blocks)


def counts(raised: npt.NDArray[np.bool_], lowered: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """How many parameters were both raised and lowered, and how many were moved."""
    return int(np.count_nonzero(raised & lowered)), int(np.count_nonzero(raised | lowered))


def share(counted: Iterable[tuple[int, int]]) -> float:
    """The first counts over the second ones.

    >>> share([(1, 2), (0, 2)])
    0.25
    """
    both = moved = 0
    for torn, all_ in counted:
        both, moved = both + torn, moved + all_
    return both / moved if moved else float("nan")


def _signs(values: np.ndarray, own: np.ndarray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    finite = np.isfinite(values)  # an infinite number would be a sign, and NaN is none
    return np.asarray(((values > own) & finite).any(axis=0)), np.asarray(((values < own) & finite).any(axis=0))


def _of_adapters(round_: Round, adapters: Adapters) -> Iterator[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Yield what any client raised and lowered: a block of entries of products, then each parameter beside them."""
    for product in adapters.products:
        own, sent = factors_of(round_, product), factors_of(round_, product, "start")
        out, inside = own.b.shape[1], own.a.shape[2]
        step = max(1, ENTRIES // max(1, inside))
        for first in range(0, out, step):
            rows = slice(first, first + step)
            raised = np.zeros((len(sent.b[0, rows]), inside), bool)
            lowered = np.zeros_like(raised)
            for a, b in zip(own.a, own.b, strict=True):
                change, rounding = _change(a, b[rows], sent.a[0], sent.b[0, rows])
                raised |= change > rounding  # neither where both are infinite
                lowered |= change < -rounding
            yield raised, lowered
    for name in adapters.dense:
        yield _signs(read_parameter(round_, name), read_parameter(round_, name, "start")[0])


@np.errstate(invalid="ignore", over="ignore")  # of clients that diverged
def _change(a: Array, b: Array, a0: Array, b0: Array) -> tuple[Array, Array]:
    """Rows of B A − B_0 A_0, and how far an entry may be off because its factors were rounded."""
    left, right = differences(a[None], b[None], a0, b0)
    rounding = sum(np.outer(np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=0)) for u, v in ((b, a), (b0, a0)))
    return left[0] @ right[0], ROUNDING * np.asarray(rounding, np.float64)
