"""Results as netCDF files, with their provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..checkpoints import FedscopeError, Model, Variable, read_netcdf, versions, write_netcdf
from .evaluator import Evaluator
from .known_tasks import CLASSIFICATION
from .replica import Replica
from .samples import Samples

#: of the files that lines and planes are kept in
VERSION = 1


def provenance_of(
    evaluator: Evaluator, samples: Samples, models: Sequence[Model], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a result on one of the evaluator's data sets was made from; what the caller says comes on top."""
    return {
        "addresses": [model.address for model in models],
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples),
        "precision": evaluator.precision,
        "device": evaluator.device,
        "versions": versions(),
        **task_of(samples),
        **dict(given or {}),
    }


def task_of(samples: Samples) -> dict[str, Any]:
    """The task and the unit of its loss, where they are not those of a classification."""
    task = samples.task
    named = {} if task.name == CLASSIFICATION.name else {"task": task.name}
    return named | ({} if task.unit == CLASSIFICATION.unit else {"loss_units": task.unit})


def precision_errors(
    module: nn.Module, evaluator: Evaluator, form: Callable[[int, Replica], None], loss: np.ndarray
) -> list[dict[str, float]]:
    """How far losses [S, C] measured with less than float32 are from float32's, at most: entries of ``attrs``.

    ``form(i, replica)`` writes the i-th of the C models.
    """
    if evaluator.precision == "float32":
        return [{} for _ in evaluator.parts]
    exact = Evaluator(module, evaluator.parts, device=evaluator.device, workers=evaluator.workers)
    measured = np.array([row for _, row, _ in exact.evaluate(loss.shape[1], form)])
    return [{"precision_error": float(error)} for error in np.max(np.abs(measured.T - loss), axis=1)]


def write_result(
    path: Path, kind: str, coords: Mapping[str, Variable], variables: Mapping[str, Variable], attrs: Mapping[str, Any]
) -> None:
    """Write a result of a kind (``line``, ``plane``) as ``BASE.nc``, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"format": f"fedscope-{kind}", "version": VERSION}
    write_netcdf(path, coords, variables, {**head, **attrs})


def read_result(
    path: Path,
    kind: str,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    dims: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays ``needed`` of a result of a kind, those of ``optional`` that it has, and its other attributes.

    Args:
        dims: of arrays that must be numbers along these dimensions.

    Raises:
        FedscopeError: no such file, a result of another kind or of a newer version, an array that is missing or lies
            along other dimensions.
    """
    variables, attrs = read_netcdf(path)
    found, version = attrs.pop("format", None), attrs.pop("version", 0)
    if found != f"fedscope-{kind}":
        raise FedscopeError(f"{path} holds {found or 'no result of fedscope'}, not a {kind}; give a {kind}'s .nc file")
    if not isinstance(version, int) or version > VERSION:
        raise FedscopeError(
            f"{path} was written in version {version} of its format, and this fedscope reads up to {VERSION}; "
            "update fedscope"
        )
    missing = [name for name in needed if name not in variables]
    if missing:
        raise FedscopeError(f"{path} lacks {', '.join(missing)}; compute the {kind} again with --force")
    for name, along in (dims or {}).items():
        found, values, _ = variables[name]
        if found != along or values.dtype.kind not in "fiu":
            raise FedscopeError(
                f"{path} is damaged: {name} is {values.dtype} along {', '.join(found)}, not numbers along "
                f"{', '.join(along)}; compute the {kind} again with --force"
            )
    return {name: variables[name][1] for name in (*needed, *optional) if name in variables}, attrs
