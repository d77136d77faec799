"""Torch as fedscope expects it, whatever state the caller's program has put it in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

#: where the caller's program creates tensors, while fedscope creates them on the processor
_CALLERS: ContextVar[Any] = ContextVar("callers_device", default=None)


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Make tensors that every thread may write to, although the caller is within ``torch.inference_mode()``, which
    holds for one thread.

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


@contextmanager
def own_torch_state() -> Iterator[None]:
    """Create tensors on the processor unless something says where, and compute in the precision that is asked for, in
    :func:`ordinary_tensors`.

    ``torch.set_default_device`` would have generators and samples elsewhere than the models that they are for, and
    ``torch.autocast`` round products without a word. The caller's state comes back afterwards. Both are of the calling
    thread alone, so threads that work for it never had them. Where nobody has imported torch there is no state, and it
    is not imported for that: a stored result is drawn again without it.

    >>> import torch
    >>> with torch.device("meta"):
    ...     with own_torch_state():
    ...         here = torch.ones(2).device
    ...     here, torch.ones(2).device
    (device(type='cpu'), device(type='meta'))
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with ordinary_tensors(), ExitStack() as state:
        # only where it has to be: each is a step more in every call of torch
        if (device := torch.get_default_device()).type != "cpu":
            state.callback(_CALLERS.reset, _CALLERS.set(device))
            state.enter_context(torch.device("cpu"))
        accelerator = torch.accelerator.current_accelerator()
        for kind in ("cpu", *([] if accelerator is None else [accelerator.type])):
            if torch.is_autocast_enabled(kind):
                state.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def callers_device() -> Iterator[None]:
    """Create tensors where the caller's program does again: for data sets and loaders of its own, whose samples and
    generators lie there."""
    torch, device = sys.modules.get("torch"), _CALLERS.get()
    if torch is None or device is None:
        yield
        return
    with torch.device(device):
        yield


def without_sign_bit(value: Any) -> Any:
    """Return a tensor of torch whose numbers are those that lie there: an imaginary part of a conjugate is a view with
    a bit that turns their signs, which NumPy does not have."""
    return value.resolve_neg() if callable(getattr(value, "resolve_neg", None)) else value
