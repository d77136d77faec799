"""About how long a sweep takes here, and how much room."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Run
from ..build import build_module, data_to_train_on, model_info, split_dataset
from ..config.config import Config
from ..data.dataset import Dataset
from ..local.resources import disk_needed
from ..loop.train import train
from ..rng import cohort_size
from ..tasks import resolve_task
from .costs import Costs, costs_at, fitted, sizes_to_try
from .plan import Plan, PlannedRun
from .schedule import rounds_before

#: mini-batches of each client in a round of a trial, if it has one epoch
TRIED = 2
#: epochs of a longer round: so many that it takes this many seconds, if they can be told from the rest of the machine
FEWEST, MOST, LONG = 4, 64, 0.5
#: seconds below which more rounds are timed, and how many
SHORT, MORE = 0.1, 8


@dataclass(frozen=True)
class Estimate:
    """The time and disk space that what is left of a sweep takes.

    Attributes:
        seconds: of training and testing, on this machine as it is loaded now; bytes: of what is recorded, at most.
        runs: how many are left; rounds: of these.
    """

    seconds: float
    bytes: int
    runs: int
    rounds: int


def estimate(
    plan: Plan,
    there: Mapping[str, int | None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Train a few steps of each kind of run that is left, and count: rounds, their steps and their tests.

    A kind is a data set, a model, a client and a server with their settings but for the sizes of numbers; of each a few
    sizes of cohorts are tried. Recording is not counted in the time, nor are tests of all clients on their own test
    parts.

    Args:
        there: of each run the last round that is recorded already.

    Raises:
        FedscopeError: data that are not there; what training refuses.
    """
    before = rounds_before(plan, there or dict.fromkeys(run.name for run in plan.runs))
    left = [run for run in plan.runs if before[run.name] < run.rounds]
    with contextlib.chdir(plan.directory or Path()):  # as where the runs are trained
        seconds, size = _estimate(left, before, progress)
    return Estimate(seconds, size, len(left), sum(run.rounds - before[run.name] for run in left))


