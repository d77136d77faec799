"""Targets of language models that stand at the wrong tokens, as far as they show it by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: the target of a position that does not count, as in torch
UNCOUNTED = -100
#: what is said of targets that are the tokens themselves, behind their names
OWN_TOKENS = (
    "token by token, so each is told from itself; to have the next one told, give x = tokens[:, :-1] "
    "and y = tokens[:, 1:] (targets stay as they are where a network copies, or moves its input by itself)"
)
#: fewer positions may be so by chance; only those count here whose next token is another one
FEWEST = 8
#: tokens that are looked at at a time: others are read only if the first are so, and need the room of these alone
_AT_ONCE = 2**18
#: the share of the positions that count behind which the next counts too; of the masked ones of a masked language
#: model, which are told from themselves, fewer do
_DENSE = 0.6


def are_inputs(x: np.ndarray, y: np.ndarray) -> bool:
    """Check whether targets are the tokens themselves, so that the next one is told nowhere.

    Those of texts of one token alone, of a few positions, and of scattered ones, as of masked tokens, are not judged.

    Args:
        x: tokens; y: targets, -100 where a position does not count.

    >>> x = np.arange(12)[None]
    >>> are_inputs(x, x), are_inputs(x[:, :-1], x[:, 1:]), are_inputs(x * 0, x * 0)
    (True, False, False)
    """
    if x.ndim != 2 or x.shape != y.shape or not {x.dtype.kind, y.dtype.kind} <= set("iu"):
        return False
    return _all_so(x, y, None, 0)


def are_next(tokens: np.ndarray, labels: np.ndarray, counted: np.ndarray) -> bool:
    """Check whether labels, which should stand at their own tokens, are each the next one already.

    Args:
        counted: [N, L], which positions are no padding.

    >>> x = np.arange(12)[None]
    >>> are_next(x[:, :-1], x[:, 1:], x[:, 1:] > 0), are_next(x, x, x >= 0)
    (True, False)
    """
    return _all_so(tokens, labels, counted, 1)


def are_others(tokens: np.ndarray, labels: np.ndarray, counted: np.ndarray) -> bool:
    """Check whether most labels are other tokens than those at their places, so that they are no causal model's.

    Args:
        counted: [N, L], which positions are no padding.

    >>> x = np.arange(12)[None]
    >>> are_others(x, x % 3, x >= 0), are_others(x, np.where(x < 9, UNCOUNTED, x), x >= 0), are_others(x, x, x >= 0)
    (True, False, False)
    """
    told = counted & (labels != UNCOUNTED)
    count = int(told.sum())
    return count >= FEWEST and 2 * int((told & (labels != tokens)).sum()) > count


def _all_so(x: np.ndarray, y: np.ndarray, there: np.ndarray | None, by: int) -> bool:
    """Check whether each target that counts is the token so many positions on, and the one beside it is another.

    Args:
        there: which positions are no padding; None where all are.
    """
    begun = together = others = 0
    for rows in _blocks(x):
        tokens, targets = x[rows], y[rows]
        counts = targets != UNCOUNTED
        if there is not None:
            counts &= there[rows]
        known = counts.copy()
        if by:  # of the last position the next token is not known
            if there is not None:
                known[:, :-1] &= there[rows][:, 1:]
            known[:, -1] = False
        if not (np.roll(tokens, -by, axis=1) == targets)[known].all():
            return False
        before, after = counts[:, :-1], counts[:, 1:]
        begun += int(before.sum())
        together += int((before & after).sum())
        others += int((known[:, :-1] & (tokens[:, :-1] != tokens[:, 1:])).sum())
    return together > _DENSE * begun and others >= FEWEST


def _blocks(x: np.ndarray) -> Iterator[slice]:
    """Yield rows of tokens in blocks."""
    rows = max(1, _AT_ONCE // max(1, x.shape[1]))
    for start in range(0, len(x), rows):
        yield slice(start, start + rows)
