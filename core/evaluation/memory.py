"""Work in batches that a device has no memory for: again in halves, or one sentence; and what batches left behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..checkpoints import FedscopeError
from ..checkpoints.io.warn_user import warn_user
from .accelerators import empty_cache, is_out_of_memory

Result = TypeVar("Result")


def halve_without_memory(attempt: Callable[[int], Result], batch: int, device: str, *, of: str) -> tuple[Result, int]:
    """Return ``attempt(batch)``, and the batch it was: halved as often as the device runs out of memory.

    Args:
        attempt: begins anew each time it is called.
        batch: how many at a time.
        of: what the batches are of, for the sentences: ``samples of digits/test``.

    Raises:
        FedscopeError: memory does not do for a single one.

    >>> halve_without_memory(lambda batch: 10 * batch, 4, "cpu", of="samples")
    (40, 4)
    """
    while True:
        try:
            return attempt(batch), batch
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if batch == 1:
                raise FedscopeError(
                    f"{device} has no memory left for even one of the {of} at a time; free some of it, or give "
                    "--device cpu"
                ) from None
        # outside of `except`, which keeps the tensors of the failed attempt alive
        empty_cache(device)
        warn_user(f"{device} ran out of memory with {batch:,} {of} at a time; going on with {batch // 2:,}")
        batch //= 2


def return_freed_memory() -> None:
    """Have glibc give back to the system what is free in it: workers' threads leave what their batches took, which
    nothing else can use. It takes milliseconds. Nothing to do on other systems."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
