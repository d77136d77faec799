"""Checks of what a plane's file says, made once, so that no figure or export meets another type or shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError

_TEXTS = ("kind", "split", "data", "units", "loss_units", "program", "file", "loss_is", "data_sha256", "precision")
_COUNTS = ("samples", "holes", "client", "points_computed", "points_held_out", "points_unknown")
_NUMBERS = ("cos_uv", "held_out_loss_error", "held_out_error_error", "held_out_loss_relative", "held_out_error_rms")


def refuse_damaged_plane(path: Path, values: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> None:
    """Make sure that a surface lies on rising axes, models have a value in each column, and attributes their types.

    Raises:
        FedscopeError: which of them does not.
    """
    missing = [name for name in ("cos_uv", "normalization_policy") if name not in attrs]
    if missing:
        raise FedscopeError(f"{path} does not say its {', '.join(missing)}; compute the plane again with --force")
    for name in ("a", "b"):
        axis = values[name]
        if axis.ndim != 1 or axis.dtype.kind not in "fiu" or len(axis) < 2 or not (np.diff(axis) > 0).all():
            raise _damage(path, f"{name} is not a rising row of at least two coordinates")
    grid = len(values["b"]), len(values["a"])
    for name in ("loss", "error", "computed"):
        if name in values and (values[name].shape != grid or values[name].dtype.kind not in "fiu"):
            raise _damage(path, f"{name} is {_shape_words(values[name])}, not numbers of shape {list(grid)}")
    count = values["model_a"].shape
    for name, column in values.items():
        if name.startswith("model_"):
            kinds = "O" if name in ("model_label", "model_role") else "fiu"
            if column.ndim != 1 or column.shape != count or column.dtype.kind not in kinds:
                raise _damage(path, f"{name} is {_shape_words(column)}, not a value a model")
    refuse_strange(path, attrs)


def refuse_strange(path: Path, attrs: Mapping[str, Any]) -> None:
    """Make sure that the attributes which figures and exports use are of their types.

    Raises:
        FedscopeError: which is not.
    """
    for name, value in attrs.items():
        if not _fits(name, value):
            raise _damage(path, f"its attribute {name} is {str(value)[:40]!r}")


def _fits(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _COUNTS:
        return isinstance(value, int) and number and 0 <= value < 2**53
    if name in _TEXTS:
        return isinstance(value, str) or value is None
    if name in _NUMBERS:
        return number or value is None
    shares = value if isinstance(value, list) else []
    return name != "explained" or value is None or (shares == value and all(isinstance(s, int | float) for s in shares))


def _shape_words(values: np.ndarray) -> str:
    return f"{values.dtype} of shape {list(values.shape)}"


def _damage(path: Path, what: str) -> FedscopeError:
    return FedscopeError(f"{path} is damaged: {what}; compute it again")
