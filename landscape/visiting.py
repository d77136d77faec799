"""The order in which points of a grid are visited, and going on where an interrupted analysis stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..checkpoints import Partial, Weights
from .evaluator import Evaluator
from .replica import Replica
from .samples import Samples

Progress = Callable[[int, int], None]


def coarse_to_fine(shape: Sequence[int]) -> list[int]:
    """Flat indices of a grid, every other point of every other row before those between, from the coarsest down.

    So the whole surface shows early, and an estimate of the time left is made from all of it.

    >>> coarse_to_fine((5,))
    [0, 4, 2, 1, 3]
    """
    grid = np.indices(tuple(shape)).reshape(len(shape), -1)
    # the largest power of two that divides all of a point's indices says at which refinement it appears
    lowest = np.bitwise_or.reduce(grid, axis=0)
    step = np.where(lowest == 0, np.iinfo(np.int64).max, lowest & -lowest)
    return [int(i) for i in np.argsort(-step, kind="stable")]


def visit(
    evaluator: Evaluator,
    order: Sequence[int],
    form: Callable[[int, Replica], None],
    *,
    progress: Progress | None = None,
    partial: Path | None = None,
    fingerprint: Mapping[str, Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Loss and error of the points ``order``, float64 by point; those that ``partial`` has are not computed again.

    The file stays: whoever saves the result removes it then.
    """
    loss, error = np.full(len(order), np.nan), np.full(len(order), np.nan)
    store = Partial(partial, dict(fingerprint or {})) if partial is not None else None
    done = dict(store.done) if store is not None else {}
    for key, (known_loss, known_error) in done.items():
        loss[int(key)], error[int(key)] = known_loss, known_error
    left = [i for i in order if str(i) not in done]
    count = len(order) - len(left)
    if progress is not None:
        progress(count, len(order))
    with store or nullcontext(), closing(evaluator.evaluate(len(order), form, left)) as points:
        for i, point_loss, point_error in points:
            loss[i], error[i] = point_loss, point_error
            if store is not None:
                store.add(str(i), [point_loss, point_error])
            count += 1
            if progress is not None:
                progress(count, len(order))
    return loss, error


def fingerprint(
    kind: str, module: nn.Module, evaluator: Evaluator, models: Sequence[Weights], **coordinates: Sequence[float]
) -> dict[str, Any]:
    """All that a point's value hangs on; an analysis goes on only from points with the same."""
    return {
        "kind": kind,
        "module": _sha256(repr(module).encode()),
        "models": [_sha256(_bytes(model)) for model in models],
        "data": data_identity(evaluator.samples),
        "device": evaluator.device,
        "precision": evaluator.precision,
        "batch": evaluator.batch,
        **{name: [float(x) for x in values] for name, values in coordinates.items()},
    }


def data_identity(samples: Samples) -> dict[str, Any]:
    """Which samples: the data set by name and hash, the subset by the hash of its indices."""
    inputs = hashlib.sha256()
    for block in torch.split(samples.x.detach(), 2048):
        inputs.update(block.cpu().contiguous().numpy().tobytes())
    return {
        "name": samples.name,
        "split": samples.split,
        "sha256": samples.sha256,
        "samples": len(samples),
        "indices": _sha256(np.asarray(samples.indices, dtype=np.int64).tobytes()),
        "inputs": inputs.hexdigest(),
        "labels": _sha256(samples.y.cpu().numpy().tobytes()),
    }


def _bytes(model: Weights) -> bytes:
    buffers = (np.ascontiguousarray(values).tobytes() for _, values in sorted(model.buffers.items()))
    return b"".join([np.ascontiguousarray(model.parameters).tobytes(), *buffers])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
