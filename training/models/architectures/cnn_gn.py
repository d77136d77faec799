"""Zhou et al.'s (IMA) CNN for Digit Five: three convolutions with GroupNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import GroupNormed

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class CNNGN(GroupNormed):
    """Three blocks conv5, GroupNorm, ReLU of 64, 64 and 128 channels, max-pooling after two; 6272-2048-128-C.

    Convolutions are padded; a ReLU follows 2048, none 128. The paper's table prints three poolings, with which
    images of 28 pixels leave 128 x 3 x 3 = 1152, and a linear layer of 6272 = 128 x 7 x 7 inputs, as two leave.
    Chosen: two. The authors' code has three and 1152-384-128-C: ``pools = 3`` and ``hidden = [384, 128]``.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 28, 28), 10)

    pools: int = setting(2, "number of blocks that end with max-pooling, counted from the first", least=0, most=3)
    hidden: tuple[int, ...] = setting(
        (2048, 128), "widths of the linear layers before the head; a ReLU follows all except the last", least=1
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``norm1``, ..., ``fc1``, ``fc2`` and ``head``."""
        from torch import nn

        from ..base import image_shape
        from ..sequential import Classifier, linear_layers

        before, height, width = image_shape(self, shape, 2**self.pools)
        layers: list[tuple[str, nn.Module]] = []
        for i, channels in enumerate((64, 64, 128), start=1):
            layers += [
                (f"conv{i}", nn.Conv2d(before, channels, 5, padding=2)),
                (f"norm{i}", self.norm(channels)),
                (f"act{i}", nn.ReLU(inplace=True)),
            ]
            if i <= self.pools:
                layers.append((f"pool{i}", nn.MaxPool2d(2)))
                height, width = height // 2, width // 2
            before = channels
        widths = [before * height * width, *self.hidden]
        layers += [("flatten", nn.Flatten()), *linear_layers(widths, last=False)]
        return Classifier(layers, nn.Linear(widths[-1], classes))


PROVIDES = CNNGN
