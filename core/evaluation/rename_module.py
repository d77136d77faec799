"""A module renamed as a run has recorded it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ..checkpoints import Layout
from ..checkpoints.models.expected import ExpectedModel
from ..checkpoints.models.match_names import match_names
from .module_copy import copy_module
from .recorded_names import ByNames


def rename_as_recorded(module: nn.Module, recorded: Layout) -> nn.Module:
    """Rename a module's tensors as a run has them; the module itself where its names are the run's, or do not go with
    them.

    What is put right is what :func:`~fedscope.checkpoints.models.match_names.match_names` does of files: prefixes and
    wrappers' parts of names, the second name of a tied tensor, constants and counters.

    Args:
        recorded: of the run's models.
    """
    expected = ExpectedModel.of(module)
    if set(expected.layout.names) == set(recorded.names):
        return module
    # shapes alone are looked at; these arrays take no memory
    given = {one.name: np.broadcast_to(np.zeros((), one.dtype), one.shape) for one in recorded.entries}
    found = match_names("", given, {one.name: one.dtype for one in recorded.entries}, expected)
    if not found.whole:
        return module
    names = {given: want for want, given in found.names.items()}  # of tied names one
    counters = {
        one.name: torch.zeros(one.shape, dtype=getattr(torch, one.dtype))
        for one in recorded.entries
        if one.name not in names
    }
    ordered = {one.name: names[one.name] for one in recorded.entries if one.name in names}
    return ByNames(copy_module(module), ordered, counters)
