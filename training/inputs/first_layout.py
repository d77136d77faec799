"""The layers of models before they are resolved: of patterns, which say how many results there will be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...checkpoints import FedscopeError, Layout, Model, TensorEntry
from ...checkpoints.models.state_dicts import find_state_dict
from ...checkpoints.runs.addresses import read_address
from .models import ModelLike, is_module, runs_of


def layout_of_first(models: Sequence[ModelLike]) -> Layout:
    """Return the layout of a run that the models are of, else of the first model; of a state dict its names and shapes.

    Raises:
        FedscopeError: no model, or an address of none.
    """
    runs = runs_of(models)
    if runs:
        return runs[0].layout
    if not models:
        raise FedscopeError("there is no model to compare; give two or more")
    first = next(filter(is_module, models), models[0])
    if isinstance(first, Model):
        return first.weights.layout
    if isinstance(first, str | Path):
        return read_address(str(first)).weights.layout
    if is_module(first):
        return Layout.of(first)
    tensors = find_state_dict("the model", first, None)[0] if isinstance(first, Mapping) else {}
    entries = (TensorEntry(name, tuple(value.shape), "float32", "parameter") for name, value in tensors.items())
    return Layout(tuple(entries))
