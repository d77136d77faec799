"""Which arithmetic products run in, said once for forward passes and for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...checkpoints import FedscopeError

PRECISIONS = ("float32", "tf32", "bf16")


def known_precision(precision: str) -> str:
    """The precision, if it is one.

    Raises:
        FedscopeError: it is none of float32, tf32, bf16.
    """
    if precision not in PRECISIONS:
        raise FedscopeError(f"precision {precision!r} is unknown; take one of {', '.join(PRECISIONS)}")
    return precision


@contextmanager
def products(device: torch.device, precision: str) -> Iterator[None]:
    """Float32 products are float32: on a GPU TF32 is on for ``tf32`` only, though torch has it on for convolutions."""
    if device.type != "cuda":
        yield
        return
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark
    products.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic, cudnn.benchmark = True, False  # the same numbers in a resumed run
    try:
        yield
    finally:
        products.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def forward(device: torch.device, precision: str) -> torch.autocast:
    """Autocast for a forward pass in ``bf16``, nothing for the others."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
