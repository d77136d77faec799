"""What the runs of a report are called in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from ..analysis.runs import distinct_names
from ..checkpoints import FedscopeError, Run, real_path
from ..results import Result
from ..results.labels import labels_of, names_in, run_of, with_called_runs
from ..training.curves.other_seeds import describe_other_seeds
from ..training.curves.run_names import settings_of, title_of
from ..training.tables.table_runs import ASIDE

R = TypeVar("R", bound=Result)

#: by a run's name what it is called; of runs that share a name by the path of each
Labels = Mapping[str, str]
EMPTY: Labels = MappingProxyType({})


def labels_of_runs(given: Sequence[str] | Labels | None, runs: Sequence[Run]) -> Labels:
    """Take a report's labels: in the order of its runs, or by their names; runs that share one are called by their
    paths.

    Raises:
        FedscopeError: more of them than runs; a run that the report is not about; one that is empty or given twice.
    """
    names = distinct_names(runs)
    known = labels_of(given, names) if given is not None and not isinstance(given, Mapping) else dict(given or {})
    for name, label in known.items():
        if name not in names:
            raise FedscopeError(f"{name!r} is no run of this report; it is about {', '.join(names)}")
        if not label.strip():
            raise FedscopeError(f"the label of {name!r} is empty; give a word that a page can show")
    called = [known.get(name, name) for name in names]
    for one in called:
        if called.count(one) > 1:
            raise FedscopeError(f"two runs of the report would be called {one!r}; give each a label of its own")
    if names == [run.name for run in runs]:
        return known
    return {**known, **{str(run.path): one for run, one in zip(runs, called, strict=True)}}


def label(run: Run, labels: Labels) -> str:
    """Return what a run is called."""
    return labels.get(str(run.path), labels.get(run.name, run.name))


def name_report(runs: Sequence[Run], labels: Labels) -> str:
    """Return the heading of a report that got none."""
    return f"Report on {' and '.join(label(run, labels) for run in runs)}"


def relabel(result: R, labels: Labels, run: Run | None = None) -> R:
    """Return a result that calls the runs so, as far as it names them.

    Args:
        run: whose it is, and to which its name belongs where others share it.
    """
    labels = labels if run is None or str(run.path) not in labels else {**labels, run.name: labels[str(run.path)]}
    labels = {**labels, **_of_places(result, labels)}
    if getattr(result, "command", "") == "reaggregate":  # whose rows are servers, which may be called as a run is
        return with_called_runs(result, labels)
    there = {name for one in names_in(result) for name in (one, run_of(one))}
    own = {name: given for name, given in labels.items() if name in there}
    return result.renamed(own) if own else result


def _of_places(result: Result, labels: Labels) -> dict[str, str]:
    """Return the labels of runs by their paths as the result has them, which were typed in another way then."""
    own = getattr(result, "attrs", {}).get("run", ())
    paths = [
        str(one.get("path", "")) for one in ([own] if isinstance(own, Mapping) else own) if isinstance(one, Mapping)
    ]
    places = {real_path(name): label for name, label in labels.items() if "/" in name}
    return {path: label for path in paths if path and (label := places.get(real_path(path))) is not None}


def about_run(run: Run) -> str:
    """Say what was trained on what, in a line."""
    info, config = run.info, run.config or {}
    data = str(info.get("data", {}).get("name", "unknown data")).rpartition("/")[2]
    named = title_of(run)
    recorded = f"recorded by {info['source']}" if run.is_foreign else ""
    who = recorded if recorded and named == info["source"] else ", ".join(filter(None, (named, recorded)))
    model = config.get("model", {}).get("name") or info.get("model")
    clients = f"{info['clients']} clients" if "clients" in info else ""
    split = str(config.get("data", {}).get("partition", ""))
    parts = [who, data, clients, split, f"model {model}" if model else "", f"{run.layout.size:,} parameters"]
    return ", ".join(part for part in [*parts, f"rounds 1 to {run.rounds[-1]}"] if part)


def about_seeds(runs: Sequence[Run], labels: Labels) -> str:
    """Say that runs of several settings, which stand side by side, have other seeds; "" where they have the same."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        said = {key: value for key, value in settings_of(run).items() if not key.startswith(ASIDE)}
        groups.setdefault(json.dumps([title_of(run), said], sort_keys=True, default=str), []).append(run)
    named = {", ".join(label(run, labels) for run in own): own for own in groups.values()}
    other = describe_other_seeds(named)
    return f"{other}, so a difference between these is not one of the same seeds." if other else ""
