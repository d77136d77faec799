"""Whether code of a user's own answers as it did when a result was made: its name stays when it changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: a machine's answers differ from another's by such a share, or by so much
_SHARE, _LEAST = 1e-3, 1e-4


def same_answers(kept: Sequence[float | None], asked: Sequence[float | None]) -> bool:
    """Compare answers up to single precision, for they may have been measured on another machine; what is not finite
    is the same where both are.

    >>> same_answers([1.0, float("nan")], [1.0005, None]), same_answers([1.0], [1.1]), same_answers([1.0], [1.0, 2.0])
    (True, False, False)
    """
    return len(kept) == len(asked) and all(_is_close(x, y) for x, y in zip(kept, asked, strict=True))


def _is_close(x: float | None, y: float | None) -> bool:
    if x is None or y is None or math.isnan(x) or math.isnan(y):
        return all(one is None or math.isnan(one) for one in (x, y))
    return math.isclose(x, y, rel_tol=_SHARE, abs_tol=_LEAST)
