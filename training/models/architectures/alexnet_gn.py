"""Krizhevsky's AlexNet ("One weird trick", 2014) with GroupNorm, as Zhou et al. (IMA) train it on PACS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import GroupNormed

if TYPE_CHECKING:
    from torch import nn

#: channels, kernel, stride and padding of the convolutions, and whether a max-pooling follows
CONVOLUTIONS = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False),
                (256, 3, 1, 1, True))  # fmt: skip


@dataclass(frozen=True)
class AlexNetGN(GroupNormed):
    """torchvision's AlexNet up to its second layer of 4096, then 512 and C; GroupNorm after each of the five
    convolutions.

    9216-4096-4096-512-C with dropout before both 4096 and a ReLU after them. Chosen: where GroupNorm stands, and no
    ReLU between 512 and C, as in ``resnet18-gn``. The mean over a grid of 6 x 6 takes images of 63 pixels and more. The
    authors' code has 9216-1024-512-C and 32 groups: ``hidden = [1024, 512]`` and ``groups = 32``.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 224, 224), 7)

    hidden: tuple[int, ...] = setting(
        (4096, 4096, 512), "widths of the linear layers before the head; a ReLU follows all except the last", least=1
    )
    dropout: float = setting(0.5, "dropout before each layer that is followed by a ReLU", least=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``norm1``, ..., ``fc1``, ``fc2``, ``fc3`` and ``head``."""
        from torch import nn

        from ..base import image_shape
        from ..sequential import Classifier, linear_layers

        before, _, _ = image_shape(self, shape, 63)
        layers: list[tuple[str, nn.Module]] = []
        for i, (channels, kernel, stride, padding, pooled) in enumerate(CONVOLUTIONS, start=1):
            layers += [
                (f"conv{i}", nn.Conv2d(before, channels, kernel, stride, padding)),
                (f"norm{i}", self.norm(channels)),
                (f"act{i}", nn.ReLU(inplace=True)),
            ]
            if pooled:
                layers.append((f"pool{i}", nn.MaxPool2d(3, 2)))
            before = channels
        widths = [before * 6 * 6, *self.hidden]
        layers += [("mean", nn.AdaptiveAvgPool2d(6)), ("flatten", nn.Flatten())]
        layers += linear_layers(widths, last=False, dropout=self.dropout)
        return Classifier(layers, nn.Linear(widths[-1], classes))


PROVIDES = AlexNetGN
