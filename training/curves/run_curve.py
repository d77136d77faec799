"""One run's measures over its rounds, read from its table, and the round in which it reaches an accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xxhash

from ...checkpoints import Run, has_no_server
from ...checkpoints.rounds.metrics import further, is_own_column
from ...checkpoints.runs.run import warn_of_gaps
from ...results import Serializable, deviation_over
from .measures import MEASURES, TOTALS, CurveMeasure, measure_of
from .run_names import USUAL_TASK

#: of an accuracy, which is 1 less a share: 1 - 0.2 may be 0.8 less a last bit
_ROUNDING = 1e-12
#: a mean over the last rounds takes the last tenth of those that were measured, and no more than so many
MOST_LAST = 10
#: the same in words
WINDOW = f"a tenth of them, {MOST_LAST} at most"


def window_of(measured: int) -> int:
    """Over how many of a run's last measured rounds its numbers are averaged: a tenth of them, 1 to :data:`MOST_LAST`.

    Ten of twelve rounds hold the first ones, in which the model has learnt nothing yet; the last tenth does not.

    >>> [window_of(measured) for measured in (1, 12, 20, 60, 99, 100, 4000)]
    [1, 1, 2, 6, 9, 10, 10]
    """
    return min(MOST_LAST, max(1, measured // 10))


@dataclass(frozen=True)
class ErrorCurve(Serializable):
    """A measured error (share misclassified, 0..1) over rounds: `label` names the model, "global" or "averaged"."""

    label: str
    rounds: tuple[int, ...]
    error: tuple[float, ...]


@dataclass(frozen=True)
class Reached:
    """The place where a curve reaches a target accuracy.

    Attributes:
        round: the first measured one with that accuracy; None where there is none.
        parameters_down, parameters_up: how many went to the clients and came back in the rounds until then; NaN where
            the run does not say it.
        best: the greatest accuracy of all measured rounds.
    """

    round: int | None
    parameters_down: float
    parameters_up: float
    best: float


@dataclass(frozen=True, eq=False)
class Curve:
    """One run's measures over its rounds; errors are shares (0 to 1), NaN where nothing was measured.

    Attributes:
        no_server: whether its nodes start from models of their own, and no server's model could be measured.
        loss_task: the task, where it is known to have a loss alone; "" else.
    """

    run: str
    round: np.ndarray
    values: dict[str, np.ndarray]
    no_server: bool = False
    loss_task: str = ""

    @property
    def label(self) -> str:
        """Its name in legends."""
        return self.run

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured in any round."""
        return all(np.isnan(values).all() for values in self.values.values())

    def column(self, name: str) -> np.ndarray:
        """A column of ``metrics.csv``, or a sum over the rounds until then; NaN where the run has no such column."""
        if name in TOTALS:
            return np.cumsum(self.column(TOTALS[name]))
        return self.values[name] if name in self.values else np.full(len(self.round), np.nan)

    def averaged(self, column: str) -> np.ndarray | None:
        """Return the same of the average over rounds; None where the run has none of it."""
        averaged = None if is_own_column(column) else self.values.get(f"averaged_{column}")
        return None if averaged is None or np.isnan(averaged).all() else averaged

    def deployed(self, measure: str) -> np.ndarray:
        """Return the measure of the model that a user would deploy: ``averaged`` where there is one, else
        ``global``."""
        own, averaged = self.column(measure), self.averaged(measure)
        return own if averaged is None else np.where(np.isnan(averaged), own, averaged)

    def series(self, measure: CurveMeasure) -> np.ndarray:
        """A measure over rounds: of the deployed model where there are two of it, else as it was recorded."""
        values = self.deployed(measure.column)
        return 1 - values if measure.is_accuracy else values

    def deviation(self, measure: CurveMeasure) -> np.ndarray:
        """Return the deviation over clients or domains that belongs to a mean over them, over rounds."""
        assert measure.deviation is not None
        return self.deployed(measure.deviation)

    def measured(self, measure: CurveMeasure) -> tuple[np.ndarray, np.ndarray]:
        """Return the rounds in which there is a number, and the numbers."""
        values = self.series(measure)
        there = ~np.isnan(values)
        return self.round[there], values[there]

    def stale_at(self, measure: CurveMeasure) -> int | None:
        """Return the last measured round, where the run went on for longer than rounds were left out before: numbers of
        later ones are missing, or were not finite, which a table cannot tell from those that are missing. None where
        it did not, and of a sum over rounds.

        >>> one = Curve("fma", np.arange(1, 7), {"test_loss": np.array([2.0, 1.0, 0.5, np.nan, np.nan, np.nan])})
        >>> one.stale_at(measure_of("test_loss"))
        3
        """
        rounds = self.measured(measure)[0]
        if not len(rounds) or measure.name in TOTALS:
            return None
        gap = int(np.diff(rounds, prepend=0).max())
        return int(rounds[-1]) if self.round[-1] - rounds[-1] >= gap else None

    def tail(self, measure: str = "test_error", last: int | None = None) -> tuple[float, float, int]:
        """Mean and deviation (n - 1) of a measure over its last measured rounds, and how many these are.

        The deviation is over rounds of one run, so it says how steady the run is, not how sure the mean is.

        Args:
            measure: a column of ``metrics.csv``; ``test_loss`` and ``test_error`` are the deployed model's.
            last: of how many measured rounds, at most; None for :func:`window_of` them; of a sum over rounds, of the
                last one.
        """
        values = self.measured(measure_of(measure))[1]
        values = values[-(1 if measure in TOTALS else last or window_of(len(values))) :]
        if not len(values):
            return float("nan"), float("nan"), 0
        return float(values.mean()), float(deviation_over(values)), len(values)

    def reach(self, measure: CurveMeasure, target: float) -> Reached:
        """Find where the accuracy that an error leaves is first at least the target; as measured, not smoothed.

        >>> values = {"test_error": np.array([0.5, 0.2, 0.3]), "parameters_up": np.full(3, 10.0)}
        >>> one = Curve("fma", np.arange(1, 4), values)
        >>> one.reach(measure_of("test_error"), 0.8)
        Reached(round=2, parameters_down=nan, parameters_up=20.0, best=0.8)
        """
        rounds, values = self.measured(measure)
        accuracies = values if measure.is_accuracy else 1 - values
        best = float(accuracies.max()) if len(accuracies) else float("nan")
        there = np.flatnonzero(accuracies >= target - _ROUNDING)
        if not len(there):
            return Reached(None, float("nan"), float("nan"), best)
        first = int(rounds[there[0]])
        down, up = (float(self.column(f"parameters_{way}_total")[self.round == first][0]) for way in ("down", "up"))
        return Reached(first, down, up, best)


