"""What code of one's own is handed: views that cannot be written to, and sums of what a tensor could write to.

A view costs nothing. It refuses a change at once, with the user's line at hand. A tensor that shares its memory does
not (``torch.from_numpy``), so that what was handed is summed before and after: a pass over its bytes each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from ...checkpoints import DiskMatrix, RoundRecord, Weights
from ...checkpoints.io.quiet import without_warnings
from ...checkpoints.rounds.disk_matrix import ReadOnlyMatrix
from ...evaluation.uint8_images import Uint8Images
from .protected_classes import PROTECTED


@dataclass(frozen=True)
class _Leaf:
    """An array or a tensor that was handed, where it stood, and its sum before."""

    path: str
    value: Any
    sum: int


class ChangedError(Exception):
    """An argument that was looked at while the method ran has other bits than before; the first argument names it."""


class Handed:
    """The arguments of one call.

    >>> handed = Handed()
    >>> a = np.zeros(2)
    >>> view = handed.view(a, "state")
    >>> view.flags.writeable, a.flags.writeable, handed.back(view) is a
    (False, True, True)
    >>> _ = torch.from_numpy(view).add_(1)
    >>> list(handed.changed())
    ['state']
    """

    def __init__(self) -> None:
        _hush_torch()
        # with the values, so that nothing else comes to have their ids
        self._views: dict[int, tuple[Any, Any]] = {}
        self._originals: dict[int, tuple[Any, Any]] = {}
        self._leaves: list[_Leaf] = []
        self._streams: list[list[_Leaf]] = []

    def view(self, value: Any, path: str) -> Any:
        """Return an argument that cannot be changed in place: arrays as views, models and dictionaries of such; of
        tensors the argument itself.

        Args:
            path: what the method calls it.
        """
        if (known := self._views.get(id(value))) is not None:
            return known[1]
        view = self._view(value, path)
        if view is not value:
            self._views[id(value)] = value, view
            self._originals[id(view)] = view, value
        return view

    def _view(self, value: Any, path: str) -> Any:
        if isinstance(value, np.ndarray):
            view = value.view()
            view.flags.writeable = False
            return self._kept(path, view)
        if isinstance(value, DiskMatrix):
            return self._kept(path, ReadOnlyMatrix(value))
        if isinstance(value, Weights):
            parameters = self.view(value.parameters, f"{path}.parameters")
            return replace(value, parameters=parameters, buffers=self.view(value.buffers, f"{path}.buffers"))
        if isinstance(value, dict):
            return {name: self.view(one, f"{path}[{name!r}]") for name, one in value.items()}
        if type(value) is tuple:
            return tuple(self.view(one, f"{path}[{k}]") for k, one in enumerate(value))
        if is_protected(value):
            own = {name: self.view(one, f"{path}.{name}") for name, one in _fields(value).items()}
            own |= {name: self._function(own[name], f"{path}.{name}") for name in _functions(value)}
            return replace(value, **own)
        tensor = value.stored if isinstance(value, Uint8Images) else value
        if isinstance(tensor, Tensor) and not tensor.is_inference():
            self._kept(path, tensor)
        return value

    def _function(self, given: Any, path: str) -> Any:
        """A function whose arrays are looked at when the next one is asked for, and not held: they may be many."""
        last: list[Any] = []

        def look(number: Any) -> Any:
            for leaf in last:
                if _sum(leaf.value) != leaf.sum:
                    raise ChangedError(leaf.path)
            one = Handed()
            found = one.view(given(number), f"{path}({number})")
            last[:] = one._leaves
            return found

        self._streams.append(last)
        return look

    def _kept(self, path: str, value: Any) -> Any:
        self._leaves.append(_Leaf(path, value, _sum(value)))
        return value

    def back(self, value: Any) -> Any:
        """Return what a method made, which may be or hold what it was handed: with that itself in place of its views,
        and of a part of it, which cannot be written to either, a copy."""
        _, original = self._originals.get(id(value), (value, value))
        if isinstance(value, np.ndarray):
            if original is not value:
                return original
            # of a function's arrays, which are not held, none is known
            known = self.path_of(value) is not None or bool(self._streams)
            return value.copy() if known and not value.flags.writeable else value
        if isinstance(value, Weights) or is_protected(value):
            own = {name: self.back(one) for name, one in _fields(value).items()}
            same = (one for one in (value, original) if _alike(own, _fields(one)))
            found = next(same, None)
            return replace(value, **own) if found is None else found
        if isinstance(value, Mapping):  # the dictionary is the method's own, which may have changed it
            own = {name: self.back(one) for name, one in value.items()}
            return next((one for one in (value, original) if _alike(own, one)), own)
        return value

    def changed(self) -> Iterator[str]:
        """Yield the names of what has other bits than before; of a tensor it is known by torch's own count."""
        for leaf in [*self._leaves, *chain.from_iterable(self._streams)]:
            if _sum(leaf.value) != leaf.sum:
                yield leaf.path

    def path_of(self, value: Any) -> str | None:
        """Return what the method calls an array of which another one is a part; None of one that it made itself."""
        for leaf in [*self._leaves, *chain.from_iterable(self._streams)]:
            if leaf.value is value:
                return leaf.path
            arrays = isinstance(leaf.value, np.ndarray) and isinstance(value, np.ndarray)
            if arrays and np.may_share_memory(leaf.value, value):
                return leaf.path
        return None


def is_protected(value: object) -> bool:
    """Check whether an object holds arrays in its fields."""
    return isinstance(value, (RoundRecord, *PROTECTED))


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Check whether two mappings hold the same objects in the same order."""
    return [*one] == [*other] and all(one[name] is other[name] for name in one)


def _functions(value: object) -> tuple[str, ...]:
    return next((names for kind, names in PROTECTED.items() if isinstance(value, kind)), ())


def _sum(value: Any) -> int:
    """Sum up the bytes of an array; of a tensor how often it was changed in place; of rows on the disk nothing."""
    if isinstance(value, Tensor):
        return value._version
    if isinstance(value, DiskMatrix):
        return 0
    found = xxhash.xxh3_64()
    value = value.T if value.flags.f_contiguous else value
    for part in [value] if value.flags.c_contiguous or value.ndim == 1 else value:
        found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return int(found.intdigest())


@cache
def _hush_torch() -> None:
    """Have torch say now, and to nobody, what it says once of an array that cannot be written to: methods may read such
    an array as a tensor, and one that writes to it is refused."""
    fixed = np.zeros(1)
    fixed.flags.writeable = False
    with without_warnings():
        torch.from_numpy(fixed)
