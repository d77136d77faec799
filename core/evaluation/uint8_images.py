"""Images that stay bytes until a batch of them is read."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..old_paths import names_of

#: bytes of standardised numbers that an evaluation keeps, so that it standardises them once and not for every model
HELD = 1 << 28


class Uint8Images:
    """Inputs kept as bytes, a quarter of their room, and standardised when they are read, in float32:

        x = (byte / 255 − mean_c) / deviation_c

    the same bits as standardising all of them at once. As a memory map of a file they need no room of their own. What
    is read are images [n, c, h, w], channels last in memory, or rows [n, d].

    Args:
        stored: uint8 [n, h, w, c], [n, h, w] or [n, d].
        means, deviations: float32, one a channel; of rows one in all.
        dtype: of what is read.

    >>> x = Uint8Images(torch.tensor([[[0], [255]]], dtype=torch.uint8)[None], np.float32([0.5]), np.float32([0.5]))
    >>> x.shape, x[:1].flatten().tolist()
    (torch.Size([1, 1, 1, 2]), [-1.0, 1.0])
    """

    def __init__(
        self, stored: Tensor, means: np.ndarray, deviations: np.ndarray, dtype: torch.dtype = torch.float32
    ) -> None:
        self.stored, self.dtype = stored, dtype
        self.means, self.deviations = (np.asarray(values, np.float32).ravel() for values in (means, deviations))
        self._image = tuple(stored.shape[1:]) if stored.dim() == 4 else (*stored.shape[1:], 1)
        self._flat = stored.reshape(len(stored), -1)
        repeats = self._flat.shape[1] // len(self.means)
        self._means, self._deviations = (
            torch.from_numpy(np.tile(values, repeats)).to(stored.device) for values in (self.means, self.deviations)
        )
        # a tensor, because a GPU multiplies by the inverse of a number
        self._greatest = torch.full((1,), 255.0, device=stored.device)

    @property
    def shape(self) -> torch.Size:
        """The shape of what is read: [n, c, h, w] or [n, d]."""
        if self.stored.dim() == 2:
            return self.stored.shape
        *pixels, channels = self._image
        return torch.Size((len(self.stored), channels, *pixels))

    @property
    def device(self) -> torch.device:
        """The device of the bytes, and of what is read of them."""
        return self.stored.device

    @property
    def nbytes(self) -> int:
        """The bytes that all would need standardised."""
        return prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.stored)

    def dim(self) -> int:
        """Return the number of dimensions of what is read."""
        return len(self.shape)

    def is_floating_point(self) -> bool:
        """Return True: samples are read as floating numbers."""
        return True

    def __getitem__(self, rows: slice | Tensor | np.ndarray) -> Tensor:
        """Read some samples, standardised."""
        if isinstance(rows, slice):
            part = self._flat[rows]
        else:
            part = self._flat.index_select(0, torch.as_tensor(rows).to(self.device))
        x = part.to(torch.float32).div_(self._greatest).sub_(self._means).div_(self._deviations)
        if self.stored.dim() > 2:
            x = x.view(-1, *self._image).permute(0, 3, 1, 2)
        return x.to(self.dtype)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Uint8Images:
        """Put the same bytes on a device, to be read as another type."""
        stored = self.stored if device is None else self.stored.to(device)
        return Uint8Images(stored, self.means, self.deviations, dtype or self.dtype)

    def held(self) -> Uint8Images | Tensor:
        """Standardise all samples, where they take no more than ``HELD``; else return these."""
        return self[:] if self.nbytes <= HELD else self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        made = self[:].cpu().numpy()
        return made if dtype is None else made.astype(dtype)


#: what a loss is measured on
Inputs = Tensor | Uint8Images


def in_batches(x: Inputs, size: int) -> Iterator[Tensor]:
    """Yield all samples in their order, so many at a time; bytes are standardised when it is their turn."""
    for start in range(0, len(x), size):
        yield x[start : start + size]


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
