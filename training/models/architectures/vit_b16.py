"""Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021: the vision transformer ViT-B/16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from ....checkpoints import FedscopeError
from ...settings.settings import setting
from ..base import Architecture

if TYPE_CHECKING:
    from torch import Tensor, nn

PATCH, WIDTH = 16, 768


@dataclass(frozen=True)
class ViTB16(Architecture):
    """torchvision's ViT-B/16: patches of 16 x 16 pixels, twelve blocks of width 768 with twelve heads, then 768-C.

    The layers' names are torchvision's. Images are square; a position's embedding belongs to its place in them, so
    weights of 224 pixels fit images of 224 pixels. The head begins at 0, as there.
    """

    side: int | None = setting(
        None,
        "side in pixels to which images are resized (bilinear) before they are cut into patches; default: no resizing",
        least=16,
    )

    counted: ClassVar[tuple[tuple[int, ...], int]] = ((3, 224, 224), 200)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Layers ``conv_proj``, ``encoder.layers.encoder_layer_0`` to ``_11``, ``encoder.ln`` and ``heads.head``."""
        from torch import nn

        from ....distributed.torchvision_import import torchvision_part
        from ..base import image_shape

        depth, height, width = image_shape(self, shape, 1 if self.side else PATCH)
        if self.side:
            height = width = self.side
        if height != width or height % PATCH:
            raise FedscopeError(
                f"model.name = 'vit-b16' cuts square images into patches of {PATCH} x {PATCH} pixels, but a sample has "
                f"shape {list(shape)}; have them resized to a multiple of {PATCH}: --set model.side=224"
            )
        make = torchvision_part("models.vision_transformer").VisionTransformer
        module: nn.Module = make(
            image_size=height,
            patch_size=PATCH,
            num_layers=12,
            num_heads=12,
            hidden_dim=WIDTH,
            mlp_dim=4 * WIDTH,
            num_classes=classes,
        )
        if depth != 3:
            first = nn.Conv2d(depth, WIDTH, PATCH, PATCH)
            nn.init.trunc_normal_(first.weight, std=sqrt(1 / (depth * PATCH**2)))
            assert first.bias is not None, "made with one"
            nn.init.zeros_(first.bias)
            module.set_submodule("conv_proj", first)
        if self.side and shape[1:] != (self.side, self.side):
            module.register_forward_pre_hook(partial(_resized, self.side))
        return module


def _resized(side: int, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """The images [n, c, h, w] of a batch as [n, c, side, side]."""
    from torch.nn.functional import interpolate

    return (interpolate(inputs[0], size=(side, side), mode="bilinear", align_corners=False),)


PROVIDES = ViTB16
