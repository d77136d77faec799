"""Dropout whose masks have an address: the processor's numbers, on every device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from .to_device import send

#: uniform numbers that are drawn ahead for a device at once: at least, and at most (16 MB)
FEWEST, MOST = 1 << 16, 1 << 22


@dataclass
class _Block:
    """Numbers that were drawn in one piece, on the device, and those that follow, once they are drawn."""

    numbers: Tensor
    after: _Block | None = None


class MaskStream:
    """The uniform numbers that a module's dropout layers share, drawn on the processor whatever the device.

    For a device they are drawn ahead and sent in one piece: a draw of n numbers gives those of draws of n_1 and n_2
    with n_1 + n_2 = n, so that it does not matter in which pieces, nor of which shapes the masks are.

    Attributes:
        generator: the processor's; None outside local training, where torch's own stream of the device is used.
        used: whether the module has such layers.
    """

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None
        self.used = False
        self._block: _Block | None = None
        self._at = self._drawn = 0

    def __deepcopy__(self, memo: object) -> MaskStream:
        return MaskStream()

    def begin(self, generator: torch.Generator, device: torch.device) -> None:
        """Go to the beginning of another stream."""
        self.generator = generator
        self._block = None if device.type == "cpu" else _Block(torch.empty(0, device=device))
        self._at = self._drawn = 0

    def place(self) -> Any:
        """Where the stream stands; None outside local training."""
        if self._block is not None:
            return self._block, self._at
        return None if self.generator is None else self.generator.get_state()

    def go_back(self, place: Any) -> None:
        """Go back to a place, whose numbers follow again."""
        if self.generator is None or place is None:
            return
        if isinstance(place, tuple):
            self._block, self._at = place
        else:
            self.generator.set_state(place)

    def uniform(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Return the next numbers, float32 in [0, 1)."""
        if self._block is None:
            return torch.rand(shape, generator=self.generator, device=device, dtype=torch.float32)
        return self._ahead(prod(shape), device).view(shape)

    def _ahead(self, count: int, device: torch.device) -> Tensor:
        parts: list[Tensor] = []
        block = self._block
        assert block is not None
        while count:
            if self._at == len(block.numbers):
                if block.after is None:
                    block.after = self._draw(count, device)
                block, self._at = block.after, 0
            part = block.numbers[self._at : self._at + count]
            parts.append(part)
            self._at += len(part)
            count -= len(part)
        self._block = block
        return parts[0] if len(parts) == 1 else torch.cat([torch.empty(0, device=device), *parts])

    def _draw(self, count: int, device: torch.device) -> _Block:
        """Draw the numbers that are needed now, and as many as make up a half of those before."""
        size = max(count, min(MOST, max(FEWEST, self._drawn // 2)))
        self._drawn += size
        return _Block(send(torch.rand(size, generator=self.generator, dtype=torch.float32), device))


class AddressedDropout(nn.Module):
    """Dropout whose masks come from an addressed generator instead of torch's global stream, which threads share.

    A mask has the input's shape, or one entry a channel where ``channels``; kept values are divided by 1 - p.
    """

    def __init__(self, p: float, channels: bool, draws: MaskStream) -> None:
        super().__init__()
        self.p, self.channels = p, channels
        # not a sub-module, and the same object in every layer; copies of the module keep to its own
        self._draws = draws

    def forward(self, x: Tensor) -> Tensor:
        """x mask / (1 - p) in training mode, x in evaluation mode."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if self.channels else tuple(x.shape)
        kept = self._draws.uniform(shape, x.device) >= self.p
        return x * kept.to(x.dtype) / (1 - self.p)


def address_dropout(module: nn.Module, draws: MaskStream) -> None:
    """Replace the module's dropout layers, in place; they have no parameters, so its layout stays."""
    for name, layer in module.named_children():
        if isinstance(layer, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            replaced = AddressedDropout(layer.p, not isinstance(layer, nn.Dropout), draws)
            setattr(module, name, replaced)
            draws.used = True
        else:
            address_dropout(layer, draws)
