"""Values that a public function is given: NumPy's numbers become Python's, iterators lists, and what is no number is
refused with a sentence, before it ends somewhere inside in another error, or stands in a result.

What a parameter takes is what its annotation says: ``int``, ``float``, ``bool``, ``str``, or one of them and ``None``.
Ranges are the functions' own.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np

from .errors import FedscopeError
from .given_paths import refuse_in_memory

#: of a refused value its first characters are shown
_SHOWN = 60
#: settings of whose kind more is to be said, where they are used
SAY_MORE = ("labels", "data")
#: annotations of numbers or words, one or several
_LISTED = re.compile(r"Rounds|str \| (int \| )?Sequence\[int\]")
#: what a text of its own form looks like, where there is no default
_WORDS = {"draws": "local:4"}
#: settings that torch has objects of its own for
_OF_TORCH = ("device", "precision")
#: annotations whose paths are those of runs or of models, which are no clients by their places
_OF_RUNS = re.compile(r"Run|Model|Sweep")
#: annotations whose items are numbers or words, and no models
_OF_NUMBERS = re.compile(r"\b(int|float|Rounds)\b")


def taken(name: str, value: Any, annotation: Any, default: Any = None, *, typed: bool = True) -> Any:
    """Return a value as the rest of the package takes it.

    Args:
        name, annotation: of the parameter; default: what it has, for the remedy.
        typed: False takes NumPy's numbers alone, and refuses nothing but models in memory as paths.

    Raises:
        FedscopeError: no whole number, no number, no truth, no text or no path, where its annotation says that it is
            one.

    >>> taken("rounds", np.int64(3), "Rounds"), taken("seed", np.int64(3), "int"), taken("last", None, "int | None")
    (3, 3, None)
    >>> taken("models", iter(["a.pt", "b.pt"]), "Sequence[ModelLike]"), taken("runs", {"b", "a"}, "Sequence[RunLike]")
    (['a.pt', 'b.pt'], ['a', 'b'])
    """
    said = str(getattr(annotation, "__forward_arg__", annotation)).strip()
    kind = said.removesuffix("| None").strip()
    value = plain_device(value, several=name == "device") if name in _OF_TORCH else plain_number(value)
    refuse_in_memory(name, value, said)
    if not typed or name in SAY_MORE:
        return value
    if value is None and isinstance(default, tuple) and not default and "Sequence[str]" in said:
        return default
    if kind in _KINDS and not (value is None and kind != said):
        return _KINDS[kind](name, value, default)
    if _LISTED.fullmatch(kind) and not (value is None and kind != said):
        return _listed(name, value)
    if "Sequence" in said or "Rounds" in said:
        # a dictionary's view counts by position; where a dictionary is taken, and of files, that says whose is whose
        of_files = "Path" in said and not _OF_RUNS.search(said)
        counted = "Mapping" not in said and not of_files
        if counted and isinstance(value, set | frozenset) and all(isinstance(one, str | PathLike) for one in value):
            value = sorted(value, key=str)  # a set of texts has another order in each session
        if isinstance(value, Iterator) or (counted and isinstance(value, KeysView | ValuesView)):
            value = list(value)
        if _OF_NUMBERS.search(said) and "Model" not in said:
            value = value.tolist() if isinstance(value, np.ndarray) else value
            if type(value) in (list, tuple):
                value = type(value)(map(plain_number, value))
    may_be_else = (value is None and "None" in said) or (isinstance(value, Mapping) and "Mapping" in said)
    return _texts(name, value) if "Sequence[str]" in said and not may_be_else else value


def as_index(value: Any) -> int:
    """Return a whole number as Python's, whether it is NumPy's or torch's.

    Raises:
        TypeError: a float, a truth, a text.

    >>> as_index(np.int64(3))
    3
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def plain_number(value: Any) -> Any:
    """Return a number or a truth of NumPy's as Python's; anything else as it is."""
    if isinstance(value, np.number | np.bool_):
        return value.item()
    # an array or a tensor of one number
    return value.item() if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)) else value


