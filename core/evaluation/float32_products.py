"""Whether an accelerator multiplies float32 as float32: torch's flags, set for a while and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_LOCK = Lock()
#: how many are inside, and what the caller had: the flags are the process's, and several devices' workers set them
_inside: list[list[tuple[Any, str, Any]]] = []


@contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Float32 products are float32, or TF32 where ``tf32``; afterwards the caller's flags are what they were.

    torch has TF32 on for convolutions by default. cuDNN takes algorithms that give the same bits again. Of workers that
    are inside at the same time the last one to leave puts the flags back; all of a computation want the same.
    """
    with _LOCK:
        before = _set(tf32) if not _inside else []
        _inside.append(before)
    try:
        yield
    finally:
        with _LOCK:
            # whoever leaves last: what was there before stands in the first entry
            first = _inside[0]
            _inside.pop()
            if not _inside:
                for place, name, value in first:
                    setattr(place, name, value)


def _set(tf32: bool) -> list[tuple[Any, str, Any]]:
    """Set the flags, and return what they were."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    kinds: list[tuple[Any, str, Any]]
    if hasattr(matmul, "fp32_precision"):
        # reading allow_tf32 fails where the caller has used these, and setting it leaves others unreadable
        kinds = [(place, "fp32_precision", "tf32" if tf32 else "ieee") for place in (matmul, cudnn.conv, cudnn.rnn)]
    else:
        kinds = [(place, "allow_tf32", tf32) for place in (matmul, cudnn)]
    wanted = [*kinds, (cudnn, "deterministic", True), (cudnn, "benchmark", False)]
    before = [(place, name, getattr(place, name)) for place, name, _ in wanted]
    for place, name, value in wanted:
        setattr(place, name, value)
    return before
