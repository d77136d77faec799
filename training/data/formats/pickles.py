"""Pickles of published data sets, read without running what they name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, regular

#: what a pickle of arrays asks for; anything else could be code. Old and new names of NumPy's module are the same.
_ARRAYS = {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")} | {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Plain(pickle.Unpickler):
    """Gives arrays, lists, tuples, dictionaries, strings, bytes and numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAYS:
            raise FedscopeError(f"asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_pickle(path: Path) -> Any:
    """Read a pickle of Python 2 or 3, as long as it holds arrays, containers, strings, bytes and numbers.

    Keys and texts of Python 2 are bytes (``b"data"``).

    Raises:
        FedscopeError: truncated, or one that asks for anything else, which could run code.
    """
    what = "a pickle of arrays"
    regular(path, what)
    with explain_read_errors(path, what), path.open("rb") as file:
        try:
            return _Plain(file, encoding="bytes").load()
        except FedscopeError as error:
            raise FedscopeError(
                f"{path} {error}, which may run code; a data set needs arrays, lists, dictionaries and texts only"
            ) from None


def array_of(path: Path, value: Any, what: str) -> np.ndarray:
    """A value as an array of numbers.

    Raises:
        FedscopeError: anything else.
    """
    array = np.asarray(value) if isinstance(value, np.ndarray | list | tuple) else np.empty(0, object)
    if array.dtype.kind not in "iuf":
        raise FedscopeError(f"{path} has no numbers as {what}; copy it again")
    return array
