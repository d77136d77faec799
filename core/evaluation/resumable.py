"""Resumable evaluation of many models: their order, the store from which an interrupted analysis goes on, and the
provenance of the numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial as bound
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Model, Weights
from ..checkpoints.io.warn_user import warn_user
from ..results.resume import ResumeStore, is_same_question, stored_fingerprint
from ..results.versions import versions
from .calibration_batches import batches_settings
from .device import precision_of
from .evaluator import Evaluator, Together
from .model_replica import Replica
from .normalization import Normalization
from .samples import Samples
from .standard_tasks import CLASSIFICATION, is_own_task
from .tasks import unit_of
from .uint8_images import in_batches

#: samples on which a module shows what it computes, and on which a task of the user's own does; numbers in the outputs
#: of the latter
TRIED, LOOKED_AT, KEPT = 8, 64, 262_144
Progress = Callable[[int, int], None]


def coarse_to_fine(shape: Sequence[int]) -> list[int]:
    """Order the flat indices of a grid: every other point of every other row before those between, from the coarsest
    down.

    So the whole surface shows early, and an estimate of the time left is made from all of it.

    >>> coarse_to_fine((5,))
    [0, 4, 2, 1, 3]
    """
    grid = np.indices(tuple(shape)).reshape(len(shape), -1)
    # the largest power of two that divides all of a point's indices says at which refinement it appears
    lowest = np.bitwise_or.reduce(grid, axis=0)
    step = np.where(lowest == 0, np.iinfo(np.int64).max, lowest & -lowest)
    return [int(i) for i in np.argsort(-step, kind="stable")]


@dataclass(frozen=True)
class OtherStore:
    """A store of points that another process has measured.

    Attributes:
        path: of the store; other_processor: whether it was measured with other instructions than this one uses.
    """

    path: Path
    other_processor: bool = False


class ResumableEvaluation:
    """An evaluation whose measured points are kept in a file, so that the same call goes on from there.

    Attributes:
        loss, error: float64 [S, N], a row a data set of the evaluator; NaN where not measured.
        done: bool [N], which points are.

    Args:
        form: writes point i into a worker's replica.
        count: N.
        costs: [N], how long a point takes compared with others, for the progress; all alike where not given.
        partial: where finished points are kept; the file is to be removed once the result is saved.
        fingerprint: all that a point's value depends on; a file of another analysis starts afresh.
        expected: what the points that will be asked for cost together, where they are fewer than N.
        watch: called after every point.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        form: Callable[[int, Replica], None],
        count: int,
        *,
        fingerprint: Mapping[str, Any],
        progress: Progress | None = None,
        partial: Path | None = None,
        expected: float | None = None,
        costs: np.ndarray | None = None,
        watch: Callable[[ResumableEvaluation], None] | None = None,
    ) -> None:
        self._evaluator, self._form, self._watch = evaluator, form, watch
        self._store, self._fingerprint = ResumeStore(partial, fingerprint), fingerprint
        self._costs = np.ones(count) if costs is None else costs
        self._expected, self._progress = expected or float(self._costs.sum()), progress
        sets = len(evaluator.parts)
        self.loss, self.error = np.full((sets, count), np.nan), np.full((sets, count), np.nan)
        self.done = np.zeros(count, dtype=bool)
        self._take_over(self._store)
        self._tell()

    def take(self, elsewhere: Sequence[OtherStore]) -> None:
        """Take over points that other processes have measured.

        A store of another analysis is left out, with a warning. What a module answers may differ between processors in
        its last bits: that is no other analysis where the processors are known to differ.
        """
        for store in elsewhere:
            head = stored_fingerprint(store.path)
            own = dict(self._fingerprint)
            if head is None:
                continue
            if store.other_processor:
                head, own = ({key: value for key, value in one.items() if key != "outputs"} for one in (head, own))
            if not is_same_question(head, own):
                warn_user(
                    f"{store.path} was measured with other settings, models or versions and is left out, so its points "
                    "are measured here"
                )
                continue
            self._take_over(ResumeStore(store.path, stored_fingerprint(store.path) or {}, aside=False))
        self._tell()

    def know(self, i: int, loss: Sequence[float] | np.ndarray, error: Sequence[float] | np.ndarray) -> None:
        """Take over a point's values, which were measured before as those of another."""
        self._take(i, loss, error)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``loss``, ``error`` and ``done``."""
        return self.loss, self.error, self.done

    def measure(
        self,
        order: Iterable[int],
        spanning: Callable[[], Together | None] | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:
        """Measure those of the points ``order`` that are not yet, in that order.

        Args:
            spanning: makes what :meth:`Evaluator.evaluate` needs to take points together; asked for if any are left.
            evaluator: measures them, with as many data sets; by default that of all.
        """
        left = [i for i in order if not self.done[i]]
        if not left:
            return
        together = spanning() if spanning is not None else None
        evaluation = (evaluator or self._evaluator).evaluate(len(self.done), self._form, left, together)
        with self._store, closing(evaluation) as points:
            for i, loss, error in points:
                self._take(i, loss, error)
                self._store.add(str(i), [loss.tolist(), error.tolist()])
                self._tell()
                if self._watch is not None:
                    self._watch(self)

    def expect(self, more: float) -> None:
        """More points will be asked for than was said, which cost so much; never more than all of them."""
        self._expected = min(self._expected + more, float(self._costs.sum()))

    def _take_over(self, store: ResumeStore) -> None:
        """Take over the points of a store; one that is none is measured again."""
        sets, count = self.loss.shape

        def point(key: str, value: Any) -> tuple[int, np.ndarray, np.ndarray]:
            i, (loss, error) = int(key), (np.array(values, np.float64) for values in value)
            if i < 0 or loss.shape != (sets,) or error.shape != (sets,):
                raise ValueError("another number of data sets")
            return i, loss, error

        for key in list(store.done):
            found = store.take(key, bound(point, key))
            if found is not None and found[0] < count:  # the same question may have been asked on two levels before
                self._take(*found)

    def _take(self, i: int, loss: Sequence[float] | np.ndarray, error: Sequence[float] | np.ndarray) -> None:
        self.loss[:, i], self.error[:, i], self.done[i] = loss, error, True

    def _tell(self) -> None:
        if self._progress is not None:
            count = int(self._costs[self.done].sum())
            self._progress(count, max(count, ceil(self._expected)))


def provenance_of(
    evaluator: Evaluator, samples: Samples, models: Sequence[Model], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Describe what a result on one of the evaluator's data sets was made from; what the caller says comes on top."""
    return {
        "addresses": [model.address for model in models],
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples),
        "device": evaluator.compute.name,
        "versions": versions(),
        **task_of(samples),
        **dict(given or {}),
        "precision": precision_of(evaluator.layout, evaluator.compute.precision),
    }


