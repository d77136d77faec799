"""Devices without float64, as Apple's: where sums are made instead, and how they are refused."""

from __future__ import annotations

from dataclasses import replace

from ..checkpoints import FedscopeError
from .accelerators import has_float64
from .device import Compute


def where_float64(compute: Compute) -> Compute:
    """Return where sums in float64 are made: there, or on the processor where the device has no float64.

    >>> where_float64(Compute("cpu", workers=2))
    Compute(device='cpu', precision='float32', workers=2)
    """
    return compute if has_float64(compute.device) else replace(compute, device="cpu", workers=None)


def require_float64(device: str, what: str) -> None:
    """Refuse a device that cannot compute what is in float64 throughout.

    Args:
        what: is computed in float64, for the sentence.

    Raises:
        FedscopeError: the device has no float64.
    """
    if not has_float64(device):
        raise FedscopeError(f"{what} is computed in float64, which {device} does not have; give --device cpu")
