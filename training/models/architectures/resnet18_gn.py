"""ResNet-18 with GroupNorm and a linear projector, as Zhou et al. (IMA) train it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import GroupNormed
from ..residual import ResNet

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ResNet18GN(ResNet, GroupNormed):
    """Like ``resnet18``, with GroupNorm instead of BatchNorm; mean over pixels, then 512-128-C.

    Chosen where the paper is silent: a 3 x 3 stem without pooling, and no ReLU between the last two layers, which it
    calls a linear projector; ``projector = 0`` is 512-C.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 10)

    projector: int = setting(128, "width of the linear layer before the head; 0 leaves it out", least=0)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``bn1``, ``layer1`` to ``layer4``, ``projector`` and ``fc``."""
        return self.network(shape, classes, (2, 2, 2, 2), self.norm, self.projector)


PROVIDES = ResNet18GN
