"""Lists beside clients: which client each entry is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few


def is_counted(given: Any) -> bool:
    """Check whether models or numbers are given without numbers of clients, so that they are counted from 0.

    >>> is_counted(["a", "b"]), is_counted([(3, "a"), (1, "b")]), is_counted({3: "a"})
    (True, False, False)
    """
    if isinstance(given, Mapping) or not isinstance(given, list | tuple):
        return not isinstance(given, Mapping)
    return not all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], int | np.integer) for one in given)


def refuse_uncounted(given: Any, clients: Iterable[int], place: str, what: str) -> None:
    """Make sure that a list beside clients means them: it is counted from 0, whatever the order in which clients came.

    Args:
        given: by client, or a list.
        clients: in the order in which they were given.

    Raises:
        FedscopeError: a list beside clients that came as others than 0, 1, 2, ...
    """
    came = [int(k) for k in clients]
    if not isinstance(given, Iterable) or isinstance(given, Mapping) or came == list(range(len(came))):
        return
    raise FedscopeError(
        f"{place}: {what}= is a list, which counts clients from 0, but they came as {list_few(came, 6)}; give "
        f"{what}={{number: ...}}"
    )
