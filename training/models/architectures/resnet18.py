"""He et al., "Deep Residual Learning for Image Recognition", CVPR 2016: ResNet-18 with BatchNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..residual import ResNet

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ResNet18(ResNet):
    """Two basic blocks in each of four stages of 64, 128, 256 and 512 channels, then 512-C; BatchNorm.

    The layers' names are torchvision's. Chosen where FedSA (Wang et al., arXiv 2024), which trains it, is silent:
    BatchNorm, and a 3 x 3 stem without pooling, as is usual for small images; ``stem = "7x7"`` is the original one.
    What becomes of BatchNorm's statistics in averages is said in ``docs/methods.md``.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 10)
    blocks: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv1``, ``bn1``, ``layer1`` to ``layer4`` and ``fc``."""
        from torch import nn

        return self.network(shape, classes, self.blocks, nn.BatchNorm2d)


PROVIDES = ResNet18
