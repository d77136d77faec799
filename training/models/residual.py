"""Residual networks of torchvision's basic blocks, for small images and with any normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from ...distributed.torchvision_import import torchvision_part
from ..settings.settings import setting
from .base import Architecture, image_shape

Norm = Callable[[int], nn.Module]
#: from channels before, channels after and stride to what a block adds where its shape changes
Shortcut = Callable[[int, int, int], nn.Module]

WIDTHS = (64, 128, 256, 512)


@dataclass(frozen=True)
class ResNet(Architecture):
    """The common part of ResNets with four stages."""

    stem: Literal["3x3", "7x7"] = setting(
        "3x3", "3x3: stride 1, no pooling, for small images; 7x7: stride 2, then max-pooling, as for ImageNet"
    )

    def network(
        self,
        shape: tuple[int, ...],
        classes: int,
        blocks: Sequence[int],
        norm: Norm,
        projector: int = 0,
    ) -> ResidualNetwork:
        """Return the module with a stage of 64, 128, 256 and 512 channels for each number of ``blocks``."""
        depth, _, _ = image_shape(self, shape, 8 if self.stem == "3x3" else 32)
        return ResidualNetwork(
            depth, classes, WIDTHS, blocks, norm, projection(norm), large_stem=self.stem == "7x7", projector=projector
        )


class ResidualNetwork(nn.Module):
    """A stem, stages of basic blocks that halve the image, the mean over its pixels, then linear layers.

    Layers are called as in torchvision's ResNet, so that its files fit: ``conv1``, ``bn1`` (whatever normalises),
    ``layer1``, ``layer2``, ..., ``projector`` where there is one, and the head ``fc``. Convolutions are initialised as
    there (He et al., 2015, fan out), linear layers as torch does.

    Args:
        depth: channels of an image.
        widths: channels of the stages; blocks: how many blocks each has.
        norm: a layer for so many channels.
        shortcut: of blocks that change the shape.
        large_stem: 7 x 7 with stride 2 and max-pooling instead of 3 x 3.
        projector: width of a linear layer between the mean and the head; 0 for none.
    """

    def __init__(
        self,
        depth: int,
        classes: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        norm: Norm,
        shortcut: Shortcut,
        *,
        large_stem: bool = False,
        projector: int = 0,
    ) -> None:
        super().__init__()
        block = torchvision_part("models.resnet").BasicBlock
        kernel, stride, padding = (7, 2, 3) if large_stem else (3, 1, 1)
        self.conv1 = nn.Conv2d(depth, widths[0], kernel, stride, padding, bias=False)
        self.bn1 = norm(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large_stem else nn.Identity()
        self._stages = [f"layer{i}" for i, _ in enumerate(widths, start=1)]
        before = widths[0]
        for name, width, count in zip(self._stages, widths, blocks, strict=True):
            stride = 1 if name == self._stages[0] else 2
            changes = stride != 1 or before != width
            first = block(before, width, stride, shortcut(before, width, stride) if changes else None, norm_layer=norm)
            others = [block(width, width, norm_layer=norm) for _ in range(count - 1)]
            self.add_module(name, nn.Sequential(first, *others))
            before = width
        self.projector = nn.Linear(before, projector) if projector else nn.Identity()
        self.fc = nn.Linear(projector or before, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits, [n, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.fc(self.projector(functional.adaptive_avg_pool2d(x, 1).flatten(1)))
        return logits


def projection(norm: Norm) -> Shortcut:
    """A strided 1 x 1 convolution and a normalisation (He et al.'s option B), as torchvision has it."""

    def make(before: int, after: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm(after))

    return make


class PaddedShortcut(nn.Module):
    """Every ``stride``-th pixel, with channels of zeros on both sides (He et al.'s option A): no parameters.

    >>> import torch
    >>> PaddedShortcut(2, 4, 2)(torch.ones(1, 2, 4, 4))[0, :, 0, 0].tolist()
    [0.0, 1.0, 1.0, 0.0]
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride, self.lower = stride, (after - before) // 2
        self.upper = after - before - self.lower

    def forward(self, x: Tensor) -> Tensor:
        """[n, before, h, w] to [n, after, h / stride, w / stride]."""
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.lower, self.upper))
