"""Simonyan and Zisserman's VGG-11 (ICLR 2015) with GroupNorm and a linear projector, as Zhou et al. (IMA) train it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import GroupNormed

if TYPE_CHECKING:
    from torch import nn

#: channels of the 3 x 3 convolutions, with a max-pooling after each row
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


@dataclass(frozen=True)
class VGG11GN(GroupNormed):
    """Eight convolutions 3 x 3, each with GroupNorm and ReLU, five max-poolings, then 512-128-C.

    Images of 32 pixels leave one pixel. Chosen: of larger ones the mean over what is left, and no ReLU between the
    last two layers, as in ``resnet18-gn``; ``projector = 0`` is 512-C.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 100)

    projector: int = setting(128, "width of the linear layer before the head; 0 leaves it out", least=0)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``norm1``, ..., ``conv8``, ``norm8``, ``fc1`` and ``head``."""
        from torch import nn

        from ..base import image_shape
        from ..sequential import Classifier, linear_layers

        before, _, _ = image_shape(self, shape, 2 ** len(STAGES))
        layers: list[tuple[str, nn.Module]] = []
        i = 0
        for stage, row in enumerate(STAGES, start=1):
            for channels in row:
                i += 1
                layers += [
                    (f"conv{i}", nn.Conv2d(before, channels, 3, padding=1)),
                    (f"norm{i}", self.norm(channels)),
                    (f"act{i}", nn.ReLU(inplace=True)),
                ]
                before = channels
            layers.append((f"pool{stage}", nn.MaxPool2d(2)))
        widths = [before, self.projector] if self.projector else [before]
        layers += [("mean", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten())]
        layers += linear_layers(widths, last=False)
        return Classifier(layers, nn.Linear(widths[-1], classes))


PROVIDES = VGG11GN
