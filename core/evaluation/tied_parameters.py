"""Parameters that a module holds under several names: tied weights."""

from __future__ import annotations

from torch import nn


def tied_names(module: nn.Module) -> dict[str, frozenset[str]]:
    """Find the names of parameters that a module holds under several, all of them by each.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> net[1].weight = net[0].weight
    >>> sorted(tied_names(net)["0.weight"])
    ['0.weight', '1.weight']
    """
    found: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return {name: frozenset(names) for names in found.values() if len(names) > 1 for name in names}
