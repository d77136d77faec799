"""The runs of a table: what each is called by its settings, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...analysis.runs import refuse_no_run
from ...checkpoints import FedscopeError, Run, has_no_server, real_path
from ...checkpoints.io.code_words import code_words
from ...checkpoints.io.number_words import joined, words_apart
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.untrusted import expand_home
from ..curves.run_curve import Curve, metrics_of
from ..curves.run_names import both_seeds, method_of, settings_of
from ..data.same_data import same_data
from ..sweeps.plan import FILE, PlannedRun
from ..sweeps.printed_commands import line_in, place_of
from ..sweeps.schedule import GIVEN, RUNS
from ..sweeps.sweep import Sweep

#: settings that say where a run was computed, what is kept of it, and how often it is measured
ASIDE = ("record.", "run.device", "run.engine", "run.evaluate")


@dataclass(frozen=True)
class TableRun:
    """One run of a table.

    Attributes:
        name: its folder's; settings: all, by ``section.key``, with ``method`` and in some sweeps ``label``.
        seed: ``run.seed`` and ``data.seed``, None where it is not said; data: what ``run.json`` says of its data;
            curve: what was measured.
        rounds: recorded, and how many it is to have; command: what makes it; run: itself.
        words: by setting, how its numbers are written, so that those of all runs are apart.
    """

    name: str
    settings: Mapping[str, Any]
    seed: tuple[Any, Any]
    data: Mapping[str, Any]
    curve: Curve
    rounds: tuple[int, int]
    command: str
    run: Run | None = None
    words: Mapping[str, Mapping[float, str]] = field(default_factory=dict)

    @property
    def is_recorded(self) -> bool:
        """True if another program recorded the run, so that what it does not say is not known."""
        return self.run is not None and self.run.is_foreign


@dataclass(frozen=True)
class Gathered:
    """The runs of a table, and those that a sweep does not have yet.

    Attributes:
        missing: their names.
        varied: what the sweeps vary on purpose.
    """

    entries: tuple[TableRun, ...]
    missing: tuple[str, ...] = ()
    varied: frozenset[str] = field(default_factory=frozenset)


def gather(given: Sequence[Run | Sweep | Path | str]) -> Gathered:
    """Open runs and sweeps.

    Raises:
        FedscopeError: nothing, what is neither, a run without rounds, or one given twice.
    """
    entries: list[TableRun] = []
    missing: list[str] = []
    varied: set[str] = set()
    for one in given:
        if isinstance(one, Run):
            entries.append(_entry(one, one.name, {}, _own_command(one)))
            continue
        if not isinstance(one, Sweep):
            refuse_no_run(one)
            path = expand_home(one)
            if not (path / FILE).exists():
                run = Run.open(path)
                entries.append(_entry(run, run.name, {}, _own_command(run)))
                continue
            one = Sweep.open(path, checked=False)
        varied |= {key for run in one.plan.runs for key in run.cell}
        there = {run.path.name: run for run in one.runs}
        for planned in one.plan.runs:
            if planned.name not in there:
                missing.append(planned.name)
                continue
            label = {"label": planned.cell["label"]} if "label" in planned.cell else {}
            run = there[planned.name]
            entries.append(_entry(run, planned.name, label, _planned_command(one, planned, run)))
    if not entries:
        none = f"none of the {len(missing)} runs of the sweep is complete" if missing else "no run was given"
        raise FedscopeError(f"there is nothing to make a table of: {none}; train first, as with fedscope sweep")
    named = with_words(with_names_of_data(apart_from_trained(entries)))
    return Gathered(named, tuple(missing), frozenset(varied))


def _planned_command(sweep: Sweep, planned: PlannedRun, run: Run) -> str:
    place = place_of(sweep.plan, planned)
    folder = sweep.path if place is None else real_path(sweep.path)
    words = [str(folder / word) if word == GIVEN else word for word in planned.arguments]
    return line_in(place, ["train", *words, *code_words(run.info, run.config), "--out", folder / RUNS / planned.name])


def _own_command(run: Run) -> str:
    if run.config is None:
        return f"# {run.path} was recorded by {run.info.get('source')}, which trains it again"
    return command_line(
        "train", run.path / "config.toml", *code_words(run.info, run.config), "--out", f"{run.path}-again"
    )


def _entry(run: Run, name: str, label: Mapping[str, str], command: str) -> TableRun:
    last = run.round("last").number  # says that there is none
    settings = {**label, "method": method_of(run), **settings_of(run)}
    if run.is_foreign:  # an average over rounds is a part of its method
        settings.setdefault("average.method", "none")
    kept = {key: value for key, value in settings.items() if not key.startswith(ASIDE)}
    metrics = metrics_of(run)
    values = {key: metrics[key] for key in metrics if key != "round"}
    curve = Curve(name, metrics["round"].astype(int), values, has_no_server(run))
    of = int((run.config or {}).get("run", {}).get("rounds", last))
    return TableRun(name, kept, both_seeds(run), run.info.get("data", {}), curve, (last, of), command, run)


def with_names_of_data(entries: Sequence[TableRun]) -> tuple[TableRun, ...]:
    """Return the runs, with the data of recorded ones called as by a trained run on the same: paths vary."""
    trained = [entry for entry in entries if not entry.is_recorded]
    made = []
    for entry in entries:
        same = next((one for one in trained if entry.is_recorded and same_data(entry.data, one.data)), None)
        name = None if same is None else same.settings.get("data.name")
        made.append(entry if name is None else replace(entry, settings={**entry.settings, "data.name": name}))
    return tuple(made)


def apart_from_trained(entries: Sequence[TableRun]) -> tuple[TableRun, ...]:
    """Return the runs, with those that another program recorded under the name of a method that others are trained with
    here called ``fedprox (recorded)``: a name alone does not say that both do the same."""
    trained = {entry.settings["method"] for entry in entries if not entry.is_recorded}
    return tuple(
        replace(entry, settings={**entry.settings, "method": f"{entry.settings['method']} (recorded)"})
        if entry.is_recorded and entry.settings["method"] in trained
        else entry
        for entry in entries
    )


def with_words(entries: Sequence[TableRun]) -> tuple[TableRun, ...]:
    """Return the runs with one number for those that mean one, and with the words of each: a cell is named by them, so
    runs of two numbers that are written alike would be seeds of one, and those of one that is written twice of two."""
    values: dict[str, list[float]] = {}
    for entry in entries:
        for key, value in entry.settings.items():
            if _is_number(value):
                values.setdefault(key, []).append(value)
    same = {key: joined(own) for key, own in values.items()}
    words = {key: words_apart(one.values()) for key, one in same.items()}

    def settings(entry: TableRun) -> dict[str, Any]:
        return {k: same[k].get(value, value) if _is_number(value) else value for k, value in entry.settings.items()}

    return tuple(replace(entry, settings=settings(entry), words=words) for entry in entries)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
