"""Checks that a recorded run is measured on what its loop had: one recorded ``test_error`` against the measured one.

Every question that measures a recorded run gets its data from :func:`~.samples.dataset_of` or
:func:`~.models.resolve_models`, and both call :func:`compare_recorded`: nothing is measured on
data that were not compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, FedscopeWarning, Layout, Run, Weights, real_path
from ...checkpoints.runs.recorded_error import ErrorCheck, errors_differ, format_error, store_check, stored_checks
from .any_model import rounds_with_models
from .behaviour import behaviour
from .recorded_data import dataset_asked, refuse_unlike, says_scale

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from ...evaluation.samples import Samples
    from .. import Dataset

#: outcomes of this process, for folders that cannot be written: by the run's folder and the outcome's key
_SEEN: dict[tuple[str, str], ErrorCheck] = {}
#: runs whose scale was looked at in this process, by folder and data
_FITTING: set[tuple[str, str]] = set()
#: losses differ where they do by this share, and by this much
_SHARE, _LEAST = 0.02, 1e-3
#: sizes of batches whose means a loop may have averaged
BATCHES = sorted(
    {2**i for i in range(11)} | {10 * i for i in range(1, 11)} | {150, 200, 250, 300, 400, 500, 1000, 2000}
)
#: clients whose errors are measured to explain a difference, at most
CLIENTS = 100

_MODELS = {"global": ("test_error", "test_loss"), "averaged": ("averaged_test_error", "averaged_test_loss")}


@dataclass(frozen=True)
class RecordedNumbers:
    """The numbers of ``metrics.csv`` for a model that the run holds; NaN where it has none."""

    round: int
    model: str
    error: float
    loss: float


def compare_recorded(
    runs: Sequence[Run], source: EvaluationConfig, dataset: Dataset, module_of: Callable[[Run], nn.Module]
) -> dict[str, Any]:
    """Make sure that recorded runs are measured on what their loops had.

    Args:
        dataset: on which they are to be measured.
        module_of: gives a run's architecture.

    Returns:
        What a result's provenance says of it: ``data_accepted`` where a difference was accepted, and
        ``recorded_numbers`` where something else is to be known.

    Raises:
        FedscopeError: a recorded error that is not the measured one, other data than were recorded; says how to go on.
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
        given |= {f"{round_.label}/{name}": round_.read(name) for name in _MODELS if name in round_.models}
        if round_.has_clients:  # a mean of networks trained apart says nothing
            given[f"{round_.label}/client-{round_.client_ids[0]}"] = round_.client(int(round_.client_ids[0]))
    module = module_of(run) if given else None
    if module is None:
        return
    models = [(name, _in_order(weights, Layout.of(module))) for name, weights in given.items()]
    # what does not fit, whoever reads the models says
    refuse_misfit(module, dataset, [(name, weights) for name, weights in models if weights is not None], source)
    _FITTING.add(key)


def recorded_numbers(run: Run) -> Iterator[RecordedNumbers]:
    """Of which models of a run something was recorded, the last round first; those with an error before others.

    Nothing of a run without ``metrics.csv``; rows that it lacks are taken from the rounds. What was measured afterwards
    (``fedscope measure``) was not recorded.
    """
    if not (run.path / "metrics.csv").exists():
        return
    rows = run.recorded_rows()

    @cache
    def numbers(t: int) -> Any:
        return rows[t] if t in rows else run.round(t).metrics

    for column in (0, 1):
        for model, names in _MODELS.items():
            for t in reversed(run.rounds):
                values = [float(value) if (value := numbers(t).get(name)) is not None else math.nan for name in names]
                known = math.isfinite(values[column]) and (column == 0 or not math.isfinite(values[0]))
                if known and model in run.round(t).models:
                    yield RecordedNumbers(t, model, *values)


def _outcome(
    run: Run, source: EvaluationConfig, dataset: Dataset, module_of: Callable[[Run], nn.Module]
) -> ErrorCheck | None:
    """Measured once, and kept in the run; None where nothing was recorded."""
    first = next(recorded_numbers(run), None)
    if first is None:
        return None
    module = module_of(run)
    weights = _read(run, first.round, first.model, Layout.of(module))
    if weights is None:  # it does not fit, which whoever reads the models says
        return None
    key = _key(first, weights, module, dataset)
    place = str(real_path(run.path))
    kept = stored_checks(run.path).get(key)
    outcome = kept or _SEEN.get((place, key))
    if outcome is None:
        outcome = _measure_model(run, source, dataset, module, first)
        if not outcome.differs and (note := _note(outcome)):
            warnings.warn(f"{run.path}: {note}", FedscopeWarning, stacklevel=2)
    if kept is None:
        store_check(run.path, key, outcome)
    _SEEN[place, key] = outcome
    return outcome


