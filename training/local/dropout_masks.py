"""Dropout whose masks have an address: the processor's numbers, on every device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
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


class AddressedDropout(nn.modules.dropout._DropoutNd):
    """Dropout whose masks come from an addressed generator instead of torch's global stream, which threads share.

    A mask has the input's shape, or one entry a channel in the dropout of channels; kept values are divided by 1 - p.
    """

    _fedscope_channels = False
    #: of the module that the layer is in; copies of the module keep to their own
    _fedscope_draws: MaskStream

    def forward(self, x: Tensor) -> Tensor:
        """x mask / (1 - p) in training mode, x in evaluation mode; written to x where ``inplace``."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x.mul_(0) if self.inplace else x * 0
        shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if self._fedscope_channels else tuple(x.shape)
        kept = (self._fedscope_draws.uniform(shape, x.device) >= self.p).to(x.dtype)
        return x.mul_(kept).div_(1 - self.p) if self.inplace else x * kept / (1 - self.p)


class AddressedUnits(AddressedDropout, nn.Dropout):
    """``nn.Dropout`` so."""


class AddressedChannels1d(AddressedDropout, nn.Dropout1d):
    """``nn.Dropout1d`` so."""

    _fedscope_channels = True


class AddressedChannels2d(AddressedDropout, nn.Dropout2d):
    """``nn.Dropout2d`` so."""

    _fedscope_channels = True


class AddressedChannels3d(AddressedDropout, nn.Dropout3d):
    """``nn.Dropout3d`` so."""

    _fedscope_channels = True


_ADDRESSED: tuple[type[AddressedDropout], ...] = (
    AddressedUnits,
    AddressedChannels1d,
    AddressedChannels2d,
    AddressedChannels3d,
)


def address_dropout(module: nn.Module, draws: MaskStream) -> None:
    """Have the module's dropout layers draw their masks from ``draws``, in place.

    A layer stays what it is, with its hooks and settings. One of a class derived from torch's keeps its own ``forward``
    as well: what this asks of torch's by ``super()`` is addressed. What it draws otherwise it draws by itself.
    """
    for layer in module.modules():
        known: Any = type(layer)
        kind = known if isinstance(layer, AddressedDropout) else _addressed(known)
        if kind is not None:
            # past a __setattr__ of its class, which may refuse
            object.__setattr__(layer, "__class__", kind)
            object.__setattr__(layer, "_fedscope_draws", draws)
            draws.used = True


@lru_cache(maxsize=64)
def _addressed(kind: Any) -> Any:
    """Return the class that a layer of a class gets; None where it is no dropout of torch's."""
    for own in _ADDRESSED:
        torchs = own.__bases__[1]
        if kind is torchs:
            return own
        if issubclass(kind, torchs):
            # own's forward comes after those of the derived class, and before torch's
            named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
            return type(kind)(kind.__name__, (kind, own), named)
    return None
