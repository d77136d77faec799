"""The parameters that a module trains: those with ``requires_grad``."""

from __future__ import annotations

from torch import nn


def trained_parameters(module: nn.Module) -> frozenset[str] | None:
    """Name the parameters that the module trains; None where it trains all, or marks none.

    >>> net = nn.Linear(3, 2)
    >>> trained_parameters(net) is None
    True
    >>> net.bias.requires_grad_(False) is net.bias and sorted(trained_parameters(net))
    ['weight']
    """
    marks = {name: parameter.requires_grad for name, parameter in module.named_parameters(remove_duplicate=False)}
    trained = frozenset(name for name, mark in marks.items() if mark)
    return None if not trained or len(trained) == len(marks) else trained


def frozen_parameters(module: nn.Module) -> frozenset[str]:
    """Name the parameters that the module does not train.

    >>> net = nn.Linear(3, 2)
    >>> net.bias.requires_grad_(False) is net.bias and sorted(frozen_parameters(net))
    ['bias']
    """
    marks = module.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in marks if not parameter.requires_grad)


def trains_nothing(module: nn.Module) -> bool:
    """Check whether the module marks none of its parameters as trained."""
    return not any(parameter.requires_grad for parameter in module.parameters())


def frozen_count(module: nn.Module) -> int:
    """Count the numbers in parameters that the module does not train, where it trains others."""
    trained = trained_parameters(module)
    if trained is None:
        return 0
    return sum(parameter.numel() for name, parameter in module.named_parameters() if name not in trained)
