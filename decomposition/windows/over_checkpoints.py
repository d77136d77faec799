"""Windows and weightings of checkpoints, prepared: the clients of one round, which are read once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, fit_file_name, one, slug
from ...analysis.execution import Execution
from ...analysis.runs import Rounds, RunLike, identity, one_round, resolve_runs, rounds_text
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Round, Run, recorded_matrix
from ...training.inputs.samples import (
    averaged_statistics,
    dataset_of,
    describe_samples,
    given_settings,
    limit_samples,
    module_for,
)
from .checkpoint_result import CheckpointWindows
from .result import WindowMeans
from .weightings import weightings_of, windows_over


def windows_of_checkpoints(
    runs: RunLike | Sequence[RunLike],
    windows: str | Sequence[int | str] | None,
    weights: str | Sequence[str] | None,
    rounds: Rounds,
    source: EvaluationConfig,
) -> PreparedAnalysis[WindowMeans | CheckpointWindows]:
    """Prepare what means of the last checkpoints gain; see :func:`~fedscope.decomposition.windows.analysis.wima`.

    Raises:
        FedscopeError: several runs; no round; a single checkpoint; a window or weighting that is none.
    """
    weightings = weightings_of(weights)
    run, round_ = checkpoints_in(runs, rounds)
    p = np.asarray(round_.weights, np.float64)
    count, where = int(np.count_nonzero(p)), f"{run.path}@{round_.number}"
    if count < 2:
        raise FedscopeError(f"{where} has one checkpoint, so there is nothing to average; {run.larger_cohorts}")
    lengths = windows_over(windows, count, where)

    def prepare() -> SettingsAndCompute[WindowMeans | CheckpointWindows]:
        from .checkpoint_means import averages_of, measure_means

        dataset = dataset_of([run], source)
        # a split is the data's own: checkpoints of one training have no clients with shares of it
        samples, module = limit_samples(dataset, source), module_for(run, source, dataset)
        known: dict[str, Any] = {
            "run": identity(run),
            "round": round_.number,
            "checkpoints": count,
            "windows": list(lengths),
            "weights": list(map(str, weightings)),
            **given_settings([run], source),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": source.precision,
        }

        def compute(attrs: dict[str, Any], work: Execution) -> CheckpointWindows:
            averages = averages_of(p, lengths, weightings)
            # read after the module, in whose order the run's tensors are taken
            there = recorded_matrix(run.round(round_.number))
            with work.progress("checkpoints") as report:
                means = measure_means(module, samples, there, averages, source.compute, round_.number, report)
            return CheckpointWindows(means, {**attrs, **averaged_statistics([run])})

        return known, compute

    words = ["wima-checkpoints", source.split, str(round_.number)]
    words += ["-".join(map(str, lengths))] if windows else []
    words += ["-".join(map(str, weightings))] if weights else []
    kind: type[WindowMeans | CheckpointWindows] = CheckpointWindows
    return one(kind, run.path / "figures", fit_file_name(slug("-".join(words))), prepare)


def checkpoints_in(runs: RunLike | Sequence[RunLike], rounds: Rounds) -> tuple[Run, Round]:
    """Return the run and the round whose clients are the checkpoints: that of RUN@ROUND, or the only one of a run.

    Raises:
        FedscopeError: several runs; a folder of files; several rounds, and none is named.
    """
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if len(given) != 1:
        raise FedscopeError(f"--checkpoints takes one run, but got {len(given)} runs; ask for each alone")
    (run,) = given
    folder = Path("" if isinstance(run, Run) else str(run))
    if not isinstance(run, Run) and folder.is_dir() and not (folder / "run.json").exists():
        raise FedscopeError(
            f"{folder} is no run; make one of its files: fedscope import {folder} --out runs/{folder.name}, then "
            f"fedscope wima runs/{folder.name}@1 --checkpoints"
        )
    if rounds is not None or (not isinstance(run, Run) and "@" in str(run) and not folder.exists()):
        return one_round(run, rounds)
    (opened,), _ = resolve_runs(run, None)
    if len(opened.rounds) != 1:
        raise FedscopeError(
            f"{opened.path} has {len(opened.rounds)} rounds, and --checkpoints averages the clients of one; give "
            f"{opened.path}@ROUND"
        )
    return one_round(opened, rounds_text(opened.rounds[0]))
