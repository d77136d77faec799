"""Torch's own random numbers from a seed for a while, and the caller's as they were afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
    with forked():
        import torch

        # not torch.manual_seed, which tells an accelerator that has not been used yet to seed itself when it is
        torch.default_generator.manual_seed(seed)
        if (device := _used_accelerator()) is not None:
            getattr(device, "manual_seed_all", device.manual_seed)(seed)
        yield


@contextmanager
def forked() -> Iterator[None]:
    """Whatever is drawn meanwhile, torch's generators are afterwards what they were before."""
    import torch

    device = _used_accelerator()
    before = torch.get_rng_state()
    states = [] if device is None else [device.get_rng_state(i) for i in range(device.device_count())]
    try:
        yield
    finally:
        torch.set_rng_state(before)
        for i, state in enumerate(states):
            device.set_rng_state(state, i)


def _used_accelerator() -> Any:
    """Return torch's module of the accelerator, if that has been used; None else."""
    import torch

    # says what torch was built for, and starts nothing
    kind = torch.accelerator.current_accelerator()
    module: Any = None if kind is None else getattr(torch, kind.type, None)
    if module is None:
        return None
    # mps does not say; its generator is there from the beginning
    used = module.is_initialized() if hasattr(module, "is_initialized") else torch.accelerator.is_available()
    return module if used else None