def _estimate(
    left: list[PlannedRun], before: Mapping[str, int], progress: Callable[[int, int], None] | None
) -> tuple[float, int]:
    """Return the seconds and the bytes of runs that are left."""
    configs = {run.name: resolve_task(run.config, None) for run in left}
    sets: dict[str, Dataset] = {}
    for config, task in configs.values():
        if config.data.name not in sets:
            sets[config.data.name] = data_to_train_on(config.data.name, task)
    tried = _tried({name: config for name, (config, _) in configs.items()}, sets, progress)
    steps: dict[str, float] = {}
    seconds, size = 0.0, 0
    for run in left:
        config, _ = configs[run.name]
        data, begun = sets[config.data.name], before[run.name]
        place = json.dumps([config.data.table(), config.client.batch])
        if place not in steps:
            sizes = [len(part) for part in split_dataset(config, data)[1].clients]
            steps[place] = float(np.mean(np.ceil(np.array(sizes) / config.client.batch)))
        cohort, every = _cohort(config), config.run.evaluate_every
        tests = -(-run.rounds // every) - begun // every
        seconds += costs_at(tried[kind_of(config)], cohort).of(
            run.rounds - begun, steps[place] * config.client.epochs * cohort, tests
        )
        module = build_module(config.model.architecture, data.shape, data.classes)
        size += disk_needed(config, model_info(config, module, data.classes, data.task), after=begun)
    return seconds, size


def _tried(
    configs: Mapping[str, Config], sets: Mapping[str, Dataset], progress: Callable[[int, int], None] | None
) -> dict[str, dict[int, Costs]]:
    """Return of each kind the costs by the size of cohorts, of those that are tried.

    Of several configurations that would do one is taken that does not depend on their order.
    """
    kinds: dict[str, dict[int, Config]] = {}
    for config in sorted(configs.values(), key=lambda config: json.dumps(config.tables(), sort_keys=True)):
        kinds.setdefault(kind_of(config), {}).setdefault(_cohort(config), config)
    trials = [(kind, size, sized[size]) for kind, sized in kinds.items() for size in sizes_to_try(sized)]
    found: dict[str, dict[int, Costs]] = {}
    for done, (kind, size, config) in enumerate(trials, start=1):
        found.setdefault(kind, {})[size] = _trial(config, len(sets[config.data.name].y_train))
        if progress is not None:
            progress(done, len(trials))
    return found


def _cohort(config: Config) -> int:
    return cohort_size(config.data.clients, config.run.participation)


def kind_of(config: Config) -> str:
    """Return what a step's time depends on beside the cohort: not how many there are, and not how large a rate is.

    >>> one, other = (Config.read({"client": {"lr": lr, "epochs": 3}}) for lr in (0.1, 0.2))
    >>> kind_of(one) == kind_of(other), kind_of(one) == kind_of(Config.read({"client": {"batch": 5}}))
    (True, False)
    """
    tables = config.tables()
    del tables["client"]["epochs"]
    run = {key: tables["run"].get(key) for key in ("device", "engine", "precision", "evaluate_clients")}
    own = [_without_size(tables[section]) for section in ("model", "client", "server")]
    return json.dumps([config.data.name, config.data.augment, config.data.pool, run, *own], sort_keys=True)


def _without_size(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with fractions as 0 or not 0: momentum takes its time, however much it is."""
    return {key: value != 0 if isinstance(value, float) else value for key, value in table.items()}


def _trial(config: Config, samples: int) -> Costs:
    """Time rounds of few and of more steps, and a test of the models after a round."""
    share = min(config.data.share, TRIED * config.client.batch * config.data.clients / samples)
    small = replace(
        config,
        data=replace(config.data, share=share),
        client=replace(config.client, epochs=1),
        average=Config.read({}).average,
        run=replace(config.run, evaluate_all="none"),
        record=replace(config.record, clients="none", globals="last:1"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trial")
        try:
            few = _timed(small, path, 3)
        except FedscopeError:  # of a partition that needs all samples
            small = replace(small, data=config.data)
            few = _timed(small, path, 3)
        short, begin = few.seconds < SHORT, few.begin
        if short:
            few = _timed(small, path, MORE)
        epochs = min(max(FEWEST, math.ceil(LONG / max(few.seconds, LONG / MOST))), MOST)
        longer = replace(small, client=replace(config.client, epochs=epochs))
        try:
            many = _timed(longer, path, 4 if short else 2, tested=False)
        except FedscopeError:  # of a method that takes one epoch alone
            many = few
    round, step = fitted((few.steps, few.seconds), (many.steps, many.seconds))
    return Costs(min(begin, many.begin), round, step, few.test)


@dataclass(frozen=True)
class _Timed:
    """Of a trial the mean steps of a round and the median seconds, of its beginning and of a test."""

    steps: float
    seconds: float
    begin: float
    test: float


def _timed(config: Config, path: Path, rounds: int, *, tested: bool = True) -> _Timed:
    """Train some rounds, the last of which is followed by a test, and time those after the first."""
    planned = rounds if tested else rounds + 1
    config = replace(config, run=replace(config.run, rounds=planned, evaluate_every=planned))
    began = time.perf_counter()
    run = train(config, path, force=True, keep_going=True, until=rounds)
    whole = time.perf_counter() - began
    taken = [float(run.round(t).metrics["seconds"] or 0) for t in range(1, rounds + 1)]
    plain = taken[1:-1] if tested else taken[1:]
    seconds = float(np.median(plain))
    steps = np.mean([_steps(run, t, config.client.batch) for t in range(2, 2 + len(plain))]) * config.client.epochs
    return _Timed(float(steps), seconds, max(0.0, whole - sum(taken)), max(0.0, taken[-1] - seconds))


def _steps(run: Run, round: int, batch: int) -> int:
    """Count the steps of a round's cohort in one epoch."""
    assert run.partition is not None, "just made"
    return sum(-(-len(run.partition.clients[int(k)]) // batch) for k in run.round(round).client_ids)