def _key(recorded: RecordedNumbers, weights: Weights, module: nn.Module, dataset: Dataset) -> str:
    """All that an outcome depends on: the model, its numbers, the data in their scale, and what code answers."""
    from ...evaluation.resumable import digest

    answers = behaviour(module, dataset.samples("test"), weights) or []
    told = {
        "model": [recorded.round, recorded.model, repr(recorded.error), repr(recorded.loss), digest(weights)],
        "data": [dataset.name, dataset.sha256, len(dataset.y_test), [f"{mean:.6g}" for mean in dataset.means]],
        "task": dataset.task.name,
        "answers": [f"{value:.2e}" for value in answers],
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _read(run: Run, t: int, model: str, layout: Layout) -> Weights | None:
    """A model in the order of an architecture; None where it has other tensors, or was not recorded."""
    if model not in run.round(t).models:
        return None
    weights = run.round(t).read(model)
    return _in_order(weights, layout)


def _in_order(weights: Weights, layout: Layout) -> Weights | None:
    own = weights.layout.as_in(layout)
    return None if layout.difference(own) else own.flatten(weights.arrays())


@dataclass
class RecordedModels:
    """A run's models on one test split; what was measured is not measured again."""

    run: Run
    module: nn.Module
    dataset: Dataset
    source: EvaluationConfig
    done: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def layout(self) -> Layout:
        """Of the architecture."""
        return Layout.of(self.module)

    @property
    def samples(self) -> Samples:
        """All of the test split."""
        return self.dataset.samples("test")

    def evaluated(self, models: Sequence[Weights], precision: str = "float32") -> np.ndarray:
        """Loss and error, [2, models]."""
        import numpy as np

        from ...evaluation.device import Compute
        from ...evaluation.evaluator import Evaluator

        evaluator = Evaluator(self.module, self.samples, compute=Compute(self.source.device, precision))
        return np.array(evaluator.models(list(models)))

    def of(self, t: int, model: str) -> tuple[float, float]:
        """Loss and error of a model of a round; NaN where there is none."""
        if (t, model) not in self.done:
            weights = _read(self.run, t, model, self.layout)
            loss, error = (math.nan, math.nan) if weights is None else map(float, self.evaluated([weights])[:, 0])
            self.done[t, model] = loss, error
        return self.done[t, model]

    def error(self, t: int, model: str) -> float:
        """Its error alone."""
        return self.of(t, model)[1]

    def clients(self, t: int, *, weighted: bool) -> float:
        """Return the mean error of a round's clients; NaN where they were not recorded, or are many."""
        import numpy as np

        round_ = self.run.round(t)
        if not round_.has_clients or len(round_.client_ids) > CLIENTS:
            return math.nan
        rows = round_.clients()
        models = [_in_order(rows.row(i), self.layout) for i in range(len(round_.client_ids))]
        errors = self.evaluated([model for model in models if model is not None])[1]
        return float(np.average(errors, weights=round_.weights if weighted else None))

    def in_half(self, t: int, model: str) -> float:
        """Its error as computed in bfloat16; NaN of a run that keeps no halves."""
        weights = _read(self.run, t, model, self.layout)
        if weights is None or not any(entry.stored for entry in self.run.layout.entries):
            return math.nan
        return float(self.evaluated([weights], "bf16")[1, 0])

    def batch_of(self, recorded: RecordedNumbers) -> int | None:
        """Return the size of the batches whose mean errors have the recorded number as their mean; None where none
        has."""
        import numpy as np
        import torch

        weights = _read(self.run, recorded.round, recorded.model, self.layout)
        count = len(self.samples)
        if weights is None or abs(recorded.error * count - round(recorded.error * count)) < 1e-3:
            return None
        from ...evaluation.device import Compute
        from ...evaluation.evaluator import Evaluator

        evaluator = Evaluator(self.module, self.samples, compute=Compute(self.source.device, "float32"))
        outputs = torch.cat([evaluator.logits([weights], slice(i, i + 1000))[0] for i in range(0, count, 1000)])
        errors = self.dataset.task.error(outputs, self.samples.y)
        if errors is None or errors.shape != (count,) or self.dataset.task.weights(self.samples.y) is not None:
            return None
        wrong = errors.double().numpy()
        for size in BATCHES:
            if size < count:
                mean = np.mean([wrong[start : start + size].mean() for start in range(0, count, size)])
                if abs(mean - recorded.error) < 2e-6:
                    return size
        return None


def _measure_model(
    run: Run, source: EvaluationConfig, dataset: Dataset, module: nn.Module, first: RecordedNumbers
) -> ErrorCheck:
    """One model on the whole test split, and what explains that its error is another."""
    measuring = RecordedModels(run, module, dataset, source)
    loss, error = measuring.of(first.round, first.model)
    outcome = ErrorCheck(
        first.round,
        first.model,
        first.error,
        first.loss,
        error,
        loss,
        len(dataset.y_test),
        dataset.name,
        bool(dataset.means),
    )
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
    words, sure = _sign(measuring, first)
    return replace(outcome, explained=words) if sure else replace(outcome, hint=words)


def _sign(measuring: RecordedModels, first: RecordedNumbers) -> tuple[str, bool]:
    """Find what explains a recorded error, and whether that is sure: it holds in two rounds, or cannot be by chance."""
    samples = len(measuring.samples)
    if (size := measuring.batch_of(first)) is not None:
        return f"it is the mean of the errors of batches of {size}", True
    model = first.model
    error = measuring.error(first.round, model)
    alike = [one for one in recorded_numbers(measuring.run) if one.model == model and math.isfinite(one.error)]
    percent = any(one.error > 1 for one in alike)  # the last rounds may well be below 1 %
    if percent and not errors_differ(first.error / 100, error, samples):
        return "it was recorded in per cent; give a share, from 0 to 1", True
    picks = [first, *(alike[len(alike) // 2 :][:1] if len(alike) > 1 else [])]

    def agreeing(fits: Callable[[RecordedNumbers], bool]) -> int:
        """In how many of the rounds it fits, the last one first."""
        return next((count for count, pick in enumerate(picks) if not fits(pick)), len(picks))

    def exactly(made: Callable[[RecordedNumbers], float]) -> Callable[[RecordedNumbers], bool]:
        """Check whether it is the very number of samples."""
        return lambda one: bool(abs(made(one) - one.error) * samples <= 0.5 + 1e-4 * samples)

    def about(
        made: Callable[[RecordedNumbers], float], places: int | None = None, whole: int = 1
    ) -> Callable[[RecordedNumbers], bool]:
        """Check whether it is that number, or as many samples away from it as any error may be, or rounded to
        places."""
        if places is not None and not all(_is_rounded(one.error / whole, places) for one in alike):
            return lambda one: False
        half = 0.0 if places is None else 0.5 * 10.0**-places + 1e-6

        def fits(one: RecordedNumbers) -> bool:
            away = abs(made(one) - one.error / whole)
            same = not errors_differ(one.error / whole, made(one), samples)
            return bool(away <= half or same) and math.isfinite(away)

        return fits

    def right(one: RecordedNumbers) -> float:
        return 1 - measuring.error(one.round, model)

    def wrong(one: RecordedNumbers) -> float:
        return measuring.error(one.round, model)

    accuracy, in_percent = "it is the accuracy; give the share of wrong answers", "it is the accuracy in per cent"
    signs: tuple[tuple[str, Callable[[RecordedNumbers], bool]], ...] = (
        (accuracy, about(right)),
        (accuracy, about(right, 2)),
        (in_percent, about(right, whole=100)),
        (in_percent, about(right, 2, 100)),
        ("it was rounded to two decimals", about(wrong, 2)),
        ("it was recorded in per cent, without decimals; give a share, from 0 to 1", about(wrong, 2, 100)),
        (
            "it is the error of the round's start, measured before averaging",
            exactly(lambda one: measuring.error(one.round, "start")),
        ),
        (
            "it is the weighted mean of the clients' errors",
            exactly(lambda one: measuring.clients(one.round, weighted=True)),
        ),
        ("it is the mean of the clients' errors", exactly(lambda one: measuring.clients(one.round, weighted=False))),
        (
            "it is the error in bfloat16, in which the run's models are",
            exactly(lambda one: measuring.in_half(one.round, model)),
        ),
    )
    seen = ""
    for words, fits in signs:
        count = agreeing(fits)
        if count == 2:
            return words, True
        seen = seen or (words if count else "")
    return seen, False


def _is_rounded(value: float, places: int) -> bool:
    """Check whether a number has no more decimals than that.

    >>> _is_rounded(0.19, 2), _is_rounded(0.186, 2)
    (True, False)
    """
    return abs(value - round(value, places)) < 1e-9


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
