"""What must hold between a run's recorded models whatever their checksums say: a cheap look at what was computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..checkpoints import FedscopeError, Round, Run, Weights, read_columns, weighted_mean
from ..checkpoints.gate import DamagedError
from .config import Config
from .federation import next_start
from .lineage import segments
from .memory import RunMemory
from .methods import ServerMethod
from .registry import method_name

# Of an average over rounds, against a sum in another order, as a share of its length: float32 rounds at 6e-8.
_TOLERANCE = 1e-6


def contradictions(run: Run, round: int, parts: Sequence[tuple[float, Config]]) -> Iterator[str]:
    """What does not hold of a round, a clause each:

    - ``global`` = Σ_k p_k w_k, bit for bit, where the server is FMA and the clients were recorded (parameters only);
    - ``start`` is what the round before left, bit for bit: its ``averaged`` where rounds restart from it, else its
      ``global``, looked ahead by the server; not where a branch changed the method, and not in round 1;
    - ``averaged`` is the mean of its window's ``global``s, up to rounding, where it is the mean of the last few.

    What was not recorded is not compared. One model, or a block of the clients, is in memory at a time, besides two.

    Args:
        parts: :func:`~fedscope.training.lineage.segments` of the run.
    """
    config = _at(parts, round)
    place = run.round(round)
    if method_name(config.server) == "fma" and place.has_clients and "global" in place.models:
        other = _others_than_mean(place)
        if other:
            yield f"global is not the mean of its clients with the weights p ({other:,} parameters differ)"
    if round > 1 and "start" in place.models and config is _at(parts, round - 1):
        left = _left(run, round - 1, config)
        if left is not None and not _same(place.read("start"), left):
            yield f"start is not the model that round {round - 1} left"
    if "averaged" in place.models:
        members = config.average.members(round)
        away = _distance_to_mean(run, place, members) if 0 < len(members) <= config.average.window_size() + 1 else 0.0
        if away > _TOLERANCE:
            yield f"averaged is not the mean of global of rounds {members[0]} to {members[-1]} (off by {away:.1e})"


def refuse_contradictions(run: Run, round: int) -> None:
    """Refuse to go on from a round whose models contradict each other.

    Raises:
        FedscopeError: names the first of :func:`contradictions`.
    """
    for what in contradictions(run, round, segments(run)):
        raise DamagedError(run.round(round).path, what)


def _at(parts: Sequence[tuple[float, Config]], round: int) -> Config:
    return next(config for last, config in parts if round <= last)


def _others_than_mean(round_: Round) -> int:
    recorded, other = round_.read("global").parameters, 0
    for block in read_columns(round_):
        made = weighted_mean(Weights(round_.layout, block.values, {}), round_.weights).parameters
        other += int((_bits(made) != _bits(recorded[block.where])).sum())
    return other


def _left(run: Run, round: int, config: Config) -> Weights | None:
    """What a round left for the next to start from; None where that was not recorded."""
    memory = RunMemory(run)
    try:
        global_ = memory.row(round)
    except FedscopeError:
        if any("global" in place.models for place in run.files_of(round)):
            raise
        return None
    averaged = memory.averaged(round)
    if averaged is None and config.average.members(round) and not config.average.averages_first:
        return None
    looks_ahead = type(config.server).look_ahead is not ServerMethod.look_ahead
    return next_start(config, round, global_, averaged, memory.kept(round).server if looks_ahead else {})


def _same(one: Weights, other: Weights) -> bool:
    mine, theirs = one.arrays(), other.arrays()
    return all(np.array_equal(_bits(mine[name]), _bits(theirs[name])) for name in mine)


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers to compare bit for bit, in which every NaN is one: processors choose its bits."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values).view(f"u{values.dtype.itemsize}")


def _distance_to_mean(run: Run, place: Round, members: Sequence[int]) -> float:
    """‖averaged − mean‖ / ‖averaged‖ over the parameters; 0 where a member was not recorded or is not finite."""
    if not all(t in run.rounds and "global" in run.round(t).models for t in members):
        return 0.0
    averaged = place.read("averaged").parameters.astype(np.float64)
    total = np.zeros_like(averaged)
    for t in members:
        total += run.round(t).read("global").parameters
    length = float(np.linalg.norm(averaged))
    away = float(np.linalg.norm(averaged - total / len(members)))
    return away / length if np.isfinite(away) and length else 0.0
