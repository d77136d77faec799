"""The source papers' CNN: conv5-pool-conv5-pool-384-128-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import Architecture

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class CNN(Architecture):
    """Two convolutions with max-pooling, two hidden linear layers, linear head.

    64 and 64 channels for colour images, 32 and 32 for grey ones; 5 x 5 kernels without padding, 3 x 3 with padding
    for images under 16 pixels. The ReLU stands behind the pooling: the same function (both are monotone) at a quarter
    of the work.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 10)

    channels: int | None = setting(None, "channels of both convolutions; default 64 (colour) or 32 (grey)", least=1)
    hidden: tuple[int, ...] = setting((384, 128), "widths of the hidden linear layers", least=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``conv2``, ``fc1``, ``fc2`` and ``head``."""
        from torch import nn

        from ..base import image_shape
        from ..sequential import Classifier, linear_layers

        depth, height, width = image_shape(self, shape, 4)
        channels = self.channels or (64 if depth > 1 else 32)
        kernel, padding = (5, 0) if min(height, width) >= 16 else (3, 1)
        lost = kernel - 1 - 2 * padding
        sides = [((side - lost) // 2 - lost) // 2 for side in (height, width)]
        widths = [channels * sides[0] * sides[1], *self.hidden]
        layers: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(depth, channels, kernel, padding=padding)),
            ("pool1", nn.MaxPool2d(2)),
            ("act1", nn.ReLU()),
            ("conv2", nn.Conv2d(channels, channels, kernel, padding=padding)),
            ("pool2", nn.MaxPool2d(2)),
            ("act2", nn.ReLU()),
            ("flatten", nn.Flatten()),
        ]
        return Classifier([*layers, *linear_layers(widths)], nn.Linear(widths[-1], classes))


PROVIDES = CNN