def _listed(name: str, value: Any) -> Any:
    """Return a number or a text as it is, and several as a list: also those of a set, a range, an array, a tensor.

    Raises:
        FedscopeError: neither, as a slice, a dictionary or a float; an item that is neither; no item.
    """
    if value is None or isinstance(value, str) or type(value) is int:
        return value
    whole = f", as {name}={int(value)}" if isinstance(value, float) and value.is_integer() else f", as {name}=[1, 2]"
    if getattr(value, "ndim", None) == 1 and callable(getattr(value, "tolist", None)):
        value = value.tolist()
    if isinstance(value, Mapping | bytes | bool) or not isinstance(value, Iterable):
        raise FedscopeError(
            f"{name}={_shown(value)} is neither a whole number nor a text, and no list of them; give one{whole}"
        )
    given = list(value)
    if not given:
        raise FedscopeError(f"{name}={_shown(value)} holds nothing; give one or more, as {name}=[1, 2]")
    items = []
    for item in given:
        try:
            items.append(item if isinstance(item, str) else as_index(item))
        except TypeError:
            raise FedscopeError(
                f"{name}={_shown(given)} holds {_shown(item)}, which is neither a whole number nor a text; give some, "
                f"as {name}=[1, 2]"
            ) from None
    return sorted(items, key=lambda one: (isinstance(one, str), one)) if isinstance(value, Set) else items


def plain_device(value: Any, *, several: bool = False) -> Any:
    """Return a device or a type of numbers of torch's as the word for it, and a list with devices of torch's as the
    words with commas between them; anything else as it is.

    >>> import torch
    >>> plain_device(torch.device("cuda", 1)), plain_device([torch.device("cuda:0"), "cuda:1"], several=True)
    ('cuda:1', 'cuda:0,cuda:1')
    >>> plain_device(torch.float32), plain_device("cpu")
    ('float32', 'cpu')
    """
    if several and isinstance(value, list | tuple):
        words = [plain_device(one) for one in value]
        of_torch = any(word is not one for word, one in zip(words, value, strict=True))
        return ",".join(words) if of_torch and all(isinstance(word, str) for word in words) else value
    kind = type(value)  # named, for torch is not imported to look at a word
    if kind.__module__ != "torch" or kind.__name__ not in ("device", "dtype"):
        return value
    return str(value).removeprefix("torch.")


def _whole(name: str, value: Any, default: Any) -> int:
    try:
        return as_index(value)
    except TypeError:
        as_whole = int(value) if isinstance(value, float) and value.is_integer() else None
        example = as_whole if as_whole is not None else default if type(default) is int else 10
        raise FedscopeError(f"{name}={_shown(value)} is not a whole number; give one, as {name}={example}") from None


def _number(name: str, value: Any, default: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        if not isinstance(value, Real) and not (getattr(value, "ndim", None) == 0 and hasattr(value, "__float__")):
            raise TypeError
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        example = default if isinstance(default, float | int) and not isinstance(default, bool) else 0.5
        raise FedscopeError(f"{name}={_shown(value)} is not a number; give one, as {name}={example}") from None


def _truth(name: str, value: Any, default: Any) -> bool:
    if value is None or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise FedscopeError(f"{name}={_shown(value)} is neither True nor False; give one of the two")


def _text(name: str, value: Any, default: Any) -> Any:
    if value is not None and not isinstance(value, int | float | list | tuple | set | dict):
        return value  # a path, a device, ... may be as good
    word = default if isinstance(default, str) else _WORDS.get(name)
    example = "" if word is None else f", as {name}={word!r}"
    raise FedscopeError(f"{name}={_shown(value)} is not a text; give one{example}")


def _texts(name: str, value: Any) -> Any:
    """One text, or several: numbers and lists among them would fail where they are taken apart."""
    for item in [value] if isinstance(value, str) or not isinstance(value, Iterable) else value:
        if item is None or isinstance(item, int | float | list | tuple | set | dict):
            what = _shown(value) if item is value else f"{_shown(value)}, of which {_shown(item)}"
            raise FedscopeError(f"{name}={what} is not a text; give a list of texts")
    return value


_KINDS: Mapping[str, Any] = {"int": _whole, "float": _number, "bool": _truth, "str": _text}


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
