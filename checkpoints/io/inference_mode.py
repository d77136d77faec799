"""The caller's ``torch.inference_mode()``, which holds for one thread: its tensors cannot be written to by workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Make tensors that every thread may write to, although the caller is within ``torch.inference_mode()``.

    Every public function that measures or trains does its work in it. torch is not loaded for it.

    >>> import torch
    >>> @ordinary_tensors()
    ... def made():
    ...     return torch.ones(2)
    >>> with torch.inference_mode():
    ...     torch.ones(2).is_inference(), made().is_inference()
    (True, False)
    """
    torch = sys.modules.get("torch")
    if torch is None or not getattr(torch, "is_inference_mode_enabled", bool)():
        yield
        return
    with torch.inference_mode(False):
        yield
