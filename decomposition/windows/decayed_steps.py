"""WIMA's equations 6 and 7 on a recorded run: the mean of a window as steps with a decaying rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...checkpoints import Run, Weights
from .result import Decayed

# Half of the last bit of a model's type is what rounding a mean takes; sums of many steps may have a few of them.
BITS = 16


def decayed_steps(
    run: Run,
    round: int,
    windows: Sequence[int],
    means: Sequence[Weights],
    averaged: npt.NDArray[np.bool_] | None = None,
    progress: Callable[[int], None] = lambda read: None,
) -> tuple[Decayed, ...]:
    """Measure how far the mean of each window that ends in a round is from the steps that should add up to it.

    With Δw^τ = start_τ − ``global``_τ, the step of the server in round τ whatever its method, and t' the first of the c
    rounds of a window,

        (1/c) Σ_τ global_τ = start_{t'} − Σ_{τ=t'}^{t'+c−1} ((t' + c − τ)/c) Δw^τ,

    if every round starts from the ``global`` of the round before. The oldest step counts whole, the newest 1/c: the
    mean of the window is where the server would be if its rate had decayed. With FedAvg's steps, Δw^τ = Σ_i p_i
    (w^τ − w_i^τ), it is equation 6, with those of any server equation 7; a momentum would prefer the newest steps. In a
    run whose rounds start from elsewhere (IMA's from its average, FedACG's ahead of the global) it does not hold.

    The sums are in float64. The difference is the L2 norm of what is left, as a share of the mean's, over parameters
    (no buffers).

    Args:
        windows: their lengths, ascending; means: the mean of each, as evaluated.
        averaged: which of the P parameters were averaged; all by default.
        progress: takes how many rounds have been read.

    Source: Caldarola et al., "Window-based Model Averaging Improves Generalization in Heterogeneous Federated
    Learning", ICCV Workshops 2023, equations 5 to 7.
    """
    mask = slice(None) if averaged is None else averaged
    lengths = [min(window, round) for window in windows]
    total = np.zeros(1)
    found: dict[int, Decayed] = {}
    recorded, elsewhere, after = True, 0, None
    for count in range(1, max(lengths) + 1):
        t = round - count + 1
        start, own = start_of(run, t)
        ending = _global(run, t)
        if start is None or ending is None:
            break
        recorded = recorded and own
        left_by, parameters = ending.parameters[mask], start.parameters[mask]
        elsewhere += after is not None and not np.array_equal(after, left_by, equal_nan=True)
        after = parameters
        total = total + count * (parameters.astype(np.float64) - left_by)
        for window, length, mean in zip(windows, lengths, means, strict=True):
            if length == count:
                expected = mean.parameters[mask].astype(np.float64)
                left, size = np.linalg.norm(parameters - total / count - expected), np.linalg.norm(expected)
                difference = float(left / size) if size else float(left)
                tolerance = BITS * float(np.finfo(mean.parameters.dtype).eps)
                found[window] = Decayed(window, t, difference, bool(difference <= tolerance), recorded, elsewhere)
        progress(count)
    none = [Decayed(window, round - length + 1) for window, length in zip(windows, lengths, strict=True)]
    return tuple(found.get(one.window, one) for one in none)


def start_of(run: Run, round: int) -> tuple[Weights | None, bool]:
    """Return the model that a round sent out, and whether it was recorded; else the ``global`` of the round before, or
    None where there is none."""
    for place in run.files_of(round):
        if "start" in place.models:
            return place.read("start"), True
    return (_global(run, round - 1) if round > 1 else None), False


def _global(run: Run, round: int) -> Weights | None:
    return next((place.read("global") for place in run.files_of(round) if "global" in place.models), None)
