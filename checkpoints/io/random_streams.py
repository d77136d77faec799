"""Random numbers that the user's program draws, left as they are by whatever of its code is called meanwhile; torch and
others are looked at where they were imported, and not imported for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def undrawn(holders: Iterable[Any] = ()) -> Iterator[None]:
    """Whatever is drawn meanwhile, the streams that a program shares are afterwards what they were before: torch's,
    Python's and NumPy's. So are generators that these objects, their classes or the modules of these name.

    >>> import random
    >>> before = random.getstate()
    >>> with undrawn():
    ...     _ = random.random()
    >>> random.getstate() == before
    True
    """
    held = [(one, _state_of(one)) for one in _generators_of(holders)]
    shared = [(put_back, state) for state, put_back in _shared()]
    try:
        with forked():
            yield
    finally:
        for put_back, state in shared:
            put_back(state)
        for one, state in held:
            _set_state(one, state)


@contextmanager
def forked() -> Iterator[None]:
    """Whatever is drawn meanwhile, torch's generators are afterwards what they were before."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    device = used_accelerator()
    before = torch.get_rng_state()
    states = [] if device is None else [device.get_rng_state(i) for i in range(device.device_count())]
    try:
        yield
    finally:
        torch.set_rng_state(before)
        for i, state in enumerate(states):
            device.set_rng_state(state, i)


def used_accelerator() -> Any:
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


def _shared() -> Iterator[tuple[Any, Callable[[Any], object]]]:
    """Yield the states of Python's and NumPy's streams, and what puts each back."""
    if (ours := sys.modules.get("random")) is not None:
        yield ours.getstate(), ours.setstate
    if (numpys := sys.modules.get("numpy.random")) is not None:  # of whatever kind the program has put there
        yield numpys.get_state(legacy=False), numpys.set_state


def _generators_of(holders: Iterable[Any]) -> Iterator[Any]:
    """Yield the generators that objects, their classes and the modules of these name; each once."""
    known = _kinds()
    holders = [*holders]
    classes = {kind for one in holders for kind in type(one).__mro__ if not kind.__module__.startswith("torch.")}
    files = {kind.__module__ for kind in classes} & sys.modules.keys()
    found: dict[int, Any] = {}
    for holder in [*holders, *classes, *(sys.modules[name] for name in files)]:
        named = [*getattr(holder, "__dict__", {}).values()]
        found.update((id(one), one) for one in named if isinstance(one, known))
    # the system's has no state
    yield from (one for one in found.values() if type(one).__name__ != "SystemRandom")


def _kinds() -> tuple[type, ...]:
    """Return the classes of generators of what was imported."""
    named = {"torch": ("Generator",), "numpy.random": ("Generator", "RandomState"), "random": ("Random",)}
    there = ((sys.modules[module], names) for module, names in named.items() if module in sys.modules)
    return tuple(getattr(module, name) for module, names in there for name in names)


def _state_of(one: Any) -> Any:
    if hasattr(one, "initial_seed"):  # torch's
        return one.get_state()
    return one.bit_generator.state if hasattr(one, "bit_generator") else one.__getstate__()


def _set_state(one: Any, state: Any) -> None:
    if hasattr(one, "initial_seed"):
        one.set_state(state)
    elif hasattr(one, "bit_generator"):
        one.bit_generator.state = state
    else:
        one.__setstate__(state)
