"""Switches of torch that belong to the process and not to a thread: thrown for a while, and put back by the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock

import torch


class Shared:
    """A context that changes the whole process: the first to enter enters it, and the last to leave leaves it.

    Were it entered by every thread, the second one would find what the first one has set, and put that back in the end.

    >>> from contextlib import contextmanager
    >>> said = []
    >>> @contextmanager
    ... def told():
    ...     said.append("on")
    ...     yield
    ...     said.append("off")
    >>> shared = Shared(told)
    >>> with shared(), shared():
    ...     pass
    >>> said
    ['on', 'off']
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make, self._lock = make, Lock()
        self._inside, self._left = 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be within the context, with all others that are."""
        with self._lock:
            if not self._inside:
                self._left.enter_context(self._make())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._left.close()


@contextmanager
def _without_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _without_onednn() -> Iterator[None]:
    # not torch.backends.mkldnn.flags, which sets what only Intel's GPUs have, and warns of it
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def _without_cudnn() -> Iterator[None]:
    # no more than this: torch's own context also sets and reads TF32 flags, which fails where the caller has used the
    # newer ones
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before


@contextmanager
def _float32_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


#: attention by its plain formula, which can be differentiated twice and is made of operations that are seen
plain_attention = Shared(lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
#: layers of transformers without the form that is made for weights without gradients
without_fast_path = Shared(_without_fast_path)
#: products and convolutions by ATen itself
without_onednn = Shared(_without_onednn)
#: recurrent layers in the form that can be differentiated in evaluation mode
without_cudnn = Shared(_without_cudnn)
#: tensors that say no type
float32_by_default = Shared(_float32_by_default)
