"""Windows and weightings of checkpoints, prepared: clients of one round or files of a folder, each read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, fit_file_name, single_result, slug
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, rounds_text
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, as_runs, one_round, resolve_runs
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Round, Run, Weights, real_path, recorded_matrix
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import about_adapters
from ...checkpoints.recorder.file_order import refuse_recorded_order
from ...evaluation.device import precision_of
from ...training.inputs.samples import (
    averaged_buffers,
    averaged_statistics,
    dataset_of,
    describe_samples,
    given_settings,
    limit_samples,
    module_for,
)
from .checkpoint_files import CheckpointFolder, find_checkpoints, is_checkpoint_folder
from .checkpoint_result import CheckpointMean, CheckpointWindows, copy_words
from .result import WindowMeans
from .weightings import Weighting, weightings_of, windows_over


def windows_of_checkpoints(
    runs: RunLike | Sequence[RunLike],
    windows: str | Sequence[int | str] | None,
    weights: str | Sequence[str] | None,
    rounds: Rounds,
    source: EvaluationConfig,
) -> PreparedAnalysis[WindowMeans | CheckpointWindows]:
    """Prepare what means of the last checkpoints gain; see :func:`~fedscope.decomposition.windows.analysis.wima`.

    Raises:
        FedscopeError: several runs; no round; a single checkpoint; a window or weighting that is none; clients that
            were imported from a list which was sorted as text.
    """
    weightings = weightings_of(weights)
    if (folder := folder_in(runs)) is not None:
        if rounds is not None:
            raise FedscopeError(
                f"--rounds {rounds_text(rounds)} is of a run, but {folder} is a folder of checkpoints; leave it out"
            )
        return _of_folder(find_checkpoints(folder), windows, (weights, weightings), source)
    run, round_ = checkpoints_in(runs, rounds)
    p = np.asarray(round_.weights, np.float64)
    count, where = int(np.count_nonzero(p)), f"{run.path}@{round_.number}"
    if count < 2:
        raise FedscopeError(f"{where} has one checkpoint, so there is nothing to average; {run.larger_cohorts}")
    lengths = windows_over(windows, count, where)
    refuse_recorded_order(run.info.get("imported"), round_.number, where, "--checkpoints")

    def prepare() -> SettingsAndCompute[WindowMeans | CheckpointWindows]:
        from .checkpoint_means import averages_of, measure_means

        dataset = dataset_of([run], source)
        # a split is the data's own: checkpoints of one training have no clients with shares of it
        samples, module = limit_samples(dataset, source), module_for(run, source, dataset)
        known: dict[str, Any] = {
            "run": identity(run, [round_.number]),
            "round": round_.number,
            "checkpoints": count,
            "windows": list(lengths),
            "weights": list(map(str, weightings)),
            **given_settings([run], source, module=module),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": precision_of(module, source.precision),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> CheckpointWindows:
            averages = averages_of(p, lengths, weightings)
            # read after the module, in whose order the run's tensors are taken
            there = recorded_matrix(run.round(round_.number))
            with work.progress("checkpoints") as report:
                means = measure_means(module, samples, there, averages, source.compute, round_.number, report)
            names = [f"client-{k}" for k in run.round(round_.number).client_ids]
            return CheckpointWindows(means, {**attrs, **_diverged(means, there, names), **averaged_statistics([run])})

        return known, compute

    words = [source.split, str(round_.number)]
    return _question(run.path / "figures", words, (windows, lengths), (weights, weightings), prepare)


def _of_folder(
    folder: CheckpointFolder,
    windows: str | Sequence[int | str] | None,
    weights: tuple[object, Sequence[Weighting]],
    source: EvaluationConfig,
) -> PreparedAnalysis[WindowMeans | CheckpointWindows]:
    """Prepare the same of the checkpoints in a folder of files, which all weigh the same."""
    count = len(folder.names)
    lengths = windows_over(windows, count, str(folder.path))

    def prepare() -> SettingsAndCompute[WindowMeans | CheckpointWindows]:
        from ...training.inputs.models import resolve_models
        from .checkpoint_files import RowDigests, copies_in, read_checkpoints
        from .checkpoint_means import averages_of, measure_means

        # the newest says the network and how it is measured; the others are read when the means are formed
        resolved = resolve_models(folder.addresses[-1:], source)
        of_one = ("addresses", "models_sha256", "run")
        known: dict[str, Any] = {
            "folder": str(folder.path if folder.path.name else real_path(folder.path)),
            "names": list(folder.names),
            "files": folder.states(),
            **({"left_out": list(folder.beside)} if folder.beside else {}),
            "checkpoints": count,
            "windows": list(lengths),
            "weights": list(map(str, weights[1])),
            **{name: value for name, value in resolved.settings.items() if name not in of_one},
        }
        layout = resolved.models[0].weights.layout
        if about := about_adapters(layout.names):
            warn_user(f"{folder.path}: {about}")

        def compute(attrs: dict[str, Any], work: Execution) -> CheckpointWindows:
            averages = averages_of(np.full(count, 1 / count), lengths, weights[1])
            with work.progress("checkpoints") as report:
                # a third for the files
                there = read_checkpoints(resolved, folder, lambda done, of: report(done, 3 * of))
                digests = RowDigests(count)
                means = measure_means(
                    resolved.module,
                    resolved.samples,
                    there,
                    averages,
                    source.compute,
                    1,
                    lambda done, of: report(of + 2 * done, 3 * of),
                    look=digests.add,
                )
            sums = digests.texts()
            said = {"xxh3": dict(zip(folder.names, sums, strict=True)), **averaged_buffers(layout)}
            if same := copies_in(folder.names, sums, there.buffers):
                said["copies"] = same
                warn_user(
                    f"{folder.path}: {copy_words(same)}, so means count one model several times; keep one of its files"
                )
            return CheckpointWindows(means, {**attrs, **_diverged(means, there, folder.names), **said})

        return known, compute

    words = [source.split, real_path(folder.path).name]
    return _question(Path("figures"), words, (windows, lengths), weights, prepare)


def _diverged(means: Sequence[CheckpointMean], checkpoints: Weights, names: Sequence[str]) -> dict[str, Any]:
    """Name the checkpoints that are not finite, where a mean has no loss; only then are they looked through."""
    from ..draws.divergence import diverged_rows

    if not any(isnan(one.loss) for one in means):
        return {}
    broken = [name for name, own in zip(names, diverged_rows(checkpoints), strict=True) if own]
    return {"diverged": broken} if broken else {}


def _question(
    place: Path,
    words: list[str],
    windows: tuple[object, Sequence[int]],
    weights: tuple[object, Sequence[Weighting]],
    prepare: Callable[[], SettingsAndCompute[WindowMeans | CheckpointWindows]],
) -> PreparedAnalysis[WindowMeans | CheckpointWindows]:
    """Return the question, whose file is named after what was asked for: ``windows`` and ``weights`` as they were given
    and as they are."""
    words = ["wima-checkpoints", *words]
    words += ["-".join(map(str, windows[1]))] if windows[0] else []
    words += ["-".join(map(str, weights[1]))] if weights[0] else []
    kind: type[WindowMeans | CheckpointWindows] = CheckpointWindows
    return single_result(kind, place, fit_file_name(slug("-".join(words))), prepare)


def folder_in(runs: RunLike | Sequence[RunLike], *, sure: bool = True) -> Path | None:
    """Return the folder of files that was given; None where it is a run, or more than one was.

    Args:
        sure: whether checkpoints were asked for, or a network was given; else only a folder that has some is one.
    """
    given = as_runs(runs)
    if len(given) != 1 or isinstance(given[0], Run):
        return None
    folder = Path(given[0])
    if not folder.is_dir() or (folder / "run.json").exists():
        return None
    return folder if sure or is_checkpoint_folder(folder) else None


def refuse_files(given: Sequence[RunLike]) -> None:
    """Refuse files of models, whose folder is what is read.

    Raises:
        FedscopeError: names the first of them, and its folder.
    """
    file = next((Path(one) for one in given if not isinstance(one, Run) and Path(one).is_file()), None)
    if file is not None:
        raise FedscopeError(
            f"{file} is a file, but wima reads runs, or a folder of checkpoints; give their folder, {file.parent}"
        )


def checkpoints_in(runs: RunLike | Sequence[RunLike], rounds: Rounds) -> tuple[Run, Round]:
    """Return the run and the round whose clients are the checkpoints: that of RUN@ROUND, or the only one of a run.

    Raises:
        FedscopeError: several runs; several rounds, and none is named.
    """
    given = as_runs(runs)
    refuse_files(given)
    if len(given) != 1:
        raise FedscopeError(f"--checkpoints takes one run, but got {len(given)} runs; ask for each alone")
    (run,) = given
    folder = Path("" if isinstance(run, Run) else str(run))
    if rounds is not None or (not isinstance(run, Run) and "@" in str(run) and not folder.exists()):
        return one_round(run, rounds)
    (opened,), _ = resolve_runs(run, None)
    if len(opened.rounds) != 1:
        raise FedscopeError(
            f"{opened.path} has {len(opened.rounds)} rounds, and --checkpoints averages the clients of one; give "
            f"{opened.path}@ROUND"
        )
    return one_round(opened, rounds_text(opened.rounds[0]))
