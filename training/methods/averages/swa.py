"""SWA on the server: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018,
over rounds as in Caldarola, Caputo and Ciccone, "Improving Generalization in Federated Learning by Seeking Flat
Minima", ECCV 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....checkpoints import FedscopeError, Weights
from ...settings.settings import setting
from ..base import Averaged, AverageMethod, ClientMethod, History, LocalSchedule, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config


@dataclass(frozen=True)
class SWA(AverageMethod):
    """``averaged`` = running mean of the ``global``s at the ends of cycles of the learning rate; clients never start
    from it.

    From the start round s on, cycles of c rounds: in round t, j = (t - s) mod c, the rate is
    eta_t (1 - (1 - low) (j + 1)/c), as in the sources: lower than eta_t already in a cycle's first round, and low eta_t
    in its last, where ``global`` joins the mean. Between two ends ``averaged`` stays what it was.

    As in Izmailov et al. the mean begins with the model that the cycles start from, ``global`` of round s - 1, so that
    ``averaged`` exists from round s on. Without it (``include_start = false``) there is none before the first end.

    ``full_first`` has eta_t (1 - (1 - low) j/(c - 1)) instead. Runs that were recorded before these two settings
    existed did that, without the start: they are read, resumed and branched from with it.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "SWA",
        "Izmailov et al., UAI 2018; on the server Caldarola et al., ECCV 2022",
        "cyclical η from the start round s on; averaged = mean of the globals of s − 1 and of the cycles' ends, for "
        "evaluation only",
        keeps="the mean",
    )
    check_with: ClassVar[Mapping[str, Any]] = {"start": 2, "cycle": 2}

    start: int | None = setting(None, "s: the first round of the first cycle; default ceil(0.75 R)", least=1)
    cycle: int = setting(10, "c: rounds of a cycle; 10 or 20 in the papers", least=2)
    low: float = setting(0.01, "rate at a cycle's end, as a share of eta_t", above=0, most=1)
    include_start: bool = setting(True, "the mean begins with the model that the cycles start from", before=False)
    full_first: bool = setting(False, "the first round of a cycle has the full rate eta_t, see the method", before=True)

    def resolve(self, config: Config) -> SWA:
        """s = ceil(0.75 R) where none was given.

        Raises:
            FedscopeError: no cycle ends within the run, so that nothing would be averaged; s = 1, before which there is
                no ``global`` for the mean to begin with.
        """
        rounds = config.run.rounds
        start = self.start if self.start is not None else ceil(0.75 * rounds)
        if start + self.cycle - 1 > rounds:
            possible, least = rounds - self.cycle + 1, 1 + self.include_start
            remedy = (
                f"an earlier --set average.start={possible}"
                if possible >= least
                else f"--rounds {self.cycle + least - 1} or more"
            )
            raise FedscopeError(
                f"average.cycle = {self.cycle}: the first cycle from round {start} on ends after the last of {rounds} "
                f"rounds, so nothing would be averaged; give {remedy}, a shorter cycle, or --average none"
            )
        if self.include_start and start == 1:
            raise FedscopeError(
                "average.start = 1 with average.include_start = true: the mean begins with the global model of the "
                "round before, and there is none before round 1; give --set average.start=2, or --set "
                "average.include_start=false"
            )
        return replace(self, start=start)

    def explore_pace(self, round: int, pace: LocalSchedule, client: ClientMethod) -> LocalSchedule:
        """The cycle's rate; before the start round the client's own."""
        if self.start is None or round < self.start:
            return pace
        j = (round - self.start) % self.cycle
        fallen = j / (self.cycle - 1) if self.full_first else (j + 1) / self.cycle
        return LocalSchedule(pace.lr * (1 - (1 - self.low) * fallen), pace.epochs)

    def paces_from(self) -> int | None:
        """Return s, from which on clients' learning rates are not their own; None where no cycle lowers them.

        >>> SWA(start=3).paces_from(), SWA(start=3, low=1.0).paces_from()
        (3, None)
        """
        return self.start if self.low < 1 else None

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        """The running mean, in float64; a cycle's end adds its ``global``, and so does round s - 1."""
        if self._joins(round):
            state = self._with(state, global_)
        if not self.members(round):
            return Averaged(None, state)
        buffers = dict(global_.buffers)
        for name, values in global_.buffers.items():
            if f"mean:{name}" in state:
                buffers[name] = state[f"mean:{name}"].astype(values.dtype)
        return Averaged(Weights(global_.layout, state["mean"].astype(global_.layout.dtype), buffers), state)

    def members(self, round: int) -> tuple[int, ...]:
        """Round s - 1, unless it is left out, and the ends of cycles so far; () before round s."""
        if self.start is None or round < self.start:
            return ()
        return tuple(t for t in range(1, round + 1) if self._joins(t))

    def begins(self) -> int | None:
        """s, or s - 1, where the mean begins."""
        return None if self.start is None else self.start - self.include_start

    @property
    def models_kept(self) -> int:
        """A float64 vector."""
        return 2

    def reaches_back(self) -> int:
        """Nothing: the mean is kept."""
        return 0

    def recover(self, round: int, history: History) -> State:
        """The mean over round s - 1 and the ends of cycles in a history (whose rates were not cyclical)."""
        state: State = {}
        for t in range(1, round + 1):
            if self._joins(t):
                state = self._with(state, history.row(t))
        return state

    def _joins(self, round: int) -> bool:
        if self.start is None or round < self.start:
            return self.include_start and self.start is not None and round == self.start - 1
        return (round - self.start) % self.cycle == self.cycle - 1

    def _with(self, state: State, model: Weights) -> State:
        count = int(state["count"]) + 1 if state else 1
        parts = {"mean": model.parameters}
        for name, values in model.buffers.items():
            if np.issubdtype(values.dtype, np.floating):
                parts[f"mean:{name}"] = values
        moved: dict[str, np.ndarray] = {"count": np.int64(count)}  # type: ignore[dict-item]
        for name, values in parts.items():
            before = state[name] if state else np.zeros(values.shape)
            moved[name] = before + (values.astype(np.float64) - before) / count
        return moved


PROVIDES = SWA