def task_of(samples: Samples) -> dict[str, Any]:
    """Name the task and the unit of its loss, where they are not those of a classification."""
    task = samples.task
    named = {} if task.name == CLASSIFICATION.name else {"task": task.name}
    unit = unit_of(task)
    return named | ({} if unit == CLASSIFICATION.unit else {"loss_units": unit})


def precision_errors(
    module: nn.Module, evaluator: Evaluator, form: Callable[[int, Replica], None], loss: np.ndarray
) -> list[dict[str, float]]:
    """Bound how far losses [S, C] measured with less than float32 are from float32's: entries of ``attrs``, none of a
    module in float64.

    ``form(i, replica)`` writes the i-th of the C models.
    """
    if precision_of(module, evaluator.compute.precision) in ("float32", "float64"):
        return [{} for _ in evaluator.parts]
    exact = Evaluator(module, evaluator.parts, compute=evaluator.compute.exact)
    measured = np.array([row for _, row, _ in exact.evaluate(loss.shape[1], form)])
    return [{"precision_error": _greatest_error(*both)} for both in zip(measured.T, loss, strict=True)]


def _greatest_error(exact: np.ndarray, loss: np.ndarray) -> float:
    """The greatest difference of losses [C], of models whose loss is finite in either."""
    known = np.isfinite(exact) | np.isfinite(loss)
    with np.errstate(invalid="ignore"):
        off = np.abs(exact[known] - loss[known])
    return float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0)) if known.any() else float("nan")


