"""Layers and parameters that a module holds where torch does not look: in a list, a tuple, a dictionary or a tensor of
Python's own. They are in no ``state_dict()``, so they are neither trained, sent nor averaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..io.errors import list_few

if TYPE_CHECKING:
    from torch import Tensor, nn

#: attributes in which torch keeps what it knows, and its recurrent layers what they knew before a parametrization
_KNOWN = frozenset({"_modules", "_parameters", "_buffers", "_flat_weights"})
#: how deep lists in lists are looked into
_DEPTH = 3


def say_unregistered(module: nn.Module) -> str:
    """Say which trainable parameters of a module torch does not know, as a clause; "" of a module without such.

    Tensors that want no gradient are passed over, as those of a teacher that is kept out of the network on purpose.

    >>> from torch import nn
    >>> class Deep(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden, self.head = [nn.Linear(3, 3)], nn.Linear(3, 2)
    >>> say_unregistered(Deep()).partition(";")[0]
    'Deep holds 12 parameters where torch does not look (hidden), so they are neither recorded nor averaged'
    >>> say_unregistered(nn.Linear(3, 2))
    ''
    """
    known = {id(parameter) for parameter in module.parameters()}
    found: dict[int, Tensor] = {}
    places: dict[str, None] = {}
    for path, layer in module.named_modules():
        for name, value in vars(layer).items():
            if name in _KNOWN:
                continue
            for tensor in _leaves(value, _DEPTH, id(layer)):
                if id(tensor) not in known:
                    found[id(tensor)] = tensor
                    places[f"{path}.{name}".lstrip(".")] = None
    if not found:
        return ""
    sizes = [tensor.numel() for tensor in found.values() if not type(tensor).__name__.startswith("Uninitialized")]
    count = f"{sum(sizes):,} " if sizes else ""
    return (
        f"{type(module).__name__} holds {count}parameters where torch does not look ({list_few(places, 3)}), so they "
        "are neither recorded nor averaged; hold layers in nn.ModuleList or nn.ModuleDict, and tensors in nn.Parameter"
    )


def _leaves(value: Any, depth: int, within: int) -> Iterator[Tensor]:
    """Yield the tensors that want a gradient of their own in a value: of a module its parameters, but of one that holds
    the layer ``within`` itself."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.is_leaf:
            yield value
    elif isinstance(value, torch.nn.Module):
        if within not in map(id, value.modules()):  # a way back to the network that it is part of
            yield from (parameter for parameter in value.parameters() if parameter.requires_grad)
    elif depth and isinstance(value, list | tuple | dict | set):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(one, depth - 1, within)
