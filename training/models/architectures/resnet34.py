"""He et al., CVPR 2016: ResNet-34 with BatchNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .resnet18 import ResNet18


@dataclass(frozen=True)
class ResNet34(ResNet18):
    """Like ``resnet18``, with 3, 4, 6 and 3 blocks."""

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 32, 32), 100)
    blocks: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)


PROVIDES = ResNet34
