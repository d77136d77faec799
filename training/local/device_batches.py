"""Mini-batches on an accelerator: an epoch's order and augmentation are sent in one piece, samples are gathered some
batches at a time, and nobody waits for the device.

The numbers are those of the batches on a processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...evaluation.uint8_images import Inputs
from .augmentation import PADDING, as_numbers, draw_windows, from_numbers, take_windows
from .to_device import send

if TYPE_CHECKING:
    from .local_training import LocalTask

#: bytes of the samples that are gathered at once, where they are more than one batch
AT_ONCE = 1 << 25


def batches_of_epoch(
    task: LocalTask, rows: np.ndarray, sizes: Sequence[int], shifts: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield an epoch's batches.

    Args:
        rows: the client's samples in the order of the epoch.
        sizes: of the batches.
        shifts: what augmentation is drawn from, batch by batch; None for none.
    """
    numbers = torch.from_numpy(rows)[None]
    if shifts is not None:
        drawn = [as_numbers(draw_windows(size, shifts)) for size in sizes]
        numbers = torch.cat([numbers, torch.cat(drawn, 1)])
    there = send(numbers, task.x.device)
    first = 0
    for group in grouped(sizes, sample_bytes(task.x)):
        x, y = gather(task.x, task.y, there[:, first : first + sum(group)])
        first += sum(group)
        yield from zip(torch.split(x, group), torch.split(y, group), strict=True)


def gathered_on_device(
    x: Inputs, y: Tensor, index: np.ndarray, counts: np.ndarray, shifts: Sequence[torch.Generator | None]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the samples of several clients step by step, x [C, B, ...] and y [C, B, ...].

    Args:
        index: rows of the data, [steps, C, B].
        counts: how many of a step's samples are a client's, [steps, C]: its augmentation is drawn for these, and what
            fills up the others is left as it is.
        shifts: what augmentation is drawn from, one a client; None, or no entry, for none.
    """
    numbers = torch.from_numpy(index)[None]
    if any(draws is not None for draws in shifts):
        windows = torch.tensor([PADDING, PADDING, 0])[:, None, None, None].repeat(1, *index.shape)
        for k, draws in enumerate(shifts):
            for step, count in enumerate(counts[:, k].tolist()):
                if draws is not None and count:
                    windows[:, step, k, :count] = as_numbers(draw_windows(count, draws))
        numbers = torch.cat([numbers, windows])
    there = send(numbers, x.device)
    steps = max(1, AT_ONCE // (sample_bytes(x) * max(1, index[0].size)))
    for first in range(0, len(index), steps):
        found = gather(x, y, there[:, first : first + steps].flatten(1))
        yield from zip(*(values.view(-1, *index.shape[1:], *values.shape[1:]) for values in found), strict=True)


def gather(x: Inputs, y: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Read samples, and crop and flip them: by their rows [1, n], or with their windows below [4, n]."""
    found = x[numbers[0]]
    return (found if len(numbers) == 1 else take_windows(found, from_numbers(numbers[1:]))), y[numbers[0]]


def sample_bytes(x: Inputs) -> int:
    """Return the bytes of a sample as it is read."""
    return prod(x.shape[1:]) * x.dtype.itemsize


def grouped(sizes: Sequence[int], each: int) -> Iterator[list[int]]:
    """Group batches that are gathered at once; ``each`` is the bytes of a sample.

    >>> list(grouped([4, 4, 4, 1], AT_ONCE // 8))
    [[4, 4], [4, 1]]
    """
    group: list[int] = []
    for size in sizes:
        if group and (sum(group) + size) * each > AT_ONCE:
            yield group
            group = []
        group.append(size)
    if group:
        yield group
