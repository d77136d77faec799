"""Results as netCDF files, with their provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import FedscopeError, Model, read_netcdf, versions, write_netcdf
from .evaluator import Evaluator

Variable = tuple[tuple[str, ...], np.ndarray, Mapping[str, str]]


def provenance_of(
    evaluator: Evaluator, models: Sequence[Model], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a result was made from; what the caller says comes on top."""
    samples = evaluator.samples
    return {
        "addresses": [model.address for model in models],
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples),
        "precision": evaluator.precision,
        "device": evaluator.device,
        "versions": versions(),
        **dict(given or {}),
    }
