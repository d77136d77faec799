"""Labels that are numbered otherwise than a model has learnt them: its answers are right but for the numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...checkpoints.io.errors import list_few

#: samples a label, below which its most frequent answer says nothing
EACH = 5
#: labels, below which an untrained model may answer so by chance: one answer for each label, and no two the same
LABELS = 5


def renumbered(answers: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> tuple[float, str]:
    """Find a numbering of the labels with which answers would be right that are wrong now.

    Each label is given its most frequent answer, of which no two may be the same. An error e of at least a half has to
    fall to half of what it is, and to half of what one answer for all samples has.

    Args:
        answers, y: [n].

    Returns:
        the error with the other numbering, and which that is in words; ``(nan, "")`` where there is none.

    >>> y = np.arange(1, 7).repeat(10)
    >>> renumbered(y - 1, y)
    (0.0, '0 where y is 1, 1 where y is 2, 2 where y is 3, 3 where y is 4, ...')
    >>> renumbered(y, y)
    (nan, '')
    """
    nothing = float("nan"), ""
    labels, of = np.unique(y, return_inverse=True)
    if len(labels) < LABELS or len(y) < EACH * len(labels) or float((answers != y).mean()) < 0.5:
        return nothing
    kinds, kind = np.unique(answers, return_inverse=True)
    counts = np.zeros((len(labels), len(kinds)), np.int64)
    np.add.at(counts, (of, kind), 1)
    most = counts.argmax(axis=1)
    error = 1 - float(counts.max(axis=1).sum()) / len(y)
    guess = 1 - float(counts.sum(axis=1).max()) / len(y)
    if len(set(most.tolist())) < len(labels) or error > 0.5 * min(guess, float((answers != y).mean())):
        return nothing
    other = [(label, answer) for label, answer in zip(labels, kinds[most], strict=True) if label != answer]
    return error, list_few([f"{answer} where y is {label}" for label, answer in other], 4)
