"""``curves``: loss, error and client spread over rounds, of one or several runs, or of several seeds of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...checkpoints import FedscopeError, Run, write_durably
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.untrusted import RESULT, expand_home, read_json, read_text
from ...checkpoints.io.visible_text import visible
from ...checkpoints.rounds.metrics import further
from ...results import Table, TableResult, group_rows, number
from ...results.tables import AGAIN, add_suffix, describe_tables, refuse_changed, write_csv
from .bands import COLUMNS, Band, seeds_of
from .diverged import describe_diverged
from .measures import MEASURES, OWN_TEST, USUAL, CurveMeasure, measure_of, reachable, refuse_smoothing
from .run_curve import Curve, curve_of
from .summary import describe_missing, describe_other_losses, describe_reached, describe_stale, tails

_NAMED = ("run", "round")
#: what is no part of the numbers, and kept so that a result that is read back says and draws the same
ASKED = ("measures", "last", "smooth", "target")


@dataclass(frozen=True, eq=False)
class Curves(TableResult):
    """Several runs' curves, as they were measured.

    Attributes:
        attrs: provenance.
        measures: columns of ``metrics.csv``, or with ``accuracy`` for ``error``, which are drawn and told of; without
            a word :data:`USUAL` are drawn, and the test error is told of.
        last: of how many measured rounds mean and deviation are told; None for a tenth of them, 10 at most.
        smooth: length of a Savitzky-Golay window for the figure, at least 5 rounds, odd or even (see
            :func:`fedscope.training.curves.measures.smooth`); 0 for none.
        target: the accuracy that a curve is to reach.
        bands: runs that differ only in their seed, where these are one line.
    """

    command = "curves"
    suffixes = (".curves.csv", ".curves.json")
    derived = (".bands.csv",)
    tables = (Table(".curves.csv", {"run": str, "round": int, **dict.fromkeys(MEASURES, number)}),)

    runs: tuple[Curve, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    last: int | None = None
    smooth: int = 0
    target: float | None = None
    bands: tuple[Band, ...] = ()

    @classmethod
    def runs_named(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """None are known: bands have names of their own, and nothing is computed before they are there."""
        return frozenset()

    @classmethod
    def of(cls, runs: Sequence[Run], *, bands: bool = False, **asked: Any) -> Self:
        """Collect what was measured while training, and since (``fedscope measure``); ``attrs`` names the runs' tasks
        where one has another than the usual, and as ``measured`` on what was measured afterwards.

        Args:
            bands: whether runs that differ only in their seed are one line.

        Raises:
            FedscopeError: a run without rounds; one given twice; ``bands`` of runs of one seed each. That nothing was
                measured is said when it is drawn.
        """
        curves = []
        for run in runs:
            run.round("last")  # says that there is none
            curves.append(curve_of(run))
        if len({curve.run for curve in curves}) < len(curves):
            curves = [replace(c, run=visible(run.path)) for run, c in zip(runs, curves, strict=True)]
            if len({curve.run for curve in curves}) < len(curves):
                names = list_few(curve.run for curve in curves)
                raise FedscopeError(f"{names}: a run is given twice; give each once")
        tasks = [(run.config or {}).get("model", {}).get("task") for run in runs]
        grouped = seeds_of(runs, curves) if bands else ()
        later = {
            curve.run: [one.told for one in run.measured.measurements]
            for run, curve in zip(runs, curves, strict=True)
            if run.measured.measurements
        }
        about = {**({"tasks": tasks} if any(tasks) else {}), **({"measured": later} if later else {})}
        return cls(tuple(curves), about, bands=grouped, **asked)

    @property
    def lines(self) -> tuple[Curve, ...]:
        """The lines that are drawn and described: a curve a run, or with bands the means over seeds."""
        return tuple(band.curve for band in self.bands) if self.bands else self.runs

    def list_drawn(self) -> tuple[str, ...]:
        """With bands what their runs are called together."""
        return tuple(band.label for band in self.bands)

    @property
    def columns(self) -> tuple[str, ...]:
        """Of ``BASE.curves.csv``, behind run and round: all of ``metrics.csv``."""
        return (*MEASURES, *further(curve.values for curve in self.runs))

    def rows(self) -> list[Any]:
        """BASE.curves.csv: a row a run and round, empty where nothing was measured."""
        return [
            [
                (curve.run, number, *(None if np.isnan(value) else float(value) for value in values))
                for curve in self.runs
                for number, *values in zip(curve.round.tolist(), *map(curve.column, self.columns), strict=True)
            ]
        ]

    def head(self) -> dict[str, Any]:
        """BASE.curves.json is the provenance, and under ``asked`` what is drawn and told besides the usual."""
        asked: dict[str, Any] = {
            name: getattr(self, name) for name in ASKED if getattr(self, name) not in ((), None, 0)
        }
        if self.bands:
            asked["bands"] = [[band.label, [curve.run for curve in band.members]] for band in self.bands]
        return {**self.attrs, **({"asked": asked} if asked else {})}

    def save(self, base: Path | str) -> list[Path]:
        """Write the table, then the provenance; returns their paths. Floats survive."""
        base = expand_home(base)
        table, head = self.paths(base)
        table.parent.mkdir(parents=True, exist_ok=True)
        count = write_csv(table, ("run", "round", *self.columns), self.rows()[0])
        told = describe_tables({self.suffixes[0]: (table, count)})
        with write_durably(head) as temporary:
            temporary.write_text(json.dumps({**self.head(), **told}, indent=1) + "\n", encoding="utf-8")
        return [table, head, *self.derive(base)]

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """With bands ``BASE.bands.csv``: mean and deviation over the seeds of every column, and how many they are."""
        path = add_suffix(Path(base), ".bands.csv")
        if not self.bands:
            if again:
                path.unlink(missing_ok=True)  # of a result that this one has replaced
            return []
        if again or not path.exists():
            write_csv(path, COLUMNS, [row for band in self.bands for row in band.rows()])
        return [path]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: a file is missing, damaged, or is not such a result.
        """
        table, head = cls.paths(base)
        for path in (head, table):
            if not path.exists():
                raise FedscopeError(f"{path} does not exist: a result of curves is a table and its provenance; {AGAIN}")
        attrs = read_json(head, "a result of `fedscope curves`", AGAIN, RESULT)
        if not isinstance(attrs, dict) or "versions" not in attrs:
            raise FedscopeError(f"{head} is not a result of `fedscope curves`: it does not say its versions; {AGAIN}")
        lines = read_text(table, "a table of `fedscope curves`", AGAIN, RESULT, errors="replace")
        names = lines.partition("\n")[0].strip().split(",")
        known = cls.tables[0]
        columns = {**known.columns, **dict.fromkeys(further([names]), number)}
        rows = replace(known, columns=columns).read(table, cls.command)
        refuse_changed({cls.suffixes[0]: (table, len(rows))}, attrs, head.name)
        try:
            return cls.of_tables(attrs, rows)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise FedscopeError(f"{head} is damaged: what was asked does not fit {table.name}; {AGAIN}") from error

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        curves = [
            Curve(
                run,
                np.array([row["round"] for row in own]),
                {name: np.array([row[name] for row in own], np.float64) for name in own[0] if name not in _NAMED},
            )
            for (run,), own in group_rows(tables[0], "run").items()
        ]
        asked = dict(head.get("asked", {}))
        by_name = {curve.run: curve for curve in curves}
        bands = tuple(Band(str(label), tuple(by_name[run] for run in own)) for label, own in asked.pop("bands", ()))
        if unknown := set(asked) - set(ASKED):
            raise LookupError(unknown)
        measures = tuple(measure_of(name).name for name in asked.pop("measures", ()))
        attrs = {name: value for name, value in head.items() if name != "asked"}
        return cls(tuple(curves), attrs, measures, **asked, bands=bands)

    def save_events(self, folder: Path | str, *, force: bool = False) -> list[Path]:
        """Write every run's numbers as TensorBoard's event files, a folder a run, and return the files' paths.

        Of a run whose first rounds are there already, the others are written behind them.

        Args:
            force: whether other events in these files are replaced.

        Raises:
            FedscopeError: as :func:`fedscope.training.curves.tensorboard.write_events`.
        """
        from .tensorboard import folders_of, write_events

        said = self.attrs.get("run", ())
        created = [run.get("created") for run in said] if len(said) == len(self.runs) else [None] * len(self.runs)
        places = folders_of([Path(curve.run) for curve in self.runs], Path(folder))
        return [write_events(*one, force=force) for one in zip(self.runs, created, places, strict=True)]

    def named_tables(self) -> dict[str, Any]:
        """Return its table with the columns that are there."""
        columns = {**{name: self.tables[0].columns[name] for name in _NAMED}, **dict.fromkeys(self.columns, number)}
        return {"curves": (columns, self.rows()[0])}

    def summary(self) -> str:
        """Every measure's mean and deviation over the last rounds of every run, and where a target is reached."""
        told = [measure_of(name) for name in self._told]
        said = [tails(measure, self._tailed, self.last) for measure in told]
        if self.target is not None:
            said += [describe_reached(measure, self._tailed, self.target) for measure in self._reachable()]
        said += filter(None, (describe_stale(self.runs, measure) for measure in told))
        said += dict.fromkeys(note for one in told for note in describe_diverged(self.runs, one, self.last))
        drawn = [measure_of(name) for name in self.measures or self._usual]
        said += describe_other_losses(drawn, self.attrs.get("tasks", ()))
        later = self.attrs.get("measured", {})
        said += [f"measured afterwards: {run}: {'; '.join(one['words'] for one in own)}" for run, own in later.items()]
        return "\n".join(said)

    @property
    def _usual(self) -> tuple[str, ...]:
        """What is drawn where nothing is asked for: of runs that were tested on their clients' own data alone, as in
        Flower, that."""
        there = [
            name for name in (*USUAL, OWN_TEST) if any(not np.isnan(one.deployed(name)).all() for one in self.runs)
        ]
        return (OWN_TEST,) if there == [OWN_TEST] else USUAL

    @property
    def _tailed(self) -> tuple[Band | Curve, ...]:
        return self.bands or self.runs

    @property
    def _told(self) -> tuple[str, ...]:
        if self.measures:
            return self.measures
        if self._usual != USUAL:
            return self._usual
        losses, errors = (any(curve.tail(name)[2] for curve in self.runs) for name in USUAL)
        return ("test_loss",) if losses and not errors else ("test_error",)  # a task without one

    def _reachable(self) -> list[CurveMeasure]:
        """Return the measures told of that leave an accuracy.

        Raises:
            FedscopeError: there is none.
        """
        assert self.target is not None
        return reachable([measure_of(name) for name in self._told], self.target)

    def findings(self) -> dict[str, Any]:
        """Return the same by measure and run; with bands by what their runs are called together."""
        names = ("mean", "deviation", "seeds" if self.bands else "rounds")
        said: dict[str, Any] = {
            measure: {one.label: dict(zip(names, one.tail(measure, self.last), strict=True)) for one in self._tailed}
            for measure in self._told
        }
        if self.target is not None:
            where = {
                measure.name: {line.run: asdict(line.reach(measure, self.target)) for line in self.lines}
                for measure in self._reachable()
            }
            for band in self.bands:
                for measure in self._reachable():
                    where[measure.name][band.label]["seeds"] = band.each_reach(measure, self.target)
            said["target"] = {"accuracy": self.target, "reached": where}
        return said

    def drawable(self) -> tuple[CurveMeasure, ...]:
        """Return the measures that are drawn, checked; raises as :meth:`figure`."""
        asked = tuple(measure_of(name) for name in dict.fromkeys(self.measures or self._usual))
        counts = [[len(curve.measured(measure)[0]) for measure in asked] for curve in self.lines]
        drawn = tuple(measure for i, measure in enumerate(asked) if any(own[i] for own in counts))
        for curve, own in zip(self.lines, counts, strict=True):
            if not any(own):
                raise FedscopeError(describe_missing((curve,), asked))
            refuse_smoothing(self.smooth, curve.run, min(count for count in own if count))
        if drawn != asked and self.measures not in ((), USUAL):  # of what nobody asked for, what there is will do
            raise FedscopeError(describe_missing(self.lines, [measure for measure in asked if measure not in drawn]))
        if self.target is not None:
            self._reachable()
        return drawn
