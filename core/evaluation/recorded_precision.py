"""Modules in the precision in which a run has recorded its models: float64 beside an architecture in float32."""

from __future__ import annotations

import torch
from torch import nn

from ..checkpoints import Layout
from .module_copy import copy_module


def in_recorded_precision(module: nn.Module, recorded: Layout) -> nn.Module:
    """Return a module whose weights are of the type of a run's, so that each is computed with as it was recorded; the
    module itself where they are, or where a run's are of several types.

    Half precision is read into float32, and needs none of it.

    Args:
        recorded: of the run's models.

    >>> from torch import nn
    >>> net, run = nn.Linear(2, 1), Layout.of(nn.Linear(2, 1).double())
    >>> in_recorded_precision(net, run).weight.dtype, net.weight.dtype
    (torch.float64, torch.float32)
    """
    wanted = {entry.dtype for entry in recorded.parameters}
    own = {value.dtype for value in module.parameters() if value.is_floating_point()}
    if wanted == {"float64"} and own != {torch.float64}:
        return copy_module(module).double()
    if wanted == {"float32"} and own == {torch.float64}:
        return copy_module(module).float()
    return module
