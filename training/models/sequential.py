"""The shape that most models share: named layers in a row, which make features, then a head."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

Named = list[tuple[str, nn.Module]]


def linear_layers(widths: Sequence[int], *, last: bool = True, dropout: float | None = None) -> Named:
    """``fc1``, ``fc2``, ... between the widths, a ReLU after each, with ``last`` after the last one too.

    Args:
        dropout: before each layer that a ReLU follows; None for none.
    """
    layers: Named = []
    count = len(widths) - 1
    for i, (before, after) in enumerate(pairwise(widths), start=1):
        active = last or i < count
        if active and dropout is not None:
            layers.append((f"dropout{i}", nn.Dropout(dropout)))
        layers.append((f"fc{i}", nn.Linear(before, after)))
        if active:
            layers.append((f"relu{i}", nn.ReLU()))
    return layers


class Classifier(nn.Module):
    """Named layers in a row, then ``head``: ``head(features(x))``.

    The layers are the module's own attributes, so parameters are called ``conv1.weight``, ``head.bias``.
    """

    head: nn.Linear

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], head: nn.Linear) -> None:
        super().__init__()
        self._order = [name for name, _ in layers]
        for name, layer in layers:
            self.add_module(name, layer)
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """Return what the head sees, [n, features]."""
        for name in self._order:
            x = self.get_submodule(name)(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, classes]."""
        logits: Tensor = self.head(self.features(x))
        return logits
