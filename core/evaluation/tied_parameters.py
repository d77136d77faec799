"""Parameters that a module holds under several names: tied weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoints import Weights


def tied_names(module: nn.Module) -> dict[str, frozenset[str]]:
    """Find the names of parameters that a module holds under several, all of them by each.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> net[1].weight = net[0].weight
    >>> sorted(tied_names(net)["0.weight"])
    ['0.weight', '1.weight']
    """
    found: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return {name: frozenset(names) for names in found.values() if len(names) > 1 for name in names}


def tie_again(made: Weights, tied: Mapping[str, Collection[str]]) -> Weights:
    """Give tensors that a module holds under several names the numbers of the last one, which it computes with: a
    server that draws anew for each entry gives each name others.

    Args:
        made: one model; the same again where nothing has to be changed.
        tied: of each name all the names of its tensor.
    """
    slices, names, parameters = made.layout.slices, made.layout.names, made.parameters
    there = {name: slices.keys() & others for name, others in tied.items() if name in slices}
    last = {name: max(others, key=names.index) for name, others in there.items() if len(others) > 1}
    if all(np.array_equal(parameters[slices[a]], parameters[slices[b]], True) for a, b in last.items()):
        return made
    parameters = parameters.copy()
    for name, source in last.items():
        parameters[slices[name]] = parameters[slices[source]]
    return replace(made, parameters=parameters)
