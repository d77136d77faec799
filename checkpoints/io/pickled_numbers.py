"""NumPy's numbers and arrays in a pickle of torch, read without calling anything of NumPy's: a pickle may hand its
functions whatever it likes, and a type whose flags are wrong makes NumPy take numbers for addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

# b1, i4, f8 and the like: what a plain number is called
_PLAIN = re.compile(r"[biuf][1248]")
_DEEP = 64
# Where two stood for one name, torch would take either.
_OURS = ("numpy.", "builtins.bytes")


class UnreadableObject:
    """A placeholder for an object of NumPy's that holds no plain numbers (names, dates, objects)."""

    def __repr__(self) -> str:
        return "something that is no plain number"


class _Type:
    """``numpy.dtype``: its name, and the order of its bytes."""

    def __init__(self, name: Any = "", *_: Any) -> None:
        self.name = name if isinstance(name, str) else ""
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]

    def numbers(self, raw: Any, shape: Any, *, columns: bool = False) -> Any:
        """Return the array that the bytes are; :class:`UnreadableObject` where they are none."""
        whole = isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 2**40 for n in shape)
        if not whole or not isinstance(raw, bytes | bytearray) or not _PLAIN.fullmatch(self.name):
            return UnreadableObject()
        native = np.dtype(self.name)
        dtype = native.newbyteorder(">") if self.order == ">" else native.newbyteorder("<")
        if len(raw) != prod(shape) * dtype.itemsize:
            return UnreadableObject()
        array = np.frombuffer(raw, dtype).reshape(shape, order="F" if columns else "C")
        return array.astype(native)


class _Array:
    """``numpy.ndarray`` before it is told what it holds, and afterwards."""

    def __init__(self, *_: Any) -> None:
        self.value: Any = UnreadableObject()

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], _Type):
            _, shape, dtype, columns, raw = state
            self.value = dtype.numbers(raw, shape, columns=bool(columns))


def _array(*_: Any) -> _Array:
    """``numpy.core.multiarray._reconstruct``."""
    return _Array()


def _scalar(dtype: Any = None, raw: Any = b"", *_: Any) -> _Array:
    """``numpy.core.multiarray.scalar``."""
    made = _Array()
    made.value = dtype.numbers(raw, ()) if isinstance(dtype, _Type) else UnreadableObject()
    return made


def _no_bytes(*_: Any) -> bytes:
    """``bytes``, which old pickles call without arguments for an array that holds nothing."""
    return b""


@contextmanager
def admit_numbers() -> Iterator[None]:
    """Within it torch reads NumPy's names, of NumPy 1 and of NumPy 2, as what stands for them here; what its user has
    told torch to be safe besides stays so."""
    import torch

    functions = [("_reconstruct", _array), ("scalar", _scalar)]
    ours: list[Any] = [
        (function, f"numpy.{core}.multiarray.{name}") for core in ("core", "_core") for name, function in functions
    ]
    ours += [(_Array, "numpy.ndarray"), (_Type, "numpy.dtype"), (_no_bytes, "builtins.bytes")]
    theirs = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*(one for one in theirs if not _path(one).startswith(_OURS)), *ours])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(theirs)


def _path(known: Any) -> str:
    return known[1] if isinstance(known, tuple) else f"{known.__module__}.{known.__qualname__}"


def with_numbers(loaded: Any) -> Any:
    """Put NumPy's arrays and numbers in the place of what stood for them.

    What a file names often is gone through once a level: a few names may stand for any number of lists.
    """
    return _replace(loaded, 0, {})


def _replace(loaded: Any, depth: int, done: dict[tuple[int, int], Any]) -> Any:
    if isinstance(loaded, _Array):
        return loaded.value if isinstance(loaded.value, UnreadableObject) or loaded.value.ndim else loaded.value[()]
    if isinstance(loaded, _Type):
        return UnreadableObject()
    if depth == _DEEP or not isinstance(loaded, Mapping | list | tuple):
        return loaded
    place = id(loaded), depth
    if place not in done:
        done[place] = loaded
        if isinstance(loaded, Mapping):
            if any(isinstance(value, _Array | _Type | Mapping | list | tuple) for value in loaded.values()):
                done[place] = {_key(key): _replace(value, depth + 1, done) for key, value in loaded.items()}
        elif isinstance(loaded, list) or type(loaded) is tuple:
            done[place] = type(loaded)(_replace(value, depth + 1, done) for value in loaded)
    return done[place]


def _key(key: Any) -> Any:
    """A number of NumPy's that is a key, as of clients."""
    number = isinstance(key, _Array) and isinstance(key.value, np.ndarray) and not key.value.ndim
    return key.value[()] if number else key
