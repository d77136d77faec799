"""``curves``: loss, error and client spread over rounds, of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints import FedscopeError, Run
from ..checkpoints.metrics import read_table, to_arrays
from ..checkpoints.opening import regular
from .measures import MEASURES, USUAL, Measure, measure_of
from .smoothing import LEAST

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
        """A measure over rounds: of the deployed model where it is its test loss or error, else as it was recorded.

        Raises:
            FedscopeError: curves that were stored before there was such a column.
        """
        if measure.column not in self.values:
            raise FedscopeError(
                f"the stored curves of {self.run} have no {measure.column}; make them anew with --force"
            )
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
class Curves:
    """Several runs' curves, as they were measured."""

    runs: tuple[Curve, ...]
    attrs: dict[str, Any]

    def save(self, base: Path | str) -> Path:
        """Write ``BASE.curves.csv`` (a row a run and round, empty where not measured) and ``BASE.curves.json``."""
        import csv
        import json

        from ..checkpoints import write_durably

        path = Path(f"{base}.curves.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_durably(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["run", "round", *MEASURES])
            for curve in self.runs:
                for i, t in enumerate(curve.round):
                    values = (float(curve.values[name][i]) if name in curve.values else np.nan for name in MEASURES)
                    rows.writerow([curve.run, int(t), *("" if np.isnan(v) else repr(v) for v in values)])
        with write_durably(Path(f"{base}.curves.json")) as temporary:
            Path(temporary).write_text(json.dumps(self.attrs, indent=1) + "\n")
        return path

    @classmethod
    def load(cls, base: Path | str) -> Curves:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: a file is missing or is not such a result.
        """
        import csv
        import json

        for suffix in (".curves.csv", ".curves.json"):
            regular(Path(f"{base}{suffix}"), "a result of `fedscope curves`")
        try:
            with Path(f"{base}.curves.csv").open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            attrs = json.loads(Path(f"{base}.curves.json").read_text(encoding="utf-8"))
            attrs["versions"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedscopeError(
                f"{base}.curves.csv or .json cannot be read ({error}); make the curves anew with --force"
            ) from error
        curves = []
        for name in dict.fromkeys(row["run"] for row in rows):
            own = [row for row in rows if row["run"] == name]
            known = [m for m in MEASURES if m in own[0]]  # fewer in what an older release has stored
            values = {m: np.array([float(row[m]) if row[m] else np.nan for row in own]) for m in known}
            curves.append(Curve(name, np.array([int(row["round"]) for row in own]), values))
        return cls(tuple(curves), attrs)

    def figure(
        self,
        width: float = 3.5,
        title: str | None = None,
        *,
        smoothing: int = 0,
        measures: Sequence[str] = USUAL,
    ) -> Figure:
        """A panel a measure over rounds; see :mod:`fedscope.training.curve_figure`.

        Args:
            smoothing: length of a Savitzky-Golay window, at least 5 rounds, odd or even (see
                :func:`fedscope.training.smoothing.smooth`); 0 for none.
            measures: columns of ``metrics.csv``, or with ``accuracy`` for ``error``.

        Raises:
            FedscopeError: a measure that does not exist or has no numbers, a run without any of them; a window that is
                too short or longer than what was measured.
        """
        from .curve_figure import draw_curves

        asked = self.drawable(measures, smoothing)
        return draw_curves(self, asked, width, title, smoothing)

    def drawable(self, measures: Sequence[str], smoothing: int = 0) -> tuple[Measure, ...]:
        """The measures, checked; raises as :meth:`figure`."""
        asked = tuple(measure_of(name) for name in dict.fromkeys(measures))
        counts = [[len(curve.measured(measure)[0]) for measure in asked] for curve in self.runs]
        drawn = tuple(measure for i, measure in enumerate(asked) if any(own[i] for own in counts))
        for curve, own in zip(self.runs, counts, strict=True):
            if not any(own):
                raise FedscopeError(_unmeasured((curve,), asked))
            refuse_smoothing(smoothing, curve.run, min(count for count in own if count))
        if drawn != asked and tuple(measures) != USUAL:  # of what nobody asked for, what there is will do
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


def refuse_smoothing(smoothing: int, run: str, rounds: int) -> None:
    """Check a window against a run.

    Raises:
        FedscopeError: it is shorter than 5 or longer than the run.
    """
    if not smoothing or LEAST <= smoothing <= rounds:
        return
    fits = f"a number from {LEAST} to {rounds}" if rounds > LEAST else f"--smooth {LEAST}"
    remedy = f"give {fits}" if rounds >= LEAST else f"leave it out, for smoothing needs {LEAST}"
    raise FedscopeError(
        f"--smooth {smoothing} does not fit {run}, measured in {rounds} round{'s' if rounds != 1 else ''}; {remedy}"
    )


def curves(runs: Sequence[Run], *, attrs: dict[str, Any] | None = None) -> Curves:
    """Collect what was measured while training.

    Raises:
        FedscopeError: a run without rounds; one given twice. That nothing was measured is said when it is drawn.
    """
    made = []
    for run in runs:
        run.round("last")  # says that there is none
        metrics = metrics_of(run)
        made.append(Curve(run.name, metrics["round"].astype(int), {name: metrics[name] for name in MEASURES}))
    names = [curve.run for curve in made]
    if len(set(names)) < len(names):
        made = [Curve(str(run.path), c.round, c.values) for run, c in zip(runs, made, strict=True)]
        if len({curve.run for curve in made}) < len(made):
            raise FedscopeError(f"{', '.join(curve.run for curve in made)}: a run is given twice; give each once")
    return Curves(tuple(made), dict(attrs or {}))


def metrics_of(run: Run) -> dict[str, np.ndarray]:
    """As :meth:`Run.metrics`, but a run of another program may lack the table: its rounds have the numbers."""
    return to_arrays(run.rounds, read_table(run.path / "metrics.csv"), lambda t: run.round(t).metrics)
