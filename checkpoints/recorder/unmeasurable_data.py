"""Data that no question can measure on, told when a recorder is made: else it is found out hours later.

What depends on the task is not judged, as a recorder does not know it; and a file that is not here may be where the
questions are asked. So all of it are warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from math import prod
from pathlib import Path

import numpy as np

from ..io.archives import npz_names, npz_size, read_npz
from ..io.array_digest import ARRAYS, blocks
from ..io.errors import FedscopeError, nearest
from ..io.untrusted import expand_home
from ..io.warn_user import warn_user
from .coerce_tokens import TOKENS
from .label_forms import is_one_hot
from .token_targets import FEWEST, OWN_TOKENS, are_inputs

#: bytes of a file's arrays up to which they are read for this
MOST_READ = 5e8
#: a file's short names, of test samples
_SHORT = {"x": "x_test", "y": "y_test"}
#: names of data that are files or folders of the user's own
_PLACES = ("npz", "folder", "text")


@cache
def known_names() -> frozenset[str]:
    """Names of data that fedscope and installed packages have, without importing any."""
    shelf = Path(__file__).parents[2] / "training" / "data" / "published"
    files = {file.stem.replace("_", "-") for file in shelf.glob("*.py") if file.stem != "__init__"}
    return frozenset(files | {found.name for found in entry_points(group="fedscope.data")})


def say_unmeasurable_name(run: Path, name: str, *, own_code: bool) -> None:
    """Warn of a name that no question knows, of a file or a folder that is not here, and of arrays in an ``npz`` as
    :func:`say_unmeasurable` does.

    Args:
        name: as a run has it; own_code: whether it is code of the user's own, which is not run for this.
    """
    shelf, _, argument = name.partition(":")
    if own_code:
        return
    if shelf not in known_names():
        near = nearest(shelf.lower(), known_names())
        warn_user(
            f"{run}: data={name!r} is not a data set that fedscope knows, so each question needs data of its own "
            f"(--data){near}"
        )
        return
    if shelf not in _PLACES:
        return
    path = expand_home(argument.rpartition("@")[0] or argument if shelf == "text" else argument)
    if not argument or not path.exists():
        warn_user(
            f"{run}: data={name!r} is not here, and questions will look for it; put it there before you ask, or give "
            "its right path"
        )
    elif shelf == "npz" and path.is_file():
        try:
            arrays = _arrays_in(path)
        except FedscopeError as error:
            warn_user(f"{run}: data={name!r}: {error}")
            return
        say_unmeasurable(f"{run}: in data={name!r}", arrays)


def say_unmeasurable(place: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Warn of arrays that no question takes, or that are not what they seem; once for each kind of thing.

    Args:
        place: begins sentences; arrays: those of a data set, or some of them, by name.
    """
    for clause in dict.fromkeys(_odd(arrays)):
        warn_user(f"{place} {clause}")


def _arrays_in(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file that is not too large for it, by the names of a data set.

    Raises:
        FedscopeError: it cannot be read, or lacks some.
    """
    names = npz_names(path)
    if TOKENS in names and not any(name in names for name in ARRAYS):
        return {}
    own = {name: name for name in ARRAYS if name in names} or {x: y for x, y in _SHORT.items() if x in names}
    if "x_test" not in own.values():
        raise FedscopeError(
            f"the file has {', '.join(sorted(names)) or 'no arrays'}, and no x_test, so questions will refuse it; add "
            "x_test and y_test"
        )
    if npz_size(path, own) > MOST_READ:
        return {}
    return {own[name]: array for name, array in read_npz(path, only=tuple(own)).items()}


def _odd(arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    for split in ("train", "test"):
        x, y = arrays.get(f"x_{split}"), arrays.get(f"y_{split}")
        for name, array in ((f"x_{split}", x), (f"y_{split}", y)):
            if array is not None and array.ndim and array.dtype.kind == "f" and (broken := _count_broken(array)):
                yield (
                    f"{name} has {broken:,} value{'s that are' if broken > 1 else ' that is'} not finite, so questions "
                    "will refuse it; fill in numbers, or leave these samples out"
                )
        if x is not None and not (x.ndim and prod(x.shape)):
            yield f"x_{split} has shape {list(x.shape)}, so questions will refuse it; give samples with values"
        elif x is not None and y is not None and y.ndim and len(x) == len(y):
            yield from _odd_targets(split, x, y)
    for name in ("x", "y"):
        train, test = (arrays.get(f"{name}_{split}") for split in ("train", "test"))
        if train is not None and test is not None and train.shape[1:] != test.shape[1:]:
            yield (
                f"{name}_train has samples of shape {list(train.shape[1:])}, and {name}_test of "
                f"{list(test.shape[1:])}, so questions will refuse them; give both alike"
            )


def _odd_targets(split: str, x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    """What is odd of one split's targets beside its samples."""
    pixels = x.dtype in (np.uint8, np.uint16)
    if x.dtype.kind in "iu" and not pixels and x.ndim > 2 and y.ndim == 1 and y.dtype.kind in "iu":
        yield (
            f"x_{split} has type {x.dtype} and shape {list(x.shape)}, so questions about classes will refuse it; give "
            "floats as the network takes them, or uint8 pixels"
        )
    if y.shape != x.shape and _is_one_hot(y):
        yield (
            f"y_{split} has shape {list(y.shape)}, one 1 a row, and questions about classes take the classes' numbers, "
            f"[{len(y)}]; give y_{split}.argmax(1), or with each question the task that takes it (--task)"
        )
    elif not pixels and are_inputs(x, y):
        yield f"y_{split} is x_{split}, {OWN_TOKENS}"


def _is_one_hot(y: np.ndarray) -> bool:
    """Check for one-hot rows of several classes; a few rows may be so by chance."""
    return len(y) >= FEWEST and is_one_hot(y) and bool((y == 1).any(axis=0).sum() > 1)


def _count_broken(numbers: np.ndarray) -> int:
    return sum(int((~np.isfinite(some)).sum()) for some in blocks(numbers))
