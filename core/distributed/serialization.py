"""Serialization of an object for a worker: bytes, and its large arrays apart, each of which travels once."""

from __future__ import annotations

import io
import pickle
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoints import real_path
from .torchvision_import import torchvision_part

_ROOT = __name__.partition(".")[0]
#: bytes from which on an array travels beside the object
LARGE = 1 << 16


#: a number among a parcel's arrays, and of a tensor its shape and strides
_Place = tuple[int, tuple[tuple[int, ...], tuple[int, ...]] | None]


@dataclass(frozen=True)
class Parcel:
    """An object in a form that another process can open.

    Attributes:
        content: the object without its large arrays, pickled.
        arrays: references to these, in the order in which ``content`` counts them.
    """

    content: bytes
    arrays: tuple[Any, ...]


class Serializer:
    """Packs objects; an array that several of them hold, as every client of a round holds its start, is stored once.

    An array is known by being the same object, so none may change while a parcel that holds it is under way.

    Args:
        store: gives an array to the workers' memory, and a reference to it back.
        pickler: a class with the interface of :class:`pickle.Pickler`; the default knows neither functions that are
            made inside others nor classes of the program that is run.

    >>> arrays = []
    >>> serializer = Serializer(lambda array: arrays.append(array) or len(arrays) - 1)
    >>> start = np.zeros(20_000, np.float32)
    >>> with serializer.held("client 3", {"start": start}) as one, serializer.held("client 5", [start, start]) as other:
    ...     one.arrays, other.arrays, len(one.content) < 300
    ((0,), (0,), True)
    >>> unpack(one.content, [arrays[i] for i in one.arrays])["start"].shape
    (20000,)
    """

    def __init__(self, store: Callable[[Any], Any], pickler: type[pickle.Pickler] = pickle.Pickler) -> None:
        self._store, self._pickler = store, pickler
        # with the array itself, or its number might be given to another; a constant's is forgotten when it ends
        self._stored: dict[int, tuple[Any, Any]] = {}
        self._holders: dict[int, int] = {}
        self._under_way: dict[Any, list[int]] = {}
        self._constant: dict[int, weakref.ref[Any]] = {}

    def keep(self, objects: Iterable[Any]) -> None:
        """Take the arrays in these objects as constants: once stored, they stay so as long as somebody holds them."""
        constant, remember = self._constant, self._remember

        class Looking(self._pickler):  # type: ignore[name-defined,misc]
            def persistent_id(self, obj: Any) -> int | None:
                if not _is_large(obj):
                    return None
                if id(obj) not in constant:
                    remember(obj)
                return 0

        for one in objects:
            if id(one) not in constant:
                Looking(io.BytesIO(), protocol=pickle.HIGHEST_PROTOCOL).dump(one)

    def _remember(self, one: Any) -> None:
        key = id(one)

        def forget(_: Any) -> None:
            self._constant.pop(key, None)
            self._stored.pop(key, None)

        self._constant[key] = weakref.ref(one, forget)

    def pack(self, name: Any, content: Any) -> Parcel:
        """Pack an object, whose arrays stay stored until :meth:`release` of that name."""
        room, found = io.BytesIO(), dict[int, _Place]()
        references: list[Any] = []

        def beside(one: Any) -> _Place | None:
            key = id(one)
            if key in found:
                return found[key]
            if not _is_large(one):
                return None
            strides = (tuple(one.shape), one.stride()) if isinstance(one, Tensor) else None
            if key not in self._stored:
                reference = self._store(one if strides is None else _flat(one))
                self._stored[key] = None if key in self._constant else one, reference
            references.append(self._stored[key][1])
            found[key] = len(references) - 1, strides
            return found[key]

        class Pickler(self._pickler):  # type: ignore[name-defined,misc]
            def persistent_id(self, obj: Any) -> _Place | None:
                return beside(obj)

        Pickler(room, protocol=pickle.HIGHEST_PROTOCOL).dump(content)
        self._under_way[name] = [key for key in found if key not in self._constant]
        for key in self._under_way[name]:
            self._holders[key] = self._holders.get(key, 0) + 1
        return Parcel(room.getvalue(), tuple(references))

    def release(self, name: Any) -> None:
        """Forget the arrays that no other parcel under way holds."""
        for key in self._under_way.pop(name, ()):
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key], self._stored[key]

    @contextmanager
    def held(self, name: Any, content: Any) -> Iterator[Parcel]:
        """Hold a parcel, and release it afterwards."""
        try:
            yield self.pack(name, content)
        finally:
            self.release(name)


