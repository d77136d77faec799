"""What a layer's parameters are measured by: the range of its dispersion, and how far clients move in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Round, read_columns
from ..synergy.classes import mean_and_cv

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LayerScale:
    """Of a layer with M parameters in C clients.

    Attributes:
        low, top: the least and the greatest cv over the layer, with FedSA's |μ| (float32's least normal number where
            it is smaller).
        update: √(mean over the M parameters and C clients of (w_k − start)²), in the parameters' units.
    """

    low: float
    top: float
    update: float

    def high(self, cv: Array, threshold: float) -> npt.NDArray[np.bool_]:
        """Which parameters are of high dispersion: (cv − low)/(top − low) > threshold (FedSA eq. 5, 6), as
        :func:`~fedscope.decomposition.synergy.classes.high_entries` has it of a whole layer."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((cv - self.low) / np.float64(self.top - self.low) > threshold)


def layer_scales(
    round_: Round, start: np.ndarray, progress: Callable[[int, int], None] | None = None
) -> dict[str, LayerScale]:
    """Of every layer, in one pass over the clients on disk with a block in memory at a time.

    Args:
        start: the model that the clients were sent, [P].
        progress: told the parameters seen and all of them.

    Raises:
        FedscopeError: the round has no clients.
    """
    ranges: dict[str, tuple[float, float]] = {}
    squares: dict[str, float] = {}
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        for block in read_columns(round_):
            _, cv = mean_and_cv(block.values)
            low, top = ranges.get(block.layer, (math.inf, -math.inf))
            # not Python's min and max, which pass over NaN
            ranges[block.layer] = float(np.minimum(low, cv.min())), float(np.maximum(top, cv.max()))
            squares[block.layer] = squares.get(block.layer, 0.0) + float(
                np.square(updates(block.values, start[block.where])).sum()
            )
            if progress is not None:
                progress(block.where.stop, round_.layout.size)
    clients, slices = len(round_.client_ids), round_.layout.slices
    return {
        name: LayerScale(*ranges[name], math.sqrt(squares[name] / clients / (slices[name].stop - slices[name].start)))
        for name in ranges
    }


def updates(values: np.ndarray, start: np.ndarray) -> Array:
    """w_k − start, [C, n], subtracted in float64: a client's step may be a millionth of the parameter."""
    return np.asarray(values.astype(np.float64) - start.astype(np.float64))


def start_of(round_: Round) -> np.ndarray:
    """The model [P] that the clients of a round were sent.

    Raises:
        FedscopeError: it was not recorded.
    """
    if "start" not in round_.models:
        raise FedscopeError(
            f"{round_.label} did not record the model that its clients were sent (start), so there are no updates to "
            "embed; take a round that has it"
        )
    return round_.read("start").parameters
