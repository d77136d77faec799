"""An architecture by the names that a run has recorded, where these are a wrapper's, or lack what a file may lack."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ...checkpoints import Layout
from ...checkpoints.models.expected import ExpectedModel
from ...checkpoints.models.fitting import fit_names


def named_as_recorded(module: nn.Module, recorded: Layout) -> nn.Module:
    """The module itself where its names are those of a run, or do not go with them; else a copy that has them.

    What is put right is what :func:`~fedscope.checkpoints.models.fitting.fit_names` does of files: a prefix before all
    recorded names, the second name of a tied tensor, constants and counters.

    Args:
        recorded: of the run's models.
    """
    expected = ExpectedModel.of(module)
    if set(expected.layout.names) == set(recorded.names):
        return module
    # shapes alone are looked at; these arrays take no memory
    given = {one.name: np.broadcast_to(np.zeros((), one.dtype), one.shape) for one in recorded.entries}
    found = fit_names("", given, {one.name: one.dtype for one in recorded.entries}, expected)
    if not found.whole:
        return module
    want, name = next(iter(found.names.items()))
    before = name.removesuffix(want) if name.endswith(want) else ""
    own = {want: name for want, name in found.names.items() if name == f"{before}{want}"}
    tied = [want for want in found.names if want not in own]
    if any(found.names[want] not in own.values() for want in tied):  # other names than a prefix makes
        return module
    inner = deepcopy(module)
    made = Behind(inner, before) if before else inner
    _without(inner, [*tied, *found.supplied])
    for one in recorded.entries:
        if one.name not in found.names.values():
            _add_counter(made, one.name, np.zeros(one.shape, one.dtype))
    return made


class Behind(nn.Module):
    """A module whose tensors have a prefix, and that answers as the one inside."""

    def __init__(self, inner: nn.Module, prefix: str) -> None:
        super().__init__()
        self._way = prefix.removesuffix(".")
        *containers, last = self._way.split(".")
        place: nn.Module = self
        for part in containers:
            place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        place.add_module(last, inner)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the module inside answers."""
        return self.get_submodule(self._way)(*inputs, **named)


def _without(module: nn.Module, names: Sequence[str]) -> None:
    """Leave tensors out of the module's ``state_dict``; it computes with them as before."""
    if names:
        module.register_state_dict_post_hook(partial(_leave_out, tuple(names)))


def _leave_out(names: Sequence[str], _: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
    for name in names:
        state.pop(f"{prefix}{name}", None)


def _add_counter(module: nn.Module, name: str, values: Any) -> None:
    """Room for a tensor that the run has and the architecture has not: no weight, and nothing computes with it."""
    *parts, last = name.split(".")
    for part in parts:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    module.register_buffer(last, torch.as_tensor(values))
