"""Checks that a recorded run is measured on what its loop had: one recorded ``test_error`` against the measured one.

Every question that measures a run gets its data from :func:`~.samples.dataset_of` or
:func:`~.models.resolve_models`, and both call :func:`compare_recorded`: nothing is measured on
data that were not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Layout, Run, Weights, real_path
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.recorded_error import ErrorCheck, check_once, errors_differ, format_error
from .any_model import rounds_with_models
from .behaviour import behaviour, task_means
from .explain_error import (
    MODELS,
    RecordedModels,
    RecordedNumbers,
    find_explanation,
    in_order,
    read_in_order,
    recorded_numbers,
)
from .recorded_data import dataset_asked, refuse_unlike, says_scale
from .trained_network import compare_network

if TYPE_CHECKING:
    from torch import nn

    from .. import Dataset

#: outcomes of this process, for folders that cannot be written: by the run's folder and the outcome's key
_SEEN: dict[tuple[str, str], ErrorCheck] = {}
#: runs whose scale was looked at in this process, by folder and data
_FITTING: set[tuple[str, str]] = set()
#: losses differ where they do by this share, and by this much
_SHARE, _LEAST = 0.02, 1e-3


def compare_recorded(
    runs: Sequence[Run], source: EvaluationConfig, dataset: Dataset, module_of: Callable[[Run], nn.Module]
) -> dict[str, Any]:
    """Make sure that recorded runs are measured on what their loops had, and trained ones with their own network.

    Args:
        dataset: on which they are to be measured.
        module_of: gives a run's architecture.

    Returns:
        What a result's provenance says of it: ``data_accepted`` where a difference was accepted, and
        ``recorded_numbers`` where something else is to be known.

    Raises:
        FedscopeError: a recorded error that is not the measured one, other data than were recorded, another network
            than was trained; says how to go on.
    """
    foreign = [run for run in runs if run.is_foreign]
    accepted = [said] if (said := refuse_unlike(foreign, source, dataset)) else []
    notes = []
    for run in foreign:
        outcome = _outcome(run, source, dataset, module_of)
        if outcome is None:
            _check_scale(run, source, dataset, module_of)
            continue
        if outcome.differs:
            if not source.accept_data:
                raise FedscopeError(_refusal(run, outcome))
            accepted.append(f"{run.name}: {outcome.sentence()}")
        elif note := _note(outcome):
            notes.append(f"{run.name}: {note}")
    for run in (run for run in runs if not run.is_foreign):
        said, differs = compare_network(run, source, dataset, module_of, partial(_key_in, run))
        if said:
            (accepted if differs else notes).append(said)
    return {
        **({"data_accepted": "; ".join(accepted)} if accepted else {}),
        **({"recorded_numbers": "; ".join(notes)} if notes else {}),
    }


def _check_scale(run: Run, source: EvaluationConfig, dataset: Dataset, module_of: Callable[[Run], nn.Module]) -> None:
    """Of a run that says neither an error nor a scale, ask whether its last model answers better in the other one."""
    from .fitting_scale import refuse_misfit

    key = str(real_path(run.path)), f"{dataset.sha256} {bool(dataset.means)}"
    if key in _FITTING or says_scale(run):
        return
    given: dict[str, Weights] = {}
    for round_ in islice(rounds_with_models(run), 1):
        given |= {f"{round_.label}/{name}": round_.read(name) for name in MODELS if name in round_.models}
        if round_.has_clients:  # a mean of networks trained apart says nothing
            given[f"{round_.label}/client-{round_.client_ids[0]}"] = round_.client(int(round_.client_ids[0]))
    module = module_of(run) if given else None
    if module is None:
        return
    models = [(name, in_order(weights, Layout.of(module))) for name, weights in given.items()]
    # what does not fit, whoever reads the models says
    refuse_misfit(module, dataset, [(name, weights) for name, weights in models if weights is not None], source)
    _FITTING.add(key)


def _outcome(
    run: Run, source: EvaluationConfig, dataset: Dataset, module_of: Callable[[Run], nn.Module]
) -> ErrorCheck | None:
    """Measured once, and kept in the run; None where nothing was recorded."""
    first = next(recorded_numbers(run), None)
    if first is None:
        return None
    module = module_of(run)
    weights = read_in_order(run, first.round, first.model, Layout.of(module))
    if weights is None:  # it does not fit, which whoever reads the models says
        return None
    key = _key(first, weights, module, dataset)

    def measure() -> ErrorCheck:
        outcome = _measure_model(run, source, dataset, module, first)
        if not outcome.differs and (note := _note(outcome)):
            warn_user(f"{run.path}: {note}")
        return outcome

    return check_once(run.path, key, _SEEN, measure)


def _key_in(run: Run, recorded: RecordedNumbers, module: nn.Module, dataset: Dataset) -> str | None:
    weights = read_in_order(run, recorded.round, recorded.model, Layout.of(module))
    return None if weights is None else _key(recorded, weights, module, dataset)


def _key(recorded: RecordedNumbers, weights: Weights, module: nn.Module, dataset: Dataset) -> str:
    """All that an outcome depends on: the model, its numbers, the data in their scale, and what code answers."""
    from ...evaluation.resumable import digest
    from ...evaluation.standard_tasks import is_own_task

    samples = dataset.samples("test")
    answers = behaviour(module, samples, weights) or []
    means = task_means(module, samples, weights) if is_own_task(dataset.task) else None
    told = {
        "model": [recorded.round, recorded.model, repr(recorded.error), repr(recorded.loss), digest(weights)],
        "data": [dataset.name, dataset.sha256, len(dataset.y_test), [f"{mean:.6g}" for mean in dataset.means]],
        "task": dataset.task.name,
        "answers": [f"{value:.2e}" for value in answers],
        **({"task_means": [f"{mean:.2e}" for mean in means]} if means else {}),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _measure_model(
    run: Run, source: EvaluationConfig, dataset: Dataset, module: nn.Module, first: RecordedNumbers
) -> ErrorCheck:
    """One model on the whole test split, and what explains that its error is another."""
    measuring = RecordedModels(run, module, dataset, source)
    loss, error = measuring.of(first.round, first.model)
    outcome = first.check(loss, error, dataset)
    if not outcome.differs and not _loss_is_far(first.loss, loss):
        return outcome
    with suppress(FedscopeError):
        flipped = replace(source, standardise=not dataset.means)
        other = dataset_asked([run], flipped, dataset.task)
        if bool(other.means) != bool(dataset.means):
            other_loss, found = RecordedModels(run, module, other, source).of(first.round, first.model)
            fits = not errors_differ(first.error, found, outcome.samples)
            if fits and (outcome.differs or not _loss_is_far(first.loss, other_loss)):
                how = "standardised by the training split" if other.means else "taken as they are"
                give = "--standardise (standardise=True)" if other.means else "--no-standardise (standardise=False)"
                has = format_error(found) if outcome.differs else f"a loss of {other_loss:.4g}"
                return replace(outcome, hint=f"{how} it has {has}: give {give}")
    if not outcome.differs:
        return outcome
    words, sure = find_explanation(measuring, first)
    return replace(outcome, explained=words) if sure else replace(outcome, hint=words)


def _refusal(run: Run, outcome: ErrorCheck) -> str:
    """Both numbers, and the likely reasons."""
    reasons = outcome.hint
    if not reasons or reasons.startswith("it is"):
        seen = f" (or {reasons}, which one round alone does not show)" if reasons else ""
        reasons = (
            "likely these are not the samples that the loop measured on, or it had them in another scale (uint8 is "
            f"divided by 255 here): give its own with --data (data=){seen}; or its number is of another model, of part "
            "of the samples, or of training mode"
        )
    return (
        f"{run.path}: {outcome.sentence()}; {reasons}; --accept-data (accept_data=True) goes on and says so in every "
        "result"
    )


def _note(outcome: ErrorCheck) -> str:
    """Describe what is to be known of numbers that are right."""
    if outcome.explained:
        return f"{outcome.sentence()}: {outcome.explained}"
    if not _loss_is_far(outcome.recorded_loss, outcome.loss):
        return ""
    why = outcome.hint or "means of batches, smoothing, half precision and another loss differ rightly"
    return (
        f"test_loss of round {outcome.round} was recorded as {outcome.recorded_loss:.4g}, and {outcome.model} has "
        f"{outcome.loss:.4g} on all {outcome.samples:,} test samples of {outcome.data} ({why})"
    )


def _loss_is_far(recorded: float, measured: float) -> bool:
    """Check whether two losses differ by more than they are rounded; not where one is missing."""
    return abs(recorded - measured) > max(_LEAST, _SHARE * abs(recorded))
