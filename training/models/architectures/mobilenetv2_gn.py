"""Sandler et al., "MobileNetV2", CVPR 2018, with GroupNorm, as Caldarola et al. (WIMA) train it on GLDv2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...settings.settings import setting
from ..base import GroupNormed

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MobileNetV2GN(GroupNormed):
    """torchvision's MobileNetV2 with GroupNorm instead of BatchNorm; mean over pixels, dropout, then 1280-C.

    The layers' names are torchvision's. Its files are of BatchNorm, whose statistics have no place here.
    """

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 224, 224), 2028)

    dropout: float = setting(0.2, "dropout before the head", least=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``features.0`` to ``features.18`` and ``classifier.1``."""
        from torch import nn

        from ....distributed.torchvision_import import torchvision_part
        from ..base import image_shape

        depth, _, _ = image_shape(self, shape, 32)
        make = torchvision_part("models.mobilenetv2").MobileNetV2
        module: nn.Module = make(num_classes=classes, norm_layer=self.norm, dropout=self.dropout)
        if depth != 3:
            first = nn.Conv2d(depth, 32, 3, 2, 1, bias=False)
            nn.init.kaiming_normal_(first.weight, mode="fan_out")
            module.set_submodule("features.0.0", first)
        return module


PROVIDES = MobileNetV2GN
