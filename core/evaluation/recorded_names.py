"""Modules renamed as a run has recorded them, where these names are a wrapper's, or lack what a file may lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


class ByNames(nn.Module):
    """A module whose tensors have other names; it answers as the one inside, whose layers keep theirs.

    So a tensor's name does not say in which layer it is, nor the other way round: :func:`place_of_tensor` and
    :func:`name_in_layer` do, and :func:`call_with` calls the module with other tensors.

    Args:
        inner: the module, which is not copied.
        names: by other name the tensor's own; tensors that are not named are the module's own affair, and its buffers
            among them have ``inner.`` before their names.
        counters: tensors that the module has not; nothing computes with them.
    """

    def __init__(self, inner: nn.Module, names: Mapping[str, str], counters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self._names, self._counters = dict(names), dict(counters)
        self._others = {own: name for name, own in names.items()}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the module inside."""
        return self.inner(*inputs, **named)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """Give the tensors by the other names."""
        own = self.inner.state_dict()
        return {name: own[inside] for name, inside in self._names.items()} | self._counters

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters by the other names."""
        own, seen = dict(self.inner.named_parameters(remove_duplicate=False)), set()
        for name, inside in self._names.items():
            parameter = own.get(inside)
            if parameter is not None and not (remove_duplicate and parameter in seen):
                seen.add(parameter)
                yield f"{prefix}{name}", parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers by the other names, then those that are not named."""
        own, seen = dict(self.inner.named_buffers(remove_duplicate=False)), set[int]()
        other = {name: own[inside] for name, inside in self._names.items() if inside in own}
        inside = {*self._names.values()}
        other |= {f"inner.{name}": buffer for name, buffer in own.items() if name not in inside}
        for name, buffer in other.items():
            if not (remove_duplicate and id(buffer) in seen):
                seen.add(id(buffer))
                yield f"{prefix}{name}", buffer

    def get_parameter(self, target: str) -> nn.Parameter:
        """Find a parameter by its other name."""
        return self.inner.get_parameter(self._names[target])

    def place_of(self, name: str) -> str:
        """Return the tensor's own name."""
        return self._names.get(name, name.removeprefix("inner."))

    def name_of(self, place: str) -> str:
        """Return the other name of one of the module's tensors."""
        return self._others.get(place, f"inner.{place}")

    def call_with(self, tensors: Mapping[str, Tensor], inputs: tuple[Any, ...]) -> Any:
        """Call the module inside with other tensors; counters it has not."""
        own = {self.place_of(name): value for name, value in tensors.items() if name not in self._counters}
        return functional_call(self.inner, own, inputs)

    def named_modules(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, nn.Module]]:
        """Yield the layers of the module inside, by their own names."""
        yield from self.inner.named_modules(*arguments, **named)

    def get_submodule(self, target: str) -> nn.Module:
        """Find a layer of the module inside."""
        return self.inner.get_submodule(target)


def own_name(module: nn.Module, name: str) -> str:
    """Return what a module's layers call a tensor: the path of its layer, and its name there.

    >>> own_name(nn.Sequential(nn.Linear(3, 2)), "0.bias")
    '0.bias'
    """
    return module.place_of(name) if isinstance(module, ByNames) else name


def own_module(module: nn.Module) -> nn.Module:
    """Return the module inside where one is renamed, which has what else its class has (a ``PeftModel`` its settings).

    >>> own_module(nn.Linear(3, 2))
    Linear(in_features=3, out_features=2, bias=True)
    """
    return module.inner if isinstance(module, ByNames) else module


def place_of_tensor(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the layer that a tensor is in, and what the layer calls it.

    >>> place_of_tensor(nn.Sequential(nn.Linear(3, 2)), "0.bias")
    (Linear(in_features=3, out_features=2, bias=True), 'bias')
    """
    path, _, leaf = own_name(module, name).rpartition(".")
    return module.get_submodule(path), leaf


def name_in_layer(module: nn.Module, layer: str, leaf: str) -> str:
    """Return the name of a tensor by its layer, as ``named_modules`` calls it, and what the layer calls it.

    >>> name_in_layer(nn.Sequential(nn.Linear(3, 2)), "0", "bias"), name_in_layer(nn.Linear(3, 2), "", "bias")
    ('0.bias', 'bias')
    """
    place = f"{layer}.{leaf}".removeprefix(".")
    return module.name_of(place) if isinstance(module, ByNames) else place


def call_with(module: nn.Module, tensors: Mapping[str, Tensor], *inputs: Any) -> Any:
    """Call a module with other tensors, by the names that its ``state_dict`` has.

    >>> import torch
    >>> call_with(nn.Linear(2, 1), {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(2)).tolist()
    [2.0]
    """
    if isinstance(module, ByNames):
        return module.call_with(tensors, inputs)
    return functional_call(module, dict(tensors), inputs)