def fingerprint(
    kind: str, module: nn.Module, evaluator: Evaluator, models: Sequence[Weights], **more: Any
) -> dict[str, Any]:
    """Collect all that a point's value depends on; an analysis goes on only from points with the same."""
    outputs = evaluator.answers(models[0], TRIED)
    return {
        "kind": kind,
        "module": _sha256(repr(module).encode()),
        # what a module of one's own computes may change and leave its layers' names as they are
        "outputs": _sha256(outputs.tobytes()),
        **(_task_answers(evaluator, models[0], outputs) if is_own_task(evaluator.samples.task) else {}),
        "models": [digest(model) for model in models],
        "data": [data_identity(part) for part in evaluator.parts],
        # of a kind each gives the same numbers, and one of several may be busy when this goes on
        "device": evaluator.compute.kind,
        "precision": evaluator.compute.precision,
        "batch": evaluator.batch,
        **more,
    }


def digest(model: Weights) -> str:
    """Compute a model's digest, which tells it from another that the same address named before: ``@last`` moves, files
    are replaced."""
    sha256 = hashlib.sha256(np.ascontiguousarray(model.parameters).view(np.uint8).data)  # without a copy
    for name, values in sorted(model.buffers.items()):
        sha256.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return sha256.hexdigest()


def statistics_identity(normalization: Normalization) -> dict[str, Any]:
    """Identify the source of points' normalization statistics; a part of their :func:`fingerprint`."""
    samples = normalization.calibration
    drawn = {} if samples is None else batches_settings(len(samples))
    return {"normalization": normalization.policy, "calibration": samples and data_identity(samples), **drawn}


def data_identity(samples: Samples) -> dict[str, Any]:
    """Identify samples: the data set by name and hash, the subset by the hash of its indices."""
    inputs = hashlib.sha256()
    for block in in_batches(samples.x, 2048):
        inputs.update(block.detach().cpu().contiguous().numpy().tobytes())
    return {
        "name": samples.name,
        "split": samples.split,
        "sha256": samples.sha256,
        "samples": len(samples),
        "indices": _sha256(np.asarray(samples.indices, dtype=np.int64).tobytes()),
        "inputs": inputs.hexdigest(),
        "labels": _sha256(samples.y.cpu().numpy().tobytes()),
        **({} if samples.task is CLASSIFICATION else {"task": samples.task.name}),
    }


def evenly(whole: int, count: int) -> Tensor:
    """Choose samples evenly, at most ``count`` of all.

    >>> evenly(9, 5).tolist(), evenly(3, 5).tolist()
    ([0, 2, 4, 6, 8], [0, 1, 2])
    """
    return torch.from_numpy(np.unique(np.linspace(0, whole - 1, min(count, whole)).astype(np.int64)))


def _task_answers(evaluator: Evaluator, model: Weights, outputs: np.ndarray) -> dict[str, str]:
    """Digest what a task of the user's own answers: its name stays when its code changes.

    Returns:
        ``losses`` of the first samples, and ``answers``, which points of earlier versions lack: the losses and errors
        of evenly chosen samples, as labels may be sorted, and the weights of all samples.
    """
    samples = evaluator.samples
    task, y = samples.task, samples.y.cpu()
    rows = evenly(len(y), min(LOOKED_AT, evaluator.batch, max(1, KEPT * len(outputs) // max(1, outputs.size))))
    f = torch.from_numpy(evaluator.answers(model, rows))
    values = task.loss(f, y[rows]), task.error(f, y[rows]), task.weights(y), task.error_weights(y)
    return {
        "losses": _digest(task.loss(torch.from_numpy(outputs), y[: len(outputs)])),
        "answers": _sha256(" ".join(map(_digest, values)).encode()),
    }


def _digest(values: Tensor | None) -> str:
    return "" if values is None else _sha256(values.detach().cpu().numpy().tobytes())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
