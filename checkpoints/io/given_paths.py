"""Models in memory, given where the path of a file is taken: said before they are turned into a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

from .errors import FedscopeError

#: annotations of paths and nothing else
_PATHS = re.compile(r"(?=.*\bPath\b)(?:Path|str|None|Sequence|[\[\] |])+")
#: of a list as many are looked at
_FIRST = 8


def takes_paths(annotation: str) -> bool:
    """Check whether an annotation is that of paths, and of nothing else.

    >>> takes_paths("Path | str | Sequence[Path | str]"), takes_paths("Run | Path | str"), takes_paths("str | None")
    (True, False, False)
    """
    return _PATHS.fullmatch(annotation) is not None


def refuse_in_memory(name: str, value: Any) -> None:
    """Refuse a model in memory as a path: a module, a ``state_dict``, arrays, or a list of these.

    Args:
        name: of the parameter.

    Raises:
        FedscopeError: says how models in memory are recorded, and how they become files.
    """
    if not _is_in_memory(value):
        return
    raise FedscopeError(
        f"{name}= takes paths, and was given {_called(value)} in memory; save it first, as "
        "torch.save(model.state_dict(), 'model.pt'), and give its path; rounds of models in memory are recorded with "
        "fedscope.Recorder"
    )


def _is_in_memory(value: Any) -> bool:
    if isinstance(value, str | bytes | PathLike):
        return False
    if callable(getattr(value, "state_dict", None)):
        return True
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return getattr(value.dtype, "kind", "f") in "biufc"  # an array of texts may be of paths
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_is_in_memory(item) for item, _ in zip(items, range(_FIRST), strict=False))


def _called(value: Any) -> str:
    """Name what was given by its type, and of a list by that of its first."""
    if isinstance(value, list | tuple) and not hasattr(value[0], "dtype"):
        return f"models ({type(value[0]).__name__})"
    return f"a model ({type(value).__name__})"
