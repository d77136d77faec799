"""Torch's own random numbers from a seed for a while, and the caller's as they were afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..checkpoints.io.random_streams import forked as forked
from ..checkpoints.io.random_streams import used_accelerator


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have torch draw what it draws after ``torch.manual_seed(seed)``; afterwards its generators are what they were.

    Those of the accelerator, too, which ``torch.manual_seed`` seeds along with the processor's: a user's dropout goes
    on where it was. One that has not been used yet is left alone: it would be started up, or seed itself later.

    >>> import torch
    >>> with seeded(3):
    ...     one = torch.rand(2)
    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     same = torch.equal(torch.rand(2), one)
    >>> same, torch.equal(torch.get_rng_state(), before)
    (True, True)
    """
    import torch

    with forked():
        # not torch.manual_seed, which tells an accelerator that has not been used yet to seed itself when it is
        torch.default_generator.manual_seed(seed)
        if (device := used_accelerator()) is not None:
            getattr(device, "manual_seed_all", device.manual_seed)(seed)
        yield
