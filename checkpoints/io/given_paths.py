"""Models in memory, given where the path of a file or a run is taken: said before they are turned into a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

from .errors import FedscopeError

#: annotations of paths and nothing else; and of runs and their paths
_PATHS = re.compile(r"(?=.*\bPath\b)(?:Path|str|None|Sequence|[\[\] |])+")
_RUNS = re.compile(r"(?=.*\bRun(?:Like)?\b)(?:RunLike|Run|Sweep|Path|str|None|Sequence|Mapping|[\[\], |])+")
#: of a list as many are looked at
_FIRST = 8


def refuse_in_memory(name: str, value: Any, annotation: str = "Path") -> None:
    """Refuse a model in memory as a path: a module, a ``state_dict``, arrays, or a list of these.

    Args:
        name, annotation: of the parameter; one that is not of paths or runs alone may take models.

    Raises:
        FedscopeError: says how models in memory are recorded, and how they become files.

    >>> import numpy as np
    >>> refuse_in_memory("runs", {"w": np.ones(2)}, "Sequence[Run | Path | str]")
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.io.errors.FedscopeError: runs= takes runs or their folders, and was given a model (dict) in ...
    """
    of_runs = _RUNS.fullmatch(annotation) is not None
    if not (of_runs or _PATHS.fullmatch(annotation)) or not _is_in_memory(value):
        return
    if of_runs:
        raise FedscopeError(
            f"{name}= takes runs or their folders, and was given {_called(value)} in memory; rounds of models "
            "in memory are recorded with fedscope.Recorder, which makes a run"
        )
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


def _is_labelled(value: Any) -> bool:
    """Check whether these are models by label, and not the tensors of one."""
    return isinstance(value, Mapping) and not any(hasattr(one, "dtype") for one in value.values())


def _called(value: Any) -> str:
    """Name what was given by its type, and of a list or of labels that of the first model in it."""
    items = value if isinstance(value, list | tuple) else value.values() if _is_labelled(value) else ()
    first = next((item for item in items if _is_in_memory(item)), None)
    if first is not None and not hasattr(first, "dtype"):
        return f"models ({type(first).__name__})"
    return f"a model ({type(value).__name__})"
