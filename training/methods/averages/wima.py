"""WIMA, window-based model averaging: Caldarola et al., "Window-based Model Averaging Improves Generalization in
Heterogeneous Federated Learning", ICCV Workshops 2023."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ....checkpoints import FedscopeError, Weights
from ...settings.registry import method_name
from ...settings.settings import setting
from ..base import Averaged, AverageMethod, History, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config
    from ...models.model_info import ModelInfo

#: times the largest number of the sum: a larger one that leaves the window took digits of float32 with it
SPOILS = 2.0**20


@dataclass(frozen=True)
class WIMA(AverageMethod):
    """``averaged``_t = mean of the last W ``global``s from the first round on; clients never start from it.

    With fewer than W globals so far it is the mean of those (chosen). It evaluates and deploys; the ``global``s are
    those of the run without it, bit for bit. ``parts`` averages only the parameters before the head (``features``) or
    the head's (``classifier``) and takes the rest from ``global``; buffers belong to the features.

    The sum over the window is kept in float64 and moves with it: + ``global``_t - ``global``_{t-W}, so a window of any
    width costs one model of memory and one read a round. Its rounding error is some 1e-16 of a parameter a round, far
    below that of float32. Where a model that leaves was not finite, or 2^20 times larger than the sum, the sum is
    formed anew: ∞ − ∞ is no number, and what is added to 10^30 is lost. A window of finite models is finite, whatever
    came before it.

    A note on rates: the paper's baseline is FedJAX. A table that compares with it says to which form of momentum each
    rate belongs: steps of v ← βv + g, the form here, are 1/(1 − β) times as long as those of v ← βv + (1 − β)g at the
    same rate.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "WIMA",
        "Caldarola et al., Window-based model averaging, ICCV Workshops 2023",
        "averaged = mean of the last W globals, for evaluation only",
        keeps="the sum of the last W globals",
    )
    check_with: ClassVar[Mapping[str, Any]] = {"window": 2}

    window: int = setting(100, "W: number of last globals that are averaged", least=2)
    parts: Literal["all", "features", "classifier"] = setting("all", "which parameters are averaged")

    @property
    def needs_head(self) -> bool:
        """True if a part of the model is averaged."""
        return self.parts != "all"

    def resolve(self, config: Config) -> WIMA:
        """Nothing to fill in.

        Raises:
            FedscopeError: ``parts = classifier`` with a client whose head is frozen.
        """
        if self.parts == "classifier" and config.client.freezes_head:
            raise FedscopeError(
                f"average.parts = 'classifier' averages the head, which the client method {method_name(config.client)} "
                "keeps frozen, so that nothing would change; use parts = 'all' or 'features'"
            )
        return self

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        """The mean over the window, and its sum."""
        total = self.moved(state, round, global_, history)
        return Averaged(self.mean_of(total, round, global_, history.facts), total)

    def moved(self, state: State, round: int, global_: Weights, history: History) -> State:
        """The sum over the window of round t, from that of the round before."""
        total: State = _plus(state, global_, 1.0)
        if round > self.window:
            gone = history.row(round - self.window)
            total = _plus(total, gone, -1.0)
            if _is_spoiled(total, gone, global_):
                total = {}
                for t in range(round - self.window + 1, round):
                    total = _plus(total, history.row(t), 1.0)
                total = _plus(total, global_, 1.0)
        return total

    def members(self, round: int) -> tuple[int, ...]:
        """The last W rounds; none where a part of the model is not averaged."""
        if self.parts != "all":
            return ()
        return tuple(range(max(1, round - self.window + 1), round + 1))

    @property
    def models_kept(self) -> int:
        """A float64 vector."""
        return 2

    def reaches_back(self) -> int:
        """W: the row that leaves the window is read."""
        return self.window

    def recover(self, round: int, history: History) -> State:
        """The sum of the last W rows of a history."""
        total: State = {}
        for t in range(max(1, round - self.window + 1), round + 1):
            total = _plus(total, history.row(t), 1.0)
        return total

    def mean_of(self, total: State, round: int, global_: Weights, facts: ModelInfo) -> Weights:
        """``averaged`` of round t, whose window has this sum."""
        whole, count = global_.layout.dtype, min(round, self.window)
        parameters = (total["sum"] / count).astype(whole)
        if self.parts != "all":
            head = facts.head_mask()
            rest = head if self.parts == "features" else ~head
            parameters[rest] = global_.parameters[rest]
        buffers = dict(global_.buffers)
        if self.parts != "classifier":
            for name, values in global_.buffers.items():
                if f"sum:{name}" in total:
                    buffers[name] = (total[f"sum:{name}"] / count).astype(values.dtype)
        return Weights(global_.layout, parameters, buffers)


def _plus(total: State, model: Weights, sign: float) -> dict[str, np.ndarray]:
    """The sums with a model added: of its parameters, and of its buffers that are no whole numbers."""
    add: Callable[[str], np.ndarray | float] = lambda name: total.get(name, 0.0)  # noqa: E731
    with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
        return {name: add(name) + sign * values.astype(np.float64) for name, values in _parts(model).items()}


def _parts(model: Weights) -> dict[str, np.ndarray]:
    """What is summed of a model, by the sum's name."""
    parts = {"sum": model.parameters}
    for name, values in model.buffers.items():
        if np.issubdtype(values.dtype, np.floating):
            parts[f"sum:{name}"] = values
    return parts


def _is_spoiled(total: State, gone: Weights, newest: Weights) -> bool:
    """Whether a sum has lost what the window holds, because of the model that has left it.

    Not where the newest is not finite in the same places, as after a run that diverged for good: there is nothing to be
    saved, and all rows of the window would be read in each round.
    """
    new = _parts(newest)
    for name, values in _parts(gone).items():
        left = _largest(values)
        if not isfinite(left):
            if np.isfinite(new[name][~np.isfinite(values)]).any():
                return True
        elif left > SPOILS * _largest(total[name]):  # False where a model in the window is not finite
            return True
    return False


def _largest(values: np.ndarray) -> float:
    """max |x|; not finite where a number is not."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


PROVIDES = WIMA
