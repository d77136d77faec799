"""What explains that a loop recorded another error than its model has: its own numbers and models, and signs of what a
loop may have counted instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import Layout, Run, Weights
from ...checkpoints.runs.recorded_error import ErrorCheck, errors_differ

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from ...evaluation.samples import Samples
    from .. import Dataset

#: sizes of batches whose means a loop may have averaged
BATCHES = sorted(
    {2**i for i in range(11)} | {10 * i for i in range(1, 11)} | {150, 200, 250, 300, 400, 500, 1000, 2000}
)
#: clients whose errors are measured to explain a difference, at most
CLIENTS = 100

#: by the name of a model the columns of its error and its loss
MODELS = {"global": ("test_error", "test_loss"), "averaged": ("averaged_test_error", "averaged_test_loss")}


@dataclass(frozen=True)
class RecordedNumbers:
    """The numbers of ``metrics.csv`` for a model that the run holds; NaN where it has none."""

    round: int
    model: str
    error: float
    loss: float

    def check(self, loss: float, error: float, dataset: Dataset) -> ErrorCheck:
        """Compare them with the loss and the error that the model has on all of a test split."""
        return ErrorCheck(
            self.round,
            self.model,
            self.error,
            self.loss,
            error,
            loss,
            len(dataset.y_test),
            dataset.name,
            bool(dataset.means),
        )


#: a number that a round's error may be, and whether it is
Made = Callable[[RecordedNumbers], float]
Fits = Callable[[RecordedNumbers], bool]


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
        for model, names in MODELS.items():
            for t in reversed(run.rounds):
                values = [float(value) if (value := numbers(t).get(name)) is not None else math.nan for name in names]
                known = math.isfinite(values[column]) and (column == 0 or not math.isfinite(values[0]))
                if known and model in run.round(t).models:
                    yield RecordedNumbers(t, model, *values)


def read_in_order(run: Run, t: int, model: str, layout: Layout) -> Weights | None:
    """A model in the order of an architecture; None where it has other tensors, or was not recorded."""
    if model not in run.round(t).models:
        return None
    weights = run.round(t).read(model)
    return in_order(weights, layout)


def in_order(weights: Weights, layout: Layout) -> Weights | None:
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
            weights = read_in_order(self.run, t, model, self.layout)
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
        models = [in_order(rows.row(i), self.layout) for i in range(len(round_.client_ids))]
        errors = self.evaluated([model for model in models if model is not None])[1]
        return float(np.average(errors, weights=round_.weights if weighted else None))

    def in_half(self, t: int, model: str) -> float:
        """Its error as computed in bfloat16; NaN of a run that keeps no halves."""
        weights = read_in_order(self.run, t, model, self.layout)
        if weights is None or not any(entry.stored for entry in self.run.layout.entries):
            return math.nan
        return float(self.evaluated([weights], "bf16")[1, 0])

    def batch_of(self, recorded: RecordedNumbers) -> int | None:
        """Return the size of the batches whose mean errors have the recorded number as their mean; None where none
        has."""
        import numpy as np
        import torch

        weights = read_in_order(self.run, recorded.round, recorded.model, self.layout)
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


@dataclass(frozen=True)
class Signs:
    """How recorded errors are compared with what they may be.

    Attributes:
        alike: all recorded errors of the model; picks: the last one, and one from the middle of the others, both of
            which a sign must fit.
        samples: of the test split.
    """

    alike: Sequence[RecordedNumbers]
    picks: Sequence[RecordedNumbers]
    samples: int

    def agreeing(self, fits: Fits) -> int:
        """In how many of the rounds it fits, the last one first."""
        return next((count for count, pick in enumerate(self.picks) if not fits(pick)), len(self.picks))

    def exactly(self, made: Made) -> Fits:
        """Check whether it is the very number of samples."""
        return lambda one: bool(abs(made(one) - one.error) * self.samples <= 0.5 + 1e-4 * self.samples)

    def about(self, made: Made, places: int | None = None, whole: int = 1) -> Fits:
        """Check whether it is that number, or as many samples away from it as any error may be, or rounded to
        places."""
        if places is not None and not all(_is_rounded(one.error / whole, places) for one in self.alike):
            return lambda one: False
        half = 0.0 if places is None else 0.5 * 10.0**-places + 1e-6

        def fits(one: RecordedNumbers) -> bool:
            away = abs(made(one) - one.error / whole)
            same = not errors_differ(one.error / whole, made(one), self.samples)
            return bool(away <= half or same) and math.isfinite(away)

        return fits


def find_explanation(measuring: RecordedModels, first: RecordedNumbers) -> tuple[str, bool]:
    """Find what explains a recorded error, and whether that is sure: it holds in two rounds, or cannot be by chance."""
    samples, model = len(measuring.samples), first.model
    if (size := measuring.batch_of(first)) is not None:
        return f"it is the mean of the errors of batches of {size}", True
    error = measuring.error(first.round, model)
    alike = [one for one in recorded_numbers(measuring.run) if one.model == model and math.isfinite(one.error)]
    percent = any(one.error > 1 for one in alike)  # the last rounds may well be below 1 %
    if percent and not errors_differ(first.error / 100, error, samples):
        return "it was recorded in per cent; give a share, from 0 to 1", True
    picks = [first, *(alike[len(alike) // 2 :][:1] if len(alike) > 1 else [])]
    signs = Signs(alike, picks, samples)
    seen = ""
    for words, fits in _signs_of(measuring, model, signs):
        count = signs.agreeing(fits)
        if count == 2:
            return words, True
        seen = seen or (words if count else "")
    return seen, False


def _signs_of(measuring: RecordedModels, model: str, signs: Signs) -> tuple[tuple[str, Fits], ...]:
    """What an error may be instead, the likeliest first, and whether a round's is that."""

    def right(one: RecordedNumbers) -> float:
        return 1 - measuring.error(one.round, model)

    def wrong(one: RecordedNumbers) -> float:
        return measuring.error(one.round, model)

    about, exactly = signs.about, signs.exactly
    accuracy, in_percent = "it is the accuracy; give the share of wrong answers", "it is the accuracy in per cent"
    return (
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


def _is_rounded(value: float, places: int) -> bool:
    """Check whether a number has no more decimals than that.

    >>> _is_rounded(0.19, 2), _is_rounded(0.186, 2)
    (True, False)
    """
    return abs(value - round(value, places)) < 1e-9