def own_by_value(pickler: type[pickle.Pickler], register: Callable[[ModuleType], None]) -> type[pickle.Pickler]:
    """Return a pickler that packs classes and functions of the user's own modules whole, not by their names.

    So a worker runs the very code that this process has: it needs no file of it, and cannot find another one. What is
    installed, and what such a module itself imports, is packed by its name, as ever.

    Args:
        pickler: cloudpickle's ``CloudPickler``; register: its ``register_pickle_by_value``.
    """

    class ByValue(pickler):  # type: ignore[valid-type,misc]
        def reducer_override(self, obj: Any) -> Any:
            module = sys.modules.get(getattr(obj, "__module__", None) or "")
            if module is not None and isinstance(obj, type | FunctionType) and is_own_module(module):
                register(module)
            return super().reducer_override(obj)

    return ByValue


@cache
def is_own_module(module: ModuleType) -> bool:
    """Check whether a module is a file of the user's own, and neither installed nor Python's.

    Installed is also what lies in another Python's packages, as of an environment that has the system's beside its own.
    """
    file = getattr(module, "__file__", None)
    if not file or module.__name__ == "__main__" or module.__name__.partition(".")[0] == _ROOT:
        return False
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    place = real_path(Path(file))
    if {"site-packages", "dist-packages"} & {*place.parts}:
        return False
    return not any(place.is_relative_to(real_path(Path(own))) for own in installed if own)


def unpack(content: bytes, arrays: Sequence[Any]) -> Any:
    """Make the object of a parcel, with the arrays that its references stand for. What was stored is read only."""
    unpickler = _Unpickler(io.BytesIO(content))
    unpickler.arrays = arrays
    return unpickler.load()


class _Unpickler(pickle.Unpickler):
    arrays: Sequence[Any]

    def find_class(self, module: str, name: str) -> Any:
        whole, _, part = module.partition(".")
        if whole == "torchvision" and module not in sys.modules:  # as whoever packed it has imported it
            torchvision_part(part or "models")
        return super().find_class(module, name)

    def persistent_load(self, pid: _Place) -> Any:
        number, strides = pid
        stored = self.arrays[number]
        return stored if strides is None else torch.from_numpy(stored).as_strided(*strides)


def _is_large(one: Any) -> bool:
    """Check whether it travels apart from the object: an array, or a tensor of numbers that numpy has, without gaps."""
    if type(one) is np.ndarray or isinstance(one, np.memmap):
        return bool(one.nbytes >= LARGE and one.dtype != object)
    if type(one) is not Tensor or one.device.type != "cpu" or one.requires_grad or one.nbytes < LARGE:
        return False
    return one.dtype != torch.bfloat16 and one.layout == torch.strided and _dense(one)


def _dense(one: Tensor) -> bool:
    """Check whether its numbers lie in one piece of memory, in whatever order of the axes."""
    behind = 1
    for stride, size in sorted(
        (stride, size) for size, stride in zip(one.shape, one.stride(), strict=True) if size > 1
    ):
        if stride != behind:
            return False
        behind *= size
    return True


def _flat(one: Tensor) -> np.ndarray:
    """Lay the numbers flat as they lie in memory; with other strides the same sums run in another order."""
    flat: np.ndarray = one.as_strided((one.numel(),), (1,)).numpy()
    return flat
