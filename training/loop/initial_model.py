"""``model.weights``: a training that starts from the model in a file rather than from one that was drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...checkpoints import FedscopeError, Run, Weights, expand_home, real_path
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.expected import STATISTICS, ExpectedModel
from ...checkpoints.models.files import SUFFIXES, file_and_key, model_path, read_arrays
from ...checkpoints.models.folders import parts_of
from ...checkpoints.models.state_dicts import hint
from ...checkpoints.runs.info import sha256_of
from ...evaluation.module_copy import copy_module
from ..build import initial_model
from ..config.config import Config
from ..models.model_info import ModelInfo


@dataclass(frozen=True)
class FirstModel:
    """The model that round 1 sends out.

    Attributes:
        weights: the model.
        source: the ``weights`` entry of ``run.json``: ``path``, ``sha256``, and the names that are ``fresh``; None
            where the whole model was drawn.
    """

    weights: Weights
    source: dict[str, Any] | None = None


def with_whole_path(config: Config) -> Config:
    """Return the configuration with ``model.weights`` as a path from the root, so that a run is resumed from
    anywhere."""
    architecture = config.model.architecture
    if architecture.weights is None:
        return config
    file, key = file_and_key(architecture.weights)
    path = real_path(expand_home(file))
    whole = replace(architecture, weights=f"{path}:{key}" if key else str(path))
    return replace(config, model=replace(config.model, architecture=whole))


def first_model(config: Config, module: nn.Module, facts: ModelInfo) -> FirstModel:
    """Make the model that a training begins with: the module as it was drawn, or the model in the file of
    ``model.weights``.

    Names and shapes must be the module's, as ``load_state_dict`` takes them: it knows older names of some layers, and
    files from before BatchNorm counted its batches. A head of another shape, as of other classes, or none is left as
    it was drawn, which a warning says, and so it does of all else that was changed on the way.

    Raises:
        FedscopeError: what :func:`~fedscope.checkpoints.models.files.read_arrays` refuses; another model; numbers that
            are not finite.
    """
    given = config.model.architecture.weights
    if given is None:
        return FirstModel(initial_model(module))
    file, key = file_and_key(given)
    path, place = real_path(expand_home(file)), f"model.weights = {given!r}"
    if "@" in given and not path.exists():
        raise FedscopeError(f"{place} is not a file; write a run's model to one: fedscope export RUN@ROUND start.pt")
    expected = ExpectedModel.of(module)
    arrays, notes = read_arrays(f"{path}:{key}" if key else path, expected)
    fresh = _other_head(arrays, facts)
    if fresh:
        notes.append(_about_head(arrays, facts))
    body = {name: array for name, array in arrays.items() if name not in fresh}
    loaded = copy_module(module)
    for name, array in body.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FedscopeError(f"{place}: {name} is not finite; give another file")
    _load(f"{place} does not fit {config.model.name} as it is set here", loaded, body, facts, fresh)
    if notes:
        warn_user(f"{path}: {', '.join(notes)}")
    source = {"path": str(path), "sha256": _sum_of(path), "fresh": list(fresh)}
    return FirstModel(initial_model(loaded), source | ({"key": key} if key else {}))


def _sum_of(path: Path) -> str:
    """Return the SHA-256 of a model's file; of a folder's or an index's parts that of their sums."""
    place = model_path(path)
    parts = parts_of(place, SUFFIXES)
    if parts is None:
        return sha256_of(place)
    return hashlib.sha256("".join(map(sha256_of, sorted(parts))).encode()).hexdigest()


def refuse_other_file(run: Run, source: Mapping[str, Any] | None) -> None:
    """Make sure that a run which has no round yet begins as it would have begun.

    Args:
        source: of the model read now.

    Raises:
        FedscopeError: the file of ``model.weights`` has changed since the run was made.
    """
    recorded = run.info.get("weights", {})
    if source is not None and source["sha256"] != recorded.get("sha256"):
        raise FedscopeError(
            f"{run.path}: the file of model.weights, {source['path']}, has changed since the run was made (sha256 "
            f"{source['sha256'][:12]}..., the run saw {str(recorded.get('sha256'))[:12]}...); restore it, or train "
            "again"
        )


def _other_head(arrays: Mapping[str, np.ndarray], facts: ModelInfo) -> tuple[str, ...]:
    """Return the head's parameters, where the file's are not all there in their shapes; else none."""
    shapes = {entry.name: entry.shape for entry in facts.layout.parameters}
    own = facts.head_parameters
    return own if any(name not in arrays or arrays[name].shape != shapes[name] for name in own) else ()


def _about_head(arrays: Mapping[str, np.ndarray], facts: ModelInfo) -> str:
    name = facts.head_parameters[0]
    if name not in arrays:
        return f"it has no head {facts.head}, so the head starts fresh"
    mine = facts.layout.by_name[name].shape
    return f"its {name} has shape {list(arrays[name].shape)}, not {list(mine)}, so the head starts fresh"


def _load(
    place: str, module: nn.Module, arrays: Mapping[str, np.ndarray], facts: ModelInfo, fresh: Sequence[str]
) -> None:
    shapes = {entry.name: entry.shape for entry in facts.layout.entries}
    other = [name for name, array in arrays.items() if array.shape != shapes.get(name, array.shape)]
    if other:
        more = f", and {len(other) - 1} more differ" if len(other) > 1 else ""
        raise FedscopeError(
            f"{place}: {other[0]} has shape {list(arrays[other[0]].shape)}, not {list(shapes[other[0]])}{more}; take "
            "the settings and the image size that it was trained with, or another file"
        )
    try:
        lacking, unknown = module.load_state_dict(
            {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, strict=False
        )
    except RuntimeError as error:  # a tensor of an older name and another shape
        reason = str(error).strip().splitlines()[-1].strip()
        raise FedscopeError(f"{place}: {reason}") from error
    missing = [name for name in lacking if name not in fresh]
    if not missing and not unknown:
        return
    clauses = [f"{list_few(missing, 4)} missing"] if missing else []
    clauses += [f"{list_few(unknown, 4)} unexpected"] if unknown else []
    clause = hint(place, arrays, ExpectedModel(facts.layout))
    if not missing and all(name.rpartition(".")[2] in STATISTICS for name in unknown):
        clause = "; BatchNorm's statistics have no place in a model without BatchNorm: give a file of one without"
    raise FedscopeError(f"{place}: {', '.join(clauses)}{clause}")
