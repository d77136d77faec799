"""What a user's own networks and methods keep in plain attributes: fedscope neither sends nor records it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import xxhash

from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.seeded import seeded
from ..guards.returned_arrays import is_own_method, is_somebodys
from ..settings.registry import method_name

if TYPE_CHECKING:
    from torch import nn

    from .worker_model import TrainableModel

Place = TypeVar("Place")

#: items of a container, and bytes of an attribute's arrays, that are looked at; larger ones are data, or cost too much
ITEMS, BYTES = 1000, 1 << 24
#: attributes of a network that are tried each alone, and named
FEW = 6


def snapshot(value: Any) -> Any:
    """Return what tells a small plain value from another one: numbers, text, arrays, tensors, and containers of these;
    None where it is something else, or cannot be read.

    >>> snapshot({"n": [1, 2.0]}) == snapshot({"n": [1, 2.0]}) != snapshot({"n": [1, 3.0]})
    True
    >>> snapshot(lambda: 1) is None
    True
    """
    try:
        return _read(value, 3, [BYTES])
    except Exception:  # of somebody's own classes, dtypes and containers; no training ends because of a look at them
        return None


def _read(value: Any, depth: int, room: list[int]) -> Any:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return type(value).__name__, repr(value)
    if isinstance(value, torch.Tensor):
        if isinstance(value, torch.nn.Parameter) or value.layout is not torch.strided or value.is_meta:
            return None
        if not _fits(value.numel() * value.element_size(), room):  # before it is read from a device
            return None
        plain = value.detach().resolve_conj().resolve_neg().cpu().reshape(-1).contiguous()
        return str(value.dtype), tuple(value.shape), _sum(plain.view(torch.uint8).numpy())
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or not _fits(value.nbytes, room):
            return None
        return value.dtype.str, value.shape, _sum(value)
    if not depth or not isinstance(value, list | tuple | set | dict) or len(value) > ITEMS:
        return None
    parts = value.items() if isinstance(value, dict) else value
    found = [_read(one, depth - 1, room) for one in parts]
    if isinstance(value, set):
        found.sort(key=repr)
    return type(value).__name__, found


def _fits(size: int, room: list[int]) -> bool:
    room[0] -= size
    return room[0] >= 0


def _sum(values: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(values.tobytes())


def _differing(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> list[Place]:
    """Return the names of what was added, or is another now, of what can be compared."""
    return [name for name, value in after.items() if value is not None and before.get(name) != value]


def warn_of_plain_state(module: nn.Module, bench: TrainableModel, value: Callable[[], torch.Tensor]) -> None:
    """Warn of plain attributes that a network's forward changes while it trains, if its loss depends on them.

    A batch is tried with the attributes as they were, and as the first pass left them: all, then each alone. Where two
    passes from the same attributes differ, as by noise of the network's own, nobody can tell, and nothing is said.

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
    said = ""
    with suppress(Exception):  # said where it is trained
        first = tried(kept)
        left = {(name, leaf): _copied(own) for name, layer in layers.items() for leaf, own in _plain(layer)}
        changed = _differing(before, _shown(left))
        if not changed or tried(kept) != first or tried(left) == first:
            return
        alone = [place for place in changed[:FEW] if tried({**kept, place: left[place]}) != first]
        where = list(dict.fromkeys(f"self.{leaf}" for _, leaf in alone or changed))
        it, each = ("it", "it") if len(where) == 1 else ("them", "each")
        said = (
            f"the forward of a {type(module).__name__} changes {list_few(where, FEW)} while it trains, and its outputs "
            f"depend on {it}; no model holds {it}, so clients that one worker trains share {it}, and numbers depend on "
            f"how many workers there are; register {each} as a buffer, "
            f"self.register_buffer({where[0][5:]!r}, torch.tensor(0.0)) in __init__, and change {it} in place"
        )
    if said:
        warn_user(said)


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
                    "without it, and workers on other machines have one each; if the method reads it, keep it in the "
                    "state that step or train returns"
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
