"""What a user's own networks and methods keep in plain attributes: fedscope neither sends nor records it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import seeded
from ..guards.returned_arrays import is_own_method, is_somebodys
from ..settings.registry import method_name

if TYPE_CHECKING:
    from torch import nn

    from .worker_model import TrainableModel

Place = TypeVar("Place")

#: items of a container, and bytes of an array, that are looked at; larger ones are data, or cost too much
ITEMS, BYTES = 1000, 1 << 24
#: attributes of a network that are tried each alone, and named
FEW = 6


def snapshot(value: Any, depth: int = 3) -> Any:
    """Return what tells a small plain value from another one: numbers, text, arrays, tensors, and containers of these;
    None where it is something else.

    >>> snapshot({"n": [1, 2.0]}) == snapshot({"n": [1, 2.0]}) != snapshot({"n": [1, 3.0]})
    True
    >>> snapshot(lambda: 1) is None
    True
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return type(value).__name__, repr(value)
    if isinstance(value, torch.Tensor):
        if isinstance(value, torch.nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            return None
        value = value.detach().cpu()
        value = value.numpy() if value.dtype is not torch.bfloat16 else value.float().numpy()
    if isinstance(value, np.ndarray):
        if value.nbytes > BYTES or value.dtype.hasobject:
            return None
        return value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).data).digest()
    if not depth or not isinstance(value, list | tuple | set | dict) or len(value) > ITEMS:
        return None
    parts = value.items() if isinstance(value, dict) else value
    found = [snapshot(one, depth - 1) for one in parts]
    if isinstance(value, set):
        found.sort(key=repr)
    return type(value).__name__, found


def _differing(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> list[Place]:
    """Return the names of what was added, or is another now, of what can be compared."""
    return [name for name, value in after.items() if value is not None and before.get(name) != value]


def warn_of_plain_state(module: nn.Module, bench: TrainableModel, value: Callable[[], torch.Tensor]) -> None:
    """Warn of plain attributes that a network's forward changes while it trains, if its loss depends on them.

    A batch is tried with the attributes as they were, and as the first pass left them: each alone, then all. Where two
    passes from the same attributes differ, nobody can tell, and all are named.

    Args:
        bench: the copy that is tried.
        value: computes the loss of a batch with it.
    """
    held = {(name, leaf): own for name, layer in bench.module.named_modules() for leaf, own in _plain(layer)}
    before, kept = _shown(held), {place: _copied(own) for place, own in held.items()}
    layers, model = dict(bench.module.named_modules()), bench.read()

    def tried(attributes: Mapping[tuple[str, str], Any]) -> str:
        for name, leaf in changed:
            if (name, leaf) in attributes:
                setattr(layers[name], leaf, _copied(attributes[name, leaf]))
            else:
                layers[name].__dict__.pop(leaf, None)
        bench.load(model.parameters, model.buffers)
        bench.draw_masks(torch.Generator(device="cpu").manual_seed(0))
        with seeded(0), torch.no_grad():
            return float(value()).hex()

    changed: list[tuple[str, str]] = []
    with suppress(Exception):  # said where it is trained
        first = tried(kept)
        left = {(name, leaf): _copied(own) for name, layer in layers.items() for leaf, own in _plain(layer)}
        changed = _differing(before, _shown(left))
        if not changed:
            return
        if tried(kept) == first:
            if tried(left) == first:
                return
            alone = [place for place in changed[:FEW] if tried({**kept, place: left[place]}) != first]
            changed = alone or changed
        where = list(dict.fromkeys(f"self.{leaf}" for _, leaf in changed))
        it, each = ("it", "it") if len(where) == 1 else ("them", "each")
        warn_user(
            f"the forward of a {type(module).__name__} changes {list_few(where, FEW)} while it trains, and its outputs "
            f"depend on {it}; no model holds {it}, so clients that one worker trains share {it}, and numbers depend on "
            f"how many workers there are; register {each} as a buffer, "
            f"self.register_buffer({where[0][5:]!r}, torch.tensor(0.0)) in __init__, and change {it} in place"
        )


def _shown(held: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    return {place: snapshot(own) for place, own in held.items()}


def _plain(layer: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that a user's own layer holds beside parameters, buffers and layers."""
    if not type(layer).__module__.startswith("torch."):
        names = vars(torch.nn.Module())
        yield from ((name, value) for name, value in vars(layer).items() if name not in names)


def _copied(value: Any) -> Any:
    """Copy a plain value, as far as :func:`snapshot` looks at it; what it cannot compare is not put back."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(_copied, value))
    return value


class MethodMemory:
    """What methods of somebody's own keep in themselves, or in their classes, between rounds."""

    def __init__(self, methods: Iterable[object]) -> None:
        self._methods = [one for one in methods if is_own_method(one)]
        self._rounds: dict[str, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Say of what changes in two rounds, which a resumed run lacks; what changes once may be a store of what is
        computed once.

        Whether a number of the run depends on it is not known.
        """
        before = self._held()
        yield
        for place in _differing(before, self._held()):
            self._rounds[place] = self._rounds.get(place, 0) + 1
            if self._rounds[place] == 2:
                warn_user(
                    f"{place} changes from round to round, and the run does not record it: a resumed run begins "
                    "without it, and workers on other machines have one each; keep it in the state that step or train "
                    "returns"
                )

    def _held(self) -> dict[str, Any]:
        """Return what tells their attributes from others, by place."""
        held = {
            f"{method_name(method)}.{name}": value
            for method in self._methods
            for holder in (*(kind for kind in type(method).__mro__[::-1] if is_somebodys(kind)), method)
            for name, value in getattr(holder, "__dict__", {}).items()
            if not name.startswith("__")
        }
        return {place: snapshot(value) for place, value in held.items() if self._rounds.get(place, 0) < 2}
