"""Numbers below float32's smallest normal one, 2 ** -126, taken for 0 in local training: a processor takes many times
as long for them as for others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Have the processor take subnormal numbers for 0 in this thread, what it reads and what it writes; afterwards it
    does as before.

    Clients of few classes fit samples so well that their gradients are subnormal. Such a gradient changes no weight
    that is not about as small itself. Does nothing where the processor cannot.

    >>> with subnormals_as_zero():
    ...     inside = takes_subnormals_as_zero()
    >>> takes_subnormals_as_zero()
    False
    """
    import torch

    before = takes_subnormals_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def takes_subnormals_as_zero() -> bool:
    """Check whether the processor takes subnormal numbers for 0 in this thread; torch sets it and does not tell."""
    import torch

    # of the processor and in float32, whatever torch makes by default
    return not bool(torch.tensor(2.0**-126, dtype=torch.float32, device="cpu") * 2.0**-4)
