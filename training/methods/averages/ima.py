"""IMA, iterative moving averaging: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on
Heterogeneous Data", IEEE TMC 2024, Section 6."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ....checkpoints import FedscopeError, Weights, mean, stack
from ...settings.registry import method_name
from ...settings.settings import setting
from ..base import Averaged, AverageMethod, ClientMethod, History, LocalSchedule, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config


#: explore_high of ``cyclic`` where none is given
_CYCLIC_HIGH = 1e-2


@dataclass(frozen=True)
class IMA(AverageMethod):
    """From round t_s on, ``averaged``_t = mean of the last P ``global``s, and the next round starts from it.

    The window reaches back before t_s; with fewer than P globals so far it is the mean of those (chosen: the paper
    leaves it open). Round t_s itself still starts from ``global``, and t_s + 1 is the first that starts from
    ``averaged`` (chosen, after the authors' code: Algorithm 1 sends w_IMA^(t_s−1) in round t_s, which eq. 5 does not
    define).

    Mild exploration, j = t - t_s >= 0 rounds after the start, with eta the client's own decayed rate:

    ========== ===================================================================================
    exp        eta_{t_s} (1 - explore_decay)^j (the paper's; default)
    const      explore_low
    cyclic     a saw-tooth falling linearly from explore_high to explore_low over explore_period rounds
    triangle   down from explore_high to explore_low and up again within explore_period rounds (what the authors'
               code meant to do); explore_high defaults to eta_{t_s} here, as in that code
    epochs     one local epoch less every explore_period rounds, at least one; eta as before
    stage      eta_{t_s} halved every explore_period rounds (in the authors' code only)
    none       eta as before
    ========== ===================================================================================

    With P = 1 and ``explore = "none"`` IMA is FMA, bit for bit.
    ``before_server`` averages the clients' means Σ p_i θ_i instead, and lets the server's optimiser step towards that
    average, as the authors' code does: ``global`` is then what that step gives, rounds start from it, and there is no
    ``averaged``.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "IMA",
        "Zhou et al., Understanding and improving model averaging, IEEE TMC 2024",
        "from t_s on: averaged = mean of the last P globals, rounds start from it, η falls mildly",
        keeps="the last P globals",
    )
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"none": {"window": 1, "start": 2, "explore": "none"}}
    check_with: ClassVar[Mapping[str, Any]] = {"window": 2, "start": 2}

    window: int = setting(5, "P: number of last globals that are averaged", least=1)
    start: int | None = setting(None, "t_s: the first round that is averaged; default ceil(0.75 R)", least=1)
    explore: Literal["exp", "const", "cyclic", "triangle", "epochs", "stage", "none"] = setting(
        "exp", "schedule of the learning rate for mild exploration, from t_s on"
    )
    explore_decay: float = setting(0.03, "decay per round of `exp`", least=0, below=1, only_with=("explore", "exp"))
    explore_low: float = setting(
        5e-5,
        "rate of `const`, lowest rate of `cyclic` and `triangle`",
        above=0,
        only_with=("explore", "const", "cyclic", "triangle"),
    )
    explore_high: float | None = setting(
        None,
        "highest rate of `cyclic` (default 0.01) and `triangle` (default eta_{t_s})",
        above=0,
        only_with=("explore", "cyclic", "triangle"),
    )
    before_server: bool = setting(False, "average the clients' means before the server's optimiser steps")
    # without `only_with`: a scale makes it smaller whatever explores, and nobody has asked for that
    explore_period: int = setting(20, "rounds of a cycle, of an epoch step, of a stage", least=2)

    def resolve(self, config: Config) -> IMA:
        """t_s = ceil(0.75 R) where none was given.

        Raises:
            FedscopeError: t_s > R, which would average nothing; ``before_server`` and a server without an optimiser.
        """
        if self.before_server and not config.server.optimiser:
            raise FedscopeError(
                f"average.before_server = true averages before a server's optimiser steps, but the server method "
                f"{method_name(config.server)} has none; use --server fedadam, fedyogi, fedadagrad or fedavgm, or "
                "leave it out"
            )
        rounds = config.run.rounds
        start = ceil(0.75 * rounds) if self.start is None else self.start
        if start > rounds:
            raise FedscopeError(
                f"average.start = {start} comes after the last of {rounds} rounds, so nothing would be averaged; "
                f"give an earlier round, as in --set average.start={ceil(0.75 * rounds)}, or --average none"
            )
        return replace(self, start=start)

    def refuse_new(self, config: Config) -> None:
        """Refuse a lowest rate that is not below the highest: the saw-tooth would rise.

        Raises:
            FedscopeError: names both.
        """
        if self.explore not in ("cyclic", "triangle") or self.start is None:
            return
        high = self.explore_high or (_CYCLIC_HIGH if self.explore == "cyclic" else config.client.pace(self.start).lr)
        if self.explore_low >= high:
            raise FedscopeError(
                f"average.explore_low = {self.explore_low:g} is not below the highest rate of {self.explore}, "
                f"{high:g}; give a greater average.explore_high or a smaller average.explore_low"
            )

    def doubts(self, config: Config) -> Iterator[str]:
        """Yield that nothing is explored, because no step of ``stage`` or ``epochs`` comes before the last round, or
        clients have one epoch from the start; or that ``cyclic`` begins above the clients' first rate, though nobody
        gave its highest."""
        if (
            self.explore == "cyclic"
            and self.explore_high is None
            and (first := config.client.pace(1).lr) < _CYCLIC_HIGH
        ):
            low = "" if first > self.explore_low else f" --set average.explore_low={first / 10:g}"
            yield (
                f"average.explore = 'cyclic' begins its cycles at the rate {_CYCLIC_HIGH:g}, and the clients' first is "
                f"{first:g}; give another highest rate, as in --set average.explore_high={first:g}{low}"
            )
        if self.explore not in ("stage", "epochs") or self.start is None:
            return
        place, none = f"average.explore = {self.explore!r}", "leave exploring out with --set average.explore=none"
        left = config.run.rounds - self.start
        if self.explore == "epochs" and config.client.epochs == 1:
            yield (
                f"{place} has no effect with client.epochs = 1, of which none can be left out; give --epochs 2 or "
                f"more, or {none}"
            )
        elif left < self.explore_period:
            fits = f"give --set average.explore_period={left}, or less, or " if left > 1 else ""
            yield (
                f"{place} has no effect: its first step comes average.explore_period = {self.explore_period} rounds "
                f"after round {self.start}, where averaging starts, and the last round is {config.run.rounds}; {fits}"
                f"{none}"
            )

    def explore_pace(self, round: int, pace: LocalSchedule, client: ClientMethod) -> LocalSchedule:
        """The pace of round t by the schedule, see the class; before t_s the client's own."""
        if self.start is None or round < self.start:
            return pace
        j = round - self.start
        at_start = client.pace(self.start)
        phase = j % self.explore_period
        high = self.explore_high or (at_start.lr if self.explore == "triangle" else _CYCLIC_HIGH)
        fall = high - self.explore_low
        match self.explore:
            case "exp":
                return LocalSchedule(at_start.lr * (1 - self.explore_decay) ** j, pace.epochs)
            case "const":
                return LocalSchedule(self.explore_low, pace.epochs)
            case "cyclic":
                return LocalSchedule(high - fall * phase / (self.explore_period - 1), pace.epochs)
            case "triangle":
                return LocalSchedule(self.explore_low + fall * abs(1 - 2 * phase / self.explore_period), pace.epochs)
            case "epochs":
                return LocalSchedule(pace.lr, max(1, pace.epochs - j // self.explore_period))
            case "stage":
                return LocalSchedule(at_start.lr * 0.5 ** (j // self.explore_period), pace.epochs)
            case "none":
                return pace

    def average(self, state: State, round: int, global_: Weights, history: History) -> Averaged:
        """mean of the last P rows from t_s on; float64, oldest first, rounded once."""
        members = self.members(round)
        if not members:
            return Averaged(None)
        before = [history.row(t) for t in members[:-1]]
        return Averaged(mean(stack([*before, global_]), integer_from=len(before)))

    def members(self, round: int) -> tuple[int, ...]:
        """The last P rounds, from t_s on (with ``before_server``, of the clients' means)."""
        if self.start is None or round < self.start:
            return ()
        return tuple(range(max(1, round - self.window + 1), round + 1))

    def restarts(self, round: int) -> bool:
        """True from t_s + 1 on."""
        return self.start is not None and round > self.start

    def begins(self) -> int | None:
        """t_s; with ``before_server`` the first round, because the clients' means are kept from then on."""
        return 1 if self.before_server else self.start

    @property
    def averages_first(self) -> bool:
        """``before_server``."""
        return self.before_server

    def recover(self, round: int, history: History) -> State:
        """Nothing: the rows are the history's. What a class with a formula of its own keeps."""
        return {} if type(self).average is IMA.average else super().recover(round, history)

    @property
    def models_kept(self) -> int:
        """The clients' mean, where it is averaged."""
        return int(self.before_server)

    def window_size(self) -> int:
        """P - 1: round t's own row comes with it."""
        return self.window - 1


PROVIDES = IMA
