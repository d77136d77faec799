"""Dropout whose masks have an address: the processor's numbers, on every device."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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


def dropped(x: Tensor, draws: MaskStream, *, p: float, training: bool, inplace: bool, channels: bool) -> Tensor:
    """Return x mask / (1 - p) in training mode, x in evaluation mode; written to x where ``inplace``.

    Args:
        channels: whether a mask has one entry a channel, else the input's shape.
    """
    if not training or p == 0:
        return x
    if p == 1:
        return x.mul_(0) if inplace else x * 0
    shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if channels else tuple(x.shape)
    kept = (draws.uniform(shape, x.device) >= p).to(x.dtype)
    return x.mul_(kept).div_(1 - p) if inplace else x * kept / (1 - p)


class AddressedDropout(nn.modules.dropout._DropoutNd):
    """Dropout whose masks come from an addressed generator instead of torch's global stream, which threads share.

    A mask has the input's shape, or one entry a channel in the dropout of channels; kept values are divided by 1 - p.
    """

    _fedscope_channels = False
    #: of the module that the layer is in; copies of the module keep to their own
    _fedscope_draws: MaskStream

    def forward(self, x: Tensor) -> Tensor:
        """As :func:`dropped` has it, by the layer's settings."""
        return dropped(
            x,
            self._fedscope_draws,
            p=self.p,
            training=self.training,
            inplace=self.inplace,
            channels=self._fedscope_channels,
        )


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


#: by the class of torch's that a layer is of, exactly
_ADDRESSED: dict[type[nn.Module], type[AddressedDropout]] = {
    nn.Dropout: AddressedUnits,
    nn.Dropout1d: AddressedChannels1d,
    nn.Dropout2d: AddressedChannels2d,
    nn.Dropout3d: AddressedChannels3d,
}
#: the layers that are addressed
DROPOUT = tuple(_ADDRESSED)
#: what these layers call, and whether it drops channels
_FUNCTIONS: dict[Any, bool] = {
    functional.dropout: False,
    functional.dropout1d: True,
    functional.dropout2d: True,
    functional.dropout3d: True,
}


class _Addressing(TorchFunctionMode):
    """Has what is dropped by torch's functions (``functional.dropout``) drawn from a stream, in this thread."""

    def __init__(self, draws: MaskStream) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _FUNCTIONS:
            return func(*args, **(kwargs or {}))
        return self._drop(_FUNCTIONS[func], *args, **(kwargs or {}))

    def _drop(self, channels: bool, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")  # as torch says
        return dropped(x, self._draws, p=p, training=training, inplace=inplace, channels=channels)


class OwnForward:
    """The ``forward`` of a dropout layer that has one of its own, or that of its class; what it drops is addressed.

    It lies on the layer, whose class stays: that may forbid classes derived from it, or ask for it by name. Copies of
    the layer have copies of this.
    """

    def __init__(self, layer: nn.Module, draws: MaskStream) -> None:
        self.layer, self.draws = layer, draws
        self.given = vars(layer).get("forward")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        with _Addressing(self.draws):
            if self.given is not None:
                return self.given(*inputs, **named)
            return type(self.layer).forward(self.layer, *inputs, **named)


def address_dropout(module: nn.Module, draws: MaskStream) -> None:
    """Have the module's dropout layers draw their masks from ``draws``, in place.

    A layer stays what it is, with its hooks and settings. One of a class derived from torch's keeps its own ``forward``
    as well: what this drops by torch's functions is addressed. What it draws otherwise it draws by itself.
    """
    for layer in module.modules():
        if not isinstance(layer, DROPOUT):
            continue
        draws.used = True
        own = vars(layer).get("forward")
        if isinstance(own, OwnForward):
            own.draws = draws
        elif has_own_forward(layer):
            # past a __setattr__ of its class, which may refuse
            vars(layer)["forward"] = OwnForward(layer, draws)
        else:
            kind = type(layer) if isinstance(layer, AddressedDropout) else _ADDRESSED[type(layer)]
            object.__setattr__(layer, "__class__", kind)
            object.__setattr__(layer, "_fedscope_draws", draws)


def has_own_forward(layer: nn.Module) -> bool:
    """Check whether a dropout layer is of a class derived from torch's, or has a ``forward`` of its own.

    >>> has_own_forward(nn.Dropout(0.1)), has_own_forward(type("Mine", (nn.Dropout,), {})(0.1))
    (False, True)
    """
    return "forward" in vars(layer) or not (type(layer) in _ADDRESSED or isinstance(layer, AddressedDropout))
