"""About how long a sweep takes here, and how much room."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from ..build import build_module, data_to_train_on, model_info, split_dataset
from ..config.config import Config
from ..data.dataset import Dataset
from ..local.resources import disk_needed
from ..loop.train import train
from ..rng import cohort_size
from ..tasks import resolve_task
from .plan import Plan

#: mini-batches of each client that a trial takes
TRIED = 4


@dataclass(frozen=True)
class Estimate:
    """The time and disk space that a sweep takes.

    Attributes:
        seconds: of training and testing, on this machine as it is loaded now; bytes: of what is recorded, at most.
    """

    seconds: float
    bytes: int


def estimate(
    plan: Plan,
    there: Mapping[str, int | None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Train a few steps of each kind of run, and count: seconds a step times steps, and rounds times a test.

    A kind is a data set, a model, a client and a server with their settings. Recording is not counted in the time, nor
    are tests of all clients on their own test parts.

    Args:
        there: of each run the last round that is recorded already.

    Raises:
        FedscopeError: data that are not there; what training refuses.
    """
    kinds = {_kind(run.config) for run in plan.runs}
    tried: dict[str, tuple[float, float]] = {}
    loaded: dict[str, Dataset] = {}
    steps: dict[str, float] = {}
    seconds, size = 0.0, 0
    for run in plan.runs:
        config, task = resolve_task(run.config, None)
        if config.data.name not in loaded:
            loaded[config.data.name] = data_to_train_on(config.data.name, task)
        data = loaded[config.data.name]
        place = json.dumps([config.data.table(), config.client.batch])
        if place not in steps:
            sizes = [len(part) for part in split_dataset(config, data)[1].clients]
            steps[place] = float(np.mean(np.ceil(np.array(sizes) / config.client.batch)))
        if _kind(config) not in tried:
            tried[_kind(config)] = _trial(config, len(data.y_train))
            if progress is not None:
                progress(len(tried), len(kinds))
        step, test = tried[_kind(config)]
        begun = max(run.after[1] if run.after else 0, (there or {}).get(run.name) or 0)
        cohort = cohort_size(config.data.clients, config.run.participation)
        one = steps[place] * config.client.epochs * cohort * step + test / config.run.evaluate_every
        seconds += one * (config.run.rounds - begun)
        module = build_module(config.model.architecture, data.shape, data.classes)
        size += disk_needed(config, model_info(config, module, data.classes, data.task), after=begun)
    return Estimate(seconds, size)


def _kind(config: Config) -> str:
    tables = config.tables()
    return json.dumps([config.data.name, *(tables[section] for section in ("model", "client", "server"))])


def _trial(config: Config, samples: int) -> tuple[float, float]:
    """Seconds of a step, with all workers at work, and of a test of the models after a round."""
    share = min(config.data.share, TRIED * config.client.batch * config.data.clients / samples)
    small = replace(
        config,
        client=replace(config.client, epochs=1),
        average=Config.read({}).average,
        run=replace(config.run, rounds=3, evaluate_every=3, evaluate_all="none"),
        record=replace(config.record, clients="none", globals="last:1"),
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = train(replace(small, data=replace(config.data, share=share)), Path(folder, "trial"), force=True)
        except FedscopeError:  # of a partition that needs all samples
            run = train(small, Path(folder, "whole"), force=True)
        taken = [float(run.round(t).metrics["seconds"] or 0) for t in (2, 3)]
        assert run.partition is not None, "just made"
        ids = run.round(2).client_ids
        count = sum(-(-len(run.partition.clients[int(k)]) // config.client.batch) for k in ids)
    return taken[0] / count, max(0.0, taken[1] - taken[0])
