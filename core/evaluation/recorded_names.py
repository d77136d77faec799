"""Modules renamed as a run has recorded them, where these names are a wrapper's, or lack what a file may lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Layout
from ..checkpoints.models.expected import ExpectedModel
from ..checkpoints.models.match_names import match_names


class ByNames(nn.Module):
    """A module whose tensors have other names; it answers as the one inside, whose layers keep theirs.

    Args:
        inner: the module, which is not copied.
        names: by other name the tensor's own; tensors that are not named are the module's own affair.
        counters: tensors that the module has not; nothing computes with them.
    """

    def __init__(self, inner: nn.Module, names: Mapping[str, str], counters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self._names, self._counters = dict(names), dict(counters)

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

    def named_modules(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, nn.Module]]:
        """Yield the layers of the module inside, by their own names."""
        yield from self.inner.named_modules(*arguments, **named)

    def get_submodule(self, target: str) -> nn.Module:
        """Find a layer of the module inside."""
        return self.inner.get_submodule(target)


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
    return ByNames(deepcopy(module), ordered, counters)
