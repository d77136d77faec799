"""``curves``: loss, error and client spread over rounds, of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checkpoints import FedscopeError, Run
from ..checkpoints.opening import regular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = (
    "train_loss",
    "test_loss",
    "test_error",
    "averaged_test_loss",
    "averaged_test_error",
    "client_error_mean",
    "client_error_std",
)


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

    def tail(self, measure: str = "test_error", last: int = 10) -> tuple[float, float, int]:
        """Mean and deviation (n - 1) of the deployed model's measure over the last measured rounds, and how many.

        The deviation is over rounds of one run, so it says how steady the run is, not how sure the mean is.
        """
        values = self.deployed(measure)
        values = values[~np.isnan(values)][-last:]
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
                    values = (float(curve.values[name][i]) for name in MEASURES)
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
            values = {m: np.array([float(row[m]) if row[m] else np.nan for row in own]) for m in MEASURES}
            curves.append(Curve(name, np.array([int(row["round"]) for row in own]), values))
        return cls(tuple(curves), attrs)

    def figure(self, width: float = 3.5, title: str | None = None, *, smoothing: int = 0) -> Figure:
        """Test loss above test error over rounds; see :mod:`fedscope.training.curve_figure`.

        Args:
            smoothing: length of a Savitzky-Golay window (odd, at least 5 rounds; quadratic); 0 for none.

        Raises:
            FedscopeError: a window that is even, too short or longer than a run.
        """
        from .curve_figure import draw_curves

        for curve in self.runs:
            refuse_smoothing(smoothing, curve.run, len(curve.round))
        return draw_curves(self, width, title, smoothing)


def refuse_smoothing(smoothing: int, run: str, rounds: int) -> None:
    """Check a window against a run.

    Raises:
        FedscopeError: it is even, shorter than 5 or longer than the run.
    """
    if smoothing and (smoothing < 5 or smoothing % 2 == 0 or smoothing > rounds):
        raise FedscopeError(
            f"--smooth {smoothing} does not fit {run} with {rounds} rounds; "
            "give an odd number from 5 up to the number of rounds"
        )


def curves(runs: Sequence[Run], *, attrs: dict[str, Any] | None = None) -> Curves:
    """Collect what was measured while training.

    Raises:
        FedscopeError: a run without rounds or without metrics.
    """
    made = []
    for run in runs:
        run.require("metrics.csv")
        metrics = run.metrics()
        if not len(metrics["round"]):
            raise FedscopeError(f"{run.path} has no rounds yet; train it first: fedscope train --resume {run.path}")
        made.append(Curve(run.name, metrics["round"].astype(int), {name: metrics[name] for name in MEASURES}))
    names = [curve.run for curve in made]
    if len(set(names)) < len(names):
        made = [Curve(str(run.path), c.round, c.values) for run, c in zip(runs, made, strict=True)]
    return Curves(tuple(made), dict(attrs or {}))
