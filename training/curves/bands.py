"""Runs that differ only in their seed, as one curve with a band."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.visible_text import visible
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.rounds.run_identity import shared_rounds
from ...plotting.printed import printed_method
from ...results import deviation_over
from ..user_code.different_sources import method_sources
from .measures import CurveMeasure
from .other_seeds import describe_other_seeds
from .run_curve import Curve
from .run_names import SEEDS, both_seeds, is_copy, method_of, settings_of

#: what says where a run was computed and what of it is kept, and the data's place; data are compared by their content
_ELSEWHERE = (("run", "device"), ("run", "engine"), ("data", "name"))

#: of ``BASE.bands.csv``
COLUMNS = ("run", "round", "seeds", "measure", "mean", "std")


@dataclass(frozen=True)
class Band:
    """Runs that differ only in their seed.

    Attributes:
        label: what they are called together.
        members: their curves; one is a run by itself, without a band.
    """

    label: str
    members: tuple[Curve, ...]

    @property
    def seeds(self) -> int:
        """The number of runs."""
        return len(self.members)

    @property
    def name(self) -> str:
        """``fma, 3 seeds``."""
        return f"{self.label}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"

    @property
    def printed(self) -> str:
        """The same with the method's printed name: ``FMA (FedAvg), 3 seeds``."""
        return f"{printed_method(self.label)}{self.name.removeprefix(self.label)}"

    @cached_property
    def _rows(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The rounds that all have, and where each has them."""
        rounds = reduce(np.intersect1d, map(_there, self.members))
        return rounds, [np.searchsorted(curve.round, rounds) for curve in self.members]

    def _stacked(self, values: Iterable[np.ndarray]) -> np.ndarray:
        """[seeds, rounds]."""
        return np.stack([own[rows] for own, rows in zip(values, self._rows[1], strict=True)])

    @cached_property
    def curve(self) -> Curve:
        """The mean over the seeds of every column, in the rounds that all runs have; NaN where one has no number."""
        names = dict.fromkeys(name for curve in self.members for name in curve.values)
        means = {name: self._stacked(curve.column(name) for curve in self.members).mean(axis=0) for name in names}
        return Curve(self.label, self._rows[0], means, all(curve.no_server for curve in self.members))

    def deviation(self, measure: CurveMeasure) -> np.ndarray:
        """Return the standard deviation over the seeds (n - 1) of a measure, in the rounds of :attr:`curve`; NaN of one
        seed.

        >>> one, other = (Curve("", np.arange(1, 3), {"lr": np.array([value, 2.0])}) for value in (1.0, 3.0))
        >>> Band("fma", (one, other)).deviation(CurveMeasure("lr", "lr")).round(3).tolist()
        [1.414, 0.0]
        """
        return np.asarray(deviation_over(self._stacked(curve.series(measure) for curve in self.members)))

    def tail(self, measure: str, last: int | None) -> tuple[float, float, int]:
        """Mean and deviation (n - 1) over the seeds of each run's mean over its last measured rounds, and how many."""
        tails = [curve.tail(measure, last) for curve in self.members]
        means = np.array([mean for mean, _, count in tails if count])
        if not len(means):
            return float("nan"), float("nan"), 0
        return float(means.mean()), float(deviation_over(means)), len(means)

    def each_reach(self, measure: CurveMeasure, target: float) -> dict[str, int | None]:
        """Return the first round of each run with a target accuracy; None where it has none."""
        return {curve.run: curve.reach(measure, target).round for curve in self.members}

    def rows(self) -> list[tuple[Any, ...]]:
        """``BASE.bands.csv``: a row a round and column of ``metrics.csv``, where all runs have a number."""
        made = []
        for name, means in self.curve.values.items():
            values = self._stacked(curve.column(name) for curve in self.members)
            stds = deviation_over(values) if self.seeds > 1 else [None] * len(means)
            made += [
                (self.label, int(number), self.seeds, name, float(mean), None if std is None else float(std))
                for number, mean, std in zip(self.curve.round, means, stds, strict=True)
                if not np.isnan(mean)
            ]
        return made


def _there(curve: Curve) -> np.ndarray:
    """Return the rounds of which a run has any number: of one that is gone it may have none."""
    known = [~np.isnan(values) for values in curve.values.values()]
    return curve.round[np.any(known, axis=0)] if known else curve.round


def seeds_of(runs: Sequence[Run], curves: Sequence[Curve]) -> tuple[Band, ...]:
    """Runs by what they share: all settings but the seeds, and where they were computed and what of them is kept.

    Raises:
        FedscopeError: no two runs that differ only in their seed (says what else two of them differ in); two of one
            seed, or with rounds from one training; a recorded run that says no seed; runs of a band that have no round
            in common.
    """
    groups: dict[str, list[int]] = {}
    for i, told in enumerate(_all_settings(runs)):
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(i)
    if len(groups) == len(runs):
        raise FedscopeError(_alone(runs))
    for group in groups.values():
        _refuse_one_seed([runs[i] for i in group])
        _refuse_one_trunk([runs[i] for i in group])
    labels = _labels([[curves[i].run for i in group] for group in groups.values()])
    bands = tuple(
        Band(label, tuple(curves[i] for i in group)) for label, group in zip(labels, groups.values(), strict=True)
    )
    _tell_of_sources(runs)
    named = zip(labels, groups.values(), strict=True)
    if other := describe_other_seeds({label: [runs[i] for i in group] for label, group in named}):
        warn_user(f"--bands: {other}, so a difference between these lines is not one of the same seeds")
    ends = {curve.run: (int(curve.round[-1]), run.planned) for run, curve in zip(runs, curves, strict=True)}
    for band in bands:
        _warn_of_short(band, ends)
        if not len(band.curve.round):
            names = ", ".join(curve.run for curve in band.members)
            raise FedscopeError(
                f"--bands: {names} have no round in common; go on with the shorter ones, or leave it out"
            )
    return bands


def bands_over(bands: Sequence[Band], stored: Any) -> tuple[Band, ...]:
    """Return bands of the same runs with the curves of a result, which may be of another day than the runs are now; of
    a result of other runs its own.

    Args:
        stored: the :class:`~fedscope.training.curves.result.Curves`.
    """
    curves = {curve.run: curve for curve in stored.runs}
    if not all(visible(curve.run) in curves for band in bands for curve in band.members):
        return tuple(stored.bands)
    return tuple(Band(band.label, tuple(curves[visible(curve.run)] for curve in band.members)) for band in bands)


def _tell_of_sources(runs: Sequence[Run]) -> None:
    """Say of the first two runs that would be of one band, had they been trained by one source of their code."""
    told = list(zip(runs, _all_settings(runs), map(set, method_sources(runs)), strict=True))
    for (one, ours, sources), (other, theirs, _) in combinations(told, 2):
        differing = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if differing and sources.issuperset(differing):
            warn_user(
                f"--bands: {one.path} and {other.path} differ in {list_few(differing, 2)}, so they are no draws of one "
                "method, and each has a band of its own"
            )
            return


def _warn_of_short(band: Band, ends: Mapping[str, tuple[int, int | None]]) -> None:
    """Warn of runs of a band that end before they should, or before another: a mean over the seeds' last rounds is then
    not what it will be, or of other rounds."""
    if band.seeds < 2:
        return
    rounds = max(max(last, planned or 0) for last, planned in (ends[curve.run] for curve in band.members))
    short = [f"{curve.run} has {ends[curve.run][0]}" for curve in band.members if ends[curve.run][0] < rounds]
    if short:
        warn_user(
            f"--bands: of {rounds} rounds {list_few(short, 4)}; a mean at the end of {band.label} is of runs that are "
            "not whole"
        )


def _all_settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the settings of each, and the sources of the code that they name."""
    return [{**_settings(run), **sources} for run, sources in zip(runs, method_sources(runs), strict=True)]


def _settings(run: Run) -> dict[str, Any]:
    """All that tells a run from one of another seed, flat: ``average.method`` and so on."""
    if run.is_foreign and run.config is None:
        if both_seeds(run)[0] is None:
            raise FedscopeError(
                f"--bands: {run.path} was recorded by {run.info.get('source')} and says no seed, so it is not known "
                "to differ from another only in its seed; leave out --bands, or record runs with "
                "Recorder(method=, seed=)"
            )
        told = {key: value for key, value in settings_of(run).items() if key != "data.name"}
        return {"recorded": method_of(run), **told, "data": _data(run)}
    if run.config is None:
        run.require("config.toml")
    branch = run.info.get("branch", {})
    history = [(last, _flat(tables)) for last, tables in branch.get("history", ())]
    return {**_flat(run.config or {}), "data": _data(run), **({"history": history} if history else {})}


def _data(run: Run) -> str | None:
    data = run.info.get("data", {})
    return next((str(data[key]) for key in ("sha256", "file_sha256", "name") if data.get(key)), None)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.items()
        if section != "record" and isinstance(table, Mapping)
        for key, value in table.items()
        if f"{section}.{key}" not in SEEDS and (section, key) not in _ELSEWHERE
    }


def _alone(runs: Sequence[Run]) -> str:
    """Describe why no two runs make a band."""
    remedy = "train others with another --seed, or leave out --bands"
    if len(runs) == 1:
        return f"--bands needs runs that differ only in their seed, and {runs[0].name} is one run; {remedy}"
    one, other = _all_settings(runs)[:2]
    differing = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    # what a method brings with it says less than the method
    first = next((key for key in differing if key.endswith((".method", ".name"))), differing[0])
    return (
        f"--bands needs runs that differ only in their seed, and here each is the only one of its settings: "
        f"{runs[0].name} and {runs[1].name} differ in {first}; {remedy}"
    )


def _refuse_one_seed(group: Sequence[Run]) -> None:
    known: dict[tuple[Any, ...], Run] = {}
    for run in group:
        if other := known.get(both_seeds(run)):
            seed = both_seeds(run)[0]
            if run.is_foreign and not is_copy(run, other):
                raise FedscopeError(
                    f"--bands: {other.path} and {run.path} were recorded as {method_of(run)} with one seed, {seed}, "
                    "but hold other models; record what differs in Recorder(settings=), or give one of them"
                )
            raise FedscopeError(
                f"--bands: {other.path} and {run.path} have the same settings and one seed, run.seed = "
                f"{seed}, so they are one draw; give one of them"
            )
        known[both_seeds(run)] = run


def _refuse_one_trunk(group: Sequence[Run]) -> None:
    """Branches of one run have one draw of its rounds, whatever their seeds."""
    for one, other in combinations(group, 2):
        if rounds := shared_rounds(one.info, other.info):
            raise FedscopeError(
                f"--bands: {one.path} and {other.path} have their rounds up to {rounds} from one training, so they are "
                "no two draws; give one of them, or runs that were trained apart"
            )


def _labels(groups: Sequence[Sequence[str]]) -> list[str]:
    """Name the runs of each group together: the words that their names begin with, or all names.

    >>> _labels([["fma", "fma-1"], ["ima-1", "ima-10"], ["a", "b"], ["swa-3"]])
    ['fma', 'ima', 'a+b', 'swa-3']
    """
    labels = []
    for names in groups:
        words = [re.split(r"([-_. ])", name) for name in names]
        shared = []
        for parts in zip(*words, strict=False):
            if len(set(parts)) > 1:
                break
            shared.append(parts[0])
        short = "".join(shared).rstrip("-_. ")
        labels.append(short or "+".join(names))
    twice = {label for label in labels if labels.count(label) > 1}
    return ["+".join(names) if label in twice else label for label, names in zip(labels, groups, strict=True)]
