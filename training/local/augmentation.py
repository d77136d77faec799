"""Random crops and flips of images: numbers that are drawn on the processor, windows that are taken where the images
are."""

from __future__ import annotations

import torch
from torch import Tensor

PADDING = 4

#: of n images: the first row and column of each one's window in its padded image, and whether it is mirrored; [n, 1]
Windows = tuple[Tensor, Tensor, Tensor]


def crop_and_flip(x: Tensor, shifts: torch.Generator, padding: int = PADDING) -> Tensor:
    """Random crops of the zero-padded images and random flips, [n, c, h, w]; the usual CIFAR augmentation.

    out[i, :, a, b] = padded[i, :, r_i + a, k_i + b], mirrored in b where f_i, with r_i, k_i uniform in
    {0, ..., 2 padding} and f_i a coin's throw, drawn for all images at once. Channels last in memory.
    """
    return take_windows(x, draw_windows(len(x), shifts, padding), padding)


def draw_windows(n: int, shifts: torch.Generator, padding: int = PADDING) -> Windows:
    """Draw r, k and f of n images, see :func:`crop_and_flip`."""
    rows = torch.randint(0, 2 * padding + 1, (n, 1), generator=shifts)
    columns = torch.randint(0, 2 * padding + 1, (n, 1), generator=shifts)
    return rows, columns, torch.rand(n, 1, generator=shifts) < 0.5


def take_windows(x: Tensor, windows: Windows, padding: int = PADDING) -> Tensor:
    """Take the windows of images that lie on the same device."""
    n, c, h, w = x.shape
    rows = windows[0] + torch.arange(h, device=x.device)
    columns = windows[1] + torch.arange(w, device=x.device)
    columns = torch.where(windows[2], columns.flip(1), columns)
    height, width = h + 2 * padding, w + 2 * padding
    padded = x.new_zeros(n, height, width, c)
    padded[:, padding : padding + h, padding : padding + w] = x.permute(0, 2, 3, 1)
    # one flat index of pixels: a third of the time of an index by image, row and column
    pixels = (torch.arange(n, device=x.device)[:, None] * height + rows)[:, :, None] * width + columns[:, None, :]
    picked = padded.view(-1, c).index_select(0, pixels.flatten())
    return picked.view(n, h, w, c).permute(0, 3, 1, 2)


def as_numbers(windows: Windows) -> Tensor:
    """Write windows as one tensor of integers [3, n], which is sent in one piece."""
    return torch.stack([part[:, 0].long() for part in windows])


def from_numbers(numbers: Tensor) -> Windows:
    """Read what :func:`as_numbers` wrote."""
    rows, columns, flipped = numbers[:, :, None]
    return rows, columns, flipped.bool()
