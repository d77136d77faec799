"""What ``repr`` shows of a result: what it is, of what, what was found, and what to call next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..checkpoints.io.errors import FedscopeError, list_few
from ..checkpoints.io.repr_screen import INDENT, WIDTH, screen

if TYPE_CHECKING:
    from .base import Result


def describe(result: Result) -> str:
    """Describe a result on one screen; one that cannot be described says why, because a repr never fails."""
    parts = list(result) if hasattr(result, "__iter__") else [result]
    said = about([part.attrs for part in parts])
    try:
        found = result.told(WIDTH - len(INDENT))
    except (FedscopeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        found = f"it cannot be described: {error}"
    count = f" of {len(parts)} parts" if len(parts) > 1 else ""
    calls = ["summary()", *(["figure()"] if result.drawn else []), "numbers()", "to_pandas()", "to_xarray()"]
    return screen(
        f"{type(result).__name__}{count}, the answer of `fedscope {result.command}`",
        [*([f"of {said}"] if said else []), *found.splitlines()],
        [*calls, 'save("BASE")'],
    )


def about(provenances: Iterable[Mapping[str, Any]]) -> str:
    """Describe from the provenance of which runs or models and on which samples a result is; "" where it says
    neither.

    >>> about([{"run": {"path": "runs/a"}, "data": "digits", "split": "test", "samples": 397}])
    'runs/a, digits test, 397 samples'
    """
    known: dict[str, dict[str, None]] = {"run": {}, "data": {}, "samples": {}}
    for attrs in provenances:
        said, addresses = attrs.get("run"), attrs.get("addresses")
        runs = [one.get("path") for one in (said if isinstance(said, list) else [said]) if isinstance(one, dict)]
        folder = [attrs["folder"]] if isinstance(attrs.get("folder"), str) else []
        whose = runs or (addresses if isinstance(addresses, list) else folder)
        known["run"] |= dict.fromkeys(str(one) for one in whose)
        data = " ".join(str(attrs[key]) for key in ("data", "split") if isinstance(attrs.get(key), str))
        known["data"] |= {data: None} if data else {}
        if isinstance(samples := attrs.get("samples"), int):
            known["samples"] |= {f"{samples:,} samples": None}
    return ", ".join(list_few(words, 4) for words in known.values() if words)