def metrics_of(run: Run) -> dict[str, np.ndarray]:
    """Return the columns of a run's table; see :meth:`fedscope.checkpoints.Run.all_metrics`. Rounds that are gone are a
    :class:`~fedscope.checkpoints.FedscopeWarning`."""
    warn_of_gaps(run)
    return run.all_metrics()


def curve_of(run: Run) -> Curve:
    """All columns of a run's table over its rounds, under the run's name."""
    metrics = metrics_of(run)
    columns = (*MEASURES, *further([metrics]))
    values = {name: metrics[name] for name in columns}
    return Curve(run.name, metrics["round"].astype(int), values, has_no_server(run), _loss_task(run))


def task_learnt(run: Run) -> str:
    """Name the task that a run's losses are of: what it was trained with, or a recorded one measured with; the usual
    one where nothing says another."""
    config = (run.config or {}).get("model", {})
    measured = [one.settings.get("task") for one in run.measured.measurements if "test_loss" in one.columns]
    return str(next(filter(None, [config.get("task"), *measured]), USUAL_TASK))


def _loss_task(run: Run) -> str:
    """Name the task of a run of whose models losses were measured, and no errors: by this program, which measures
    both."""
    table = run.all_metrics()
    if not np.isnan(table["test_error"]).all() or np.isnan(table["test_loss"]).all():
        return ""
    task = task_learnt(run)
    return "" if task == USUAL_TASK else task


def digest_of(curve: Curve) -> str:
    """Tell a run's numbers from others of the same rounds, 16 hexadecimal digits; columns without a number say nothing.

    >>> error = np.array([0.5, np.nan])
    >>> one, other = (Curve("fma", np.arange(1, 3), {"test_error": values}) for values in (error, error / 2))
    >>> digest_of(one) == digest_of(other), digest_of(one) == digest_of(Curve("ima", one.round, one.values))
    (False, True)
    """
    said = xxhash.xxh3_64(np.asarray(curve.round, np.int64).tobytes())
    for name, values in sorted(curve.values.items()):
        if not np.isnan(values).all():
            said.update(name.encode() + np.where(np.isnan(values), np.nan, values).astype(np.float64).tobytes())
    return str(said.hexdigest())


def error_curves(*runs: Run) -> tuple[ErrorCurve, ...]:
    """Return the test errors that were measured while training, as figures of other analyses draw them; of several runs
    their mean, of the rounds in which all have one."""
    metrics = [run.all_metrics() for run in runs]
    curves = []
    for label, column in (("global", "test_error"), ("averaged", "averaged_test_error")):
        measured = [
            {int(t): value for t, value in zip(one["round"], one[column], strict=True) if not np.isnan(value)}
            for one in metrics
        ]
        rounds = tuple(t for t in measured[0] if all(t in own for own in measured))
        if rounds:
            errors = tuple(float(np.mean([own[t] for own in measured])) for t in rounds)
            curves.append(ErrorCurve(label, rounds, errors))
    return tuple(curves)
