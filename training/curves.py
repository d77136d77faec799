"""``curves``: loss, error and client spread over rounds, of one or several runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..checkpoints import FedscopeError, Run, write_durably
from ..checkpoints.foreign_files import RESULT, read_json
from ..checkpoints.metrics import read_table, to_arrays
from ..checkpoints.results import Table, TableResult, number
from ..checkpoints.results.tables import AGAIN, write_csv
from ..decomposition.factors.result import ErrorCurve
from .curve_measures import MEASURES, USUAL, Measure, measure_of, refuse_smoothing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One run's measures over its rounds; errors are shares (0 to 1), NaN where nothing was measured."""

    run: str
    round: np.ndarray
    values: dict[str, np.ndarray]

    def deployed(self, measure: str) -> np.ndarray:
        """The measure of the model that a user would deploy: ``averaged`` where there is one, else ``global``."""
        averaged = self.values[f"averaged_{measure}"]
        return np.where(np.isnan(averaged), self.values[measure], averaged)

    def series(self, measure: Measure) -> np.ndarray:
        """A measure over rounds: of the deployed model where it is its test loss or error, else as it was recorded."""
        values = self.deployed(measure.column) if measure.column in USUAL else self.values[measure.column]
        return 1 - values if measure.is_accuracy else values

    def measured(self, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
        """The rounds in which there is a number, and the numbers."""
        values = self.series(measure)
        there = ~np.isnan(values)
        return self.round[there], values[there]

    def tail(self, measure: str = "test_error", last: int = 10) -> tuple[float, float, int]:
        """Mean and deviation (n - 1) of a measure over its last measured rounds, and how many these are.

        The deviation is over rounds of one run, so it says how steady the run is, not how sure the mean is.

        Args:
            measure: a column of ``metrics.csv``; ``test_loss`` and ``test_error`` are the deployed model's.
            last: of how many measured rounds, at most.
        """
        values = self.measured(measure_of(measure))[1][-last:]
        if not len(values):
            return float("nan"), float("nan"), 0
        return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan"), len(values)


@dataclass(frozen=True)
class Curves(TableResult):
    """Several runs' curves, as they were measured.

    Attributes:
        attrs: provenance.
        measures: columns of ``metrics.csv``, or with ``accuracy`` for ``error``, which are drawn and told of; without
            a word :data:`USUAL` are drawn, and the test error is told of.
        last: of how many measured rounds mean and deviation are told.
        smooth: length of a Savitzky-Golay window for the figure, at least 5 rounds, odd or even (see
            :func:`fedscope.training.curve_measures.smooth`); 0 for none.
    """

    command = "curves"
    suffixes = (".curves.csv", ".curves.json")
    tables = (Table(".curves.csv", {"run": str, "round": int, **dict.fromkeys(MEASURES, number)}),)

    runs: tuple[Curve, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    last: int = 10
    smooth: int = 0

    @classmethod
    def of(cls, runs: Sequence[Run], **asked: Any) -> Self:
        """What was measured while training; ``attrs`` names the runs' tasks where one has another than the usual.

        Raises:
            FedscopeError: a run without rounds; one given twice. That nothing was measured is said when it is drawn.
        """
        curves = []
        for run in runs:
            run.round("last")  # says that there is none
            metrics = metrics_of(run)
            curves.append(Curve(run.name, metrics["round"].astype(int), {name: metrics[name] for name in MEASURES}))
        if len({curve.run for curve in curves}) < len(curves):
            curves = [Curve(str(run.path), c.round, c.values) for run, c in zip(runs, curves, strict=True)]
            if len({curve.run for curve in curves}) < len(curves):
                names = ", ".join(curve.run for curve in curves)
                raise FedscopeError(f"{names}: a run is given twice; give each once")
        tasks = [(run.config or {}).get("model", {}).get("task") for run in runs]
        return cls(tuple(curves), {"tasks": tasks} if any(tasks) else {}, **asked)

    def rows(self) -> list[Any]:
        """BASE.curves.csv: a row a run and round, empty where nothing was measured."""
        return [
            [
                (curve.run, number, *(None if np.isnan(value) else float(value) for value in values))
                for curve in self.runs
                for number, *values in zip(curve.round.tolist(), *(curve.values[m] for m in MEASURES), strict=True)
            ]
        ]

    def head(self) -> dict[str, Any]:
        """BASE.curves.json is the provenance, and nothing else."""
        return dict(self.attrs)

    def save(self, base: Path | str) -> list[Path]:
        """Write the table, then the provenance; returns their paths. Floats survive."""
        table, head = self.paths(base)
        table.parent.mkdir(parents=True, exist_ok=True)
        write_csv(table, tuple(self.tables[0].columns), self.rows()[0])
        with write_durably(head) as temporary:
            temporary.write_text(json.dumps(self.head(), indent=1) + "\n", encoding="utf-8")
        return [table, head]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing, damaged, or is not such a result.
        """
        table, head = cls.paths(base)
        for path in (head, table):
            if not path.exists():
                raise FedscopeError(f"{path} does not exist: a result of curves is a table and its provenance; {AGAIN}")
        attrs = read_json(head, "a result of `fedscope curves`", AGAIN, RESULT)
        if not isinstance(attrs, dict) or "versions" not in attrs:
            raise FedscopeError(f"{head} is no result of `fedscope curves`: it does not say its versions; {AGAIN}")
        return cls.of_tables(attrs, cls.tables[0].read(table, cls.command))

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """The inverse of :meth:`rows` and :meth:`head`."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in tables[0]:
            rows.setdefault(row["run"], []).append(row)
        curves = (
            Curve(
                run,
                np.array([row["round"] for row in own]),
                {name: np.array([row[name] for row in own], np.float64) for name in MEASURES},
            )
            for run, own in rows.items()
        )
        return cls(tuple(curves), head)

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """A panel a measure over rounds; see :mod:`fedscope.training.curve_figure`.

        Raises:
            FedscopeError: a measure that does not exist or has no numbers, a run without any of them; a window that is
                too short or longer than what was measured.
        """
        from .curve_figure import draw_curves

        return draw_curves(self, self.drawable(), width, title, self.smooth)

    def summary(self) -> str:
        """Every measure's mean and deviation over the last rounds of every run."""
        return "\n".join(self._sentence(measure_of(name)) for name in self._told)

    @property
    def _told(self) -> tuple[str, ...]:
        if self.measures:
            return self.measures
        losses, errors = (any(curve.tail(name)[2] for curve in self.runs) for name in USUAL)
        return ("test_loss",) if losses and not errors else ("test_error",)  # a task without one

    def _sentence(self, measure: Measure) -> str:
        deployed, parts = " of the deployed model" if measure.column in USUAL else "", []
        for curve in self.runs:
            mean, deviation, count = curve.tail(measure.name, self.last)
            if not count:
                parts.append(f"{curve.run} not measured")
                continue
            digits, scale, unit = (".1f", 100, " %") if measure.is_share else (".3g", 1, "")
            spread = f" ± {scale * deviation:{digits}}" if count > 1 else ""
            few = ", all that were measured" if count < self.last else ""
            rounds = f"{count} round{'s' if count > 1 else ''}{few}"
            parts.append(f"{curve.run} {scale * mean:{digits}}{spread}{unit} ({rounds})")
        return f"{measure.words}{deployed}, mean ± deviation over the last measured rounds: {', '.join(parts)}"

    def findings(self) -> dict[str, Any]:
        """The same by measure and run."""
        names = ("mean", "deviation", "rounds")
        return {
            measure: {curve.run: dict(zip(names, curve.tail(measure, self.last), strict=True)) for curve in self.runs}
            for measure in self._told
        }

    def drawable(self) -> tuple[Measure, ...]:
        """The measures that are drawn, checked; raises as :meth:`figure`."""
        asked = tuple(measure_of(name) for name in dict.fromkeys(self.measures or USUAL))
        counts = [[len(curve.measured(measure)[0]) for measure in asked] for curve in self.runs]
        drawn = tuple(measure for i, measure in enumerate(asked) if any(own[i] for own in counts))
        for curve, own in zip(self.runs, counts, strict=True):
            if not any(own):
                raise FedscopeError(_unmeasured((curve,), asked))
            refuse_smoothing(self.smooth, curve.run, min(count for count in own if count))
        if drawn != asked and self.measures not in ((), USUAL):  # of what nobody asked for, what there is will do
            raise FedscopeError(_unmeasured(self.runs, [measure for measure in asked if measure not in drawn]))
        return drawn


def _unmeasured(curves: Sequence[Curve], asked: Sequence[Measure]) -> str:
    have = [m for m in MEASURES if any(m in c.values and not np.isnan(c.values[m]).all() for c in curves)]
    runs, columns = " and ".join(curve.run for curve in curves), " or ".join(measure.column for measure in asked)
    lacks = f"{runs} {'has' if len(curves) == 1 else 'have'} no numbers of {columns}"
    if have:
        lacks += f", only of {', '.join(have)}; ask for one of these with --measure"
    else:
        lacks += ": nothing was measured while it was recorded"
    if not any(measure.column in USUAL for measure in asked):
        return lacks
    run = curves[0].run if len(curves) == 1 else "RUN"
    return f"{lacks}{',' if have else ';'} {'or ' if have else ''}measure its global models now: " + (
        f"fedscope plane {run} --trajectory --model NAME --data NAME"
    )


def metrics_of(run: Run) -> dict[str, np.ndarray]:
    """As :meth:`Run.metrics`, but a run of another program may lack the table: its rounds have the numbers."""
    return to_arrays(run.rounds, read_table(run.path / "metrics.csv"), lambda t: run.round(t).metrics)


def error_curves(run: Run) -> tuple[ErrorCurve, ...]:
    """The test errors that were measured while training, as figures of other analyses draw them."""
    metrics = metrics_of(run)
    curves = []
    for label, column in (("global", "test_error"), ("averaged", "averaged_test_error")):
        there = ~np.isnan(metrics[column])
        if there.any():
            rounds, error = metrics["round"][there].astype(int), metrics[column][there]
            curves.append(ErrorCurve(label, tuple(rounds.tolist()), tuple(error.tolist())))
    return tuple(curves)
