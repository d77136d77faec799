"""Whether a loop that goes on behind its record begins at the model that was recorded last."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ..runs.run import Run
from .coerce_models import ModelTensors, numbers_of

#: how many recorded rounds are asked how they begin: one of them may be behind a gap
_ASKED = 3


def lost_between(run: Run, start: ModelTensors) -> str:
    """Say in a clause that a round does not begin at the last recorded ``global``, where rounds before did; empty where
    it does, and where none of the last ones did.

    A server that sends another model than its global one, as one with a look-ahead, does so in each round. Parameters
    are compared: statistics are often another model's.

    Args:
        run: what was recorded before.
        start: the model that the next round's clients were sent.
    """
    names = [entry.name for entry in run.layout.parameters]
    if not run.rounds or "global" not in (last := run.round("last")).models:
        return ""
    given = {name: numbers_of(start.arrays[name], start.dtypes[name]) for name in names}
    if _is_same(given, last.read("global").arrays()):
        return ""
    pairs = list(pairwise(run.rounds[-1 - _ASKED :]))[::-1]
    if not any(_follows(run, one, other, names) for one, other in pairs):
        return ""
    return (
        f"start is not the model that round {last.number} has made, as in rounds before; rounds between them are not "
        "recorded, or the loop goes on from another model: begin at "
        f"fedscope.Run.open({str(run.path)!r}).round('last').read('global').arrays() to leave no gap"
    )


def _follows(run: Run, before: int, after: int, names: list[str]) -> bool:
    """Check whether a recorded round begins at the model of the one before."""
    one, other = run.round(before), run.round(after)
    if after != before + 1 or "global" not in one.models or "start" not in other.models:
        return False
    began = other.read("start").arrays()
    return _is_same({name: began[name] for name in names}, one.read("global").arrays())


def _is_same(values: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> bool:
    """The same numbers, or those that a checkpoint in half precision has kept of them."""
    return all(
        np.array_equal(array, others[name], equal_nan=True)
        or np.array_equal(array, _halved(others[name]), equal_nan=True)
        for name, array in values.items()
    )


def _halved(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(array.dtype)
