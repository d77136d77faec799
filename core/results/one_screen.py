"""What ``repr`` shows: a thing on one screen, at most 25 lines of 100 characters, whatever it holds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..checkpoints.io.errors import FedscopeError, listed
from ..checkpoints.io.visible_text import visible

if TYPE_CHECKING:
    from .base import Result

LINES, WIDTH = 25, 100
INDENT = "  "


def describe(result: Result) -> str:
    """Say what a result is, of what, what was found, and what to call next."""
    said = about(result.attrs)
    try:
        found = result.summary()
    except (FedscopeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        found = f"it cannot be described: {error}"
    count = f" of {len(result)} parts" if hasattr(result, "__len__") else ""
    calls = ["summary()", *(["figure()"] if result.drawn else []), "numbers()", "to_pandas()", "to_xarray()"]
    return screen(
        f"{type(result).__name__}{count}, the answer of `fedscope {result.command}`",
        [*([f"of {said}"] if said else []), *found.splitlines()],
        [*calls, 'save("BASE")'],
    )


def screen(head: str, told: Iterable[str], calls: Iterable[str]) -> str:
    """Put together a head, lines that are told, and what may be called next; too many lines are cut, and said to be.

    Args:
        calls: of its own by their names, of others as they are.

    >>> print(screen("Line, a result", ["loss barrier: none"], ["figure()", "fedscope.load(BASE)"]))
    Line, a result
      loss barrier: none
      next: .figure(), fedscope.load(BASE)
    """
    most = LINES - 2
    body = [line for words in told for line in _wrapped(visible(words))]
    if len(body) > most:
        body = [*body[: most - 1], f"{INDENT}... ({len(body) - most + 1} more lines)"]
    following = f"next: {', '.join(call if call.startswith('fedscope.') else f'.{call}' for call in calls)}"
    return "\n".join([visible(head)[:WIDTH], *body, f"{INDENT}{following}"[:WIDTH]])


def about(attrs: Mapping[str, Any]) -> str:
    """Describe from its provenance of which runs and on which samples a result is; "" where it says neither."""
    said = attrs.get("run")
    runs = [one["path"] for one in (said if isinstance(said, list) else [said]) if isinstance(one, dict)]
    words = [listed(dict.fromkeys(str(path) for path in runs), 4)] if runs else []
    if not runs and isinstance(addresses := attrs.get("addresses"), list):
        words = [listed(addresses, 4)] if addresses else []
    data = [attrs.get("data"), attrs.get("split")]
    words += [" ".join(str(part) for part in data if isinstance(part, str))] if any(data) else []
    words += [f"{samples:,} samples"] if isinstance(samples := attrs.get("samples"), int) else []
    return ", ".join(word for word in words if word)


def _wrapped(line: str) -> list[str]:
    deeper = INDENT + line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, WIDTH, initial_indent=INDENT, subsequent_indent=deeper + INDENT, break_on_hyphens=False
    )
