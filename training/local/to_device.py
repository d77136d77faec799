"""Bring what the processor knows to a device, without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def send(values: Any, device: torch.device) -> Tensor:
    """An array or tensor of the processor's on a device; on the processor itself without a copy, where there need be
    none.

    From pinned memory, from which a device reads by itself: a copy from elsewhere waits until the device has done all
    that it was given before.

    >>> send([1.0, 2.0], torch.device("cpu"))
    tensor([1., 2.])
    """
    here = torch.as_tensor(values)
    if device.type in ("cpu", "mps") or here.device.type != "cpu":  # mps: its memory is the processor's
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)
