"""Multi-layer perceptron, 64-128-64-C on the digits."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...settings.settings import setting
from ..base import Architecture

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MLP(Architecture):
    """Flattened input, ReLU after each hidden layer, linear head."""

    hidden: tuple[int, ...] = setting((128, 64), "widths of the hidden layers", least=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``fc1``, ``fc2``, ... and ``head``."""
        from torch import nn

        from ..sequential import Classifier, linear_layers

        widths = [prod(shape), *self.hidden]
        return Classifier([("flatten", nn.Flatten()), *linear_layers(widths)], nn.Linear(widths[-1], classes))


PROVIDES = MLP
