"""What methods may know of a model: its layout, and which layer is its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checkpoints import FedscopeError, Layout
from ..landscape.evaluation.known_tasks import CLASSIFICATION
from ..landscape.evaluation.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Facts:
    """What is fixed in a federation before its first round.

    Attributes:
        layout: of the model; classes: outputs; clients: N; seed: ``run.seed``.
        head: the head's name in the module, None where no layer is known to be one.
        task: what is learnt.
    """

    layout: Layout
    classes: int = 0
    clients: int = 0
    seed: int = 0
    head: str | None = None
    task: Task = CLASSIFICATION

    @property
    def head_parameters(self) -> tuple[str, ...]:
        """The names of the head's parameters (``head.weight``, ``head.bias``)."""
        own = f"{self.head}."
        return tuple(entry.name for entry in self.layout.parameters if self.head and entry.name.startswith(own))

    @property
    def width(self) -> int:
        """How many features the head sees."""
        shapes = {entry.name: entry.shape for entry in self.layout.parameters}
        return shapes[f"{self.head}.weight"][1]

    def zeros(self) -> np.ndarray:
        """A vector of zeros, [P]."""
        return np.zeros(self.layout.size, self.layout.dtype)

    def head_mask(self) -> np.ndarray:
        """Which of the P parameters are the head's, [P] bool."""
        mask = np.zeros(self.layout.size, dtype=bool)
        for name in self.head_parameters:
            mask[self.layout.slices[name]] = True
        return mask


def find_head(module: nn.Module, name: str | None = None) -> str | None:
    """The name of a module's head: the one given, or the last linear layer; None where there is none.

    Raises:
        FedscopeError: the name given is not that of a linear layer (says which there are).

    >>> from torch import nn
    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    '2'
    """
    from torch import nn

    linear = [place for place, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if name is None:
        return linear[-1] if linear else None
    if name not in linear:
        raise FedscopeError(
            f"model.head = {name!r} is not a linear layer of the model; it has {', '.join(linear) or 'none'}"
        )
    return name


def head_layer(module: nn.Module, head: str | None) -> nn.Linear:
    """The module's head, by name."""
    from torch import nn

    assert head is not None, "facts_of has refused models without a head"
    layer = module.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    return layer


def features_and_logits(module: nn.Module, head: str | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the head sees, [n, features], and what the model answers, [n, classes], in one forward pass.

    Works on any module whose head is called once in its forward pass.
    """
    seen: list[Tensor] = []
    handle = head_layer(module, head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits: Tensor = module(x)
    finally:
        handle.remove()
    return seen[-1].flatten(1), logits
