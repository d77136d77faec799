"""What ``repr`` shows of anything: one screen, at most 25 lines of 100 characters, whatever it holds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from .visible_text import visible

LINES, WIDTH = 25, 100
INDENT = "  "


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
    body = [line for words in told for line in _wrap(visible(words))]
    if len(body) > most:
        body = [*body[: most - 1], f"{INDENT}... ({len(body) - most + 1} more lines)"]
    following = f"next: {', '.join(call if call.startswith('fedscope.') else f'.{call}' for call in calls)}"
    return "\n".join([visible(head)[:WIDTH], *body, f"{INDENT}{following}"[:WIDTH]])


def _wrap(line: str) -> list[str]:
    deeper = INDENT + line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, WIDTH, initial_indent=INDENT, subsequent_indent=deeper + INDENT, break_on_hyphens=False)
