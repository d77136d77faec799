"""He et al.'s ResNet-20 for CIFAR with GroupNorm, as Caldarola et al. (WIMA) train it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..base import GroupNormed

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ResNet20GN(GroupNormed):
    """A 3 x 3 convolution, three basic blocks in each of three stages of 16, 32 and 64 channels, then 64-C.

    Chosen where the paper is silent: groups of 2, and He et al.'s shortcuts without parameters (option A).
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 10)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``bn1``, ``layer1`` to ``layer3`` and ``fc``."""
        from ..base import image_shape
        from ..residual import PaddedShortcut, ResidualNetwork

        depth, _, _ = image_shape(self, shape, 4)
        return ResidualNetwork(depth, classes, (16, 32, 64), (3, 3, 3), self.norm, PaddedShortcut)


PROVIDES = ResNet20GN
