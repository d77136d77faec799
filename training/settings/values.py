"""Values as people type them: as in TOML, and more loosely."""

from __future__ import annotations

import tomllib
from typing import Any


def parse_value(word: str) -> Any:
    """A value written as in TOML; what is none is a number as people write them, or a string.

    >>> parse_value("[1, 2]"), parse_value("true"), parse_value(".05"), parse_value("last:5")
    ([1, 2], True, 0.05, 'last:5')
    """
    try:
        return tomllib.loads(f"value = {word.strip()}")["value"]
    except (ValueError, RecursionError):
        return _loose_number(word.strip())


def format_value(value: Any) -> str:
    """A value as :func:`parse_value` reads it.

    >>> [format_value(value) for value in (True, 0.5, "label", (1, 2), "1")]
    ['true', '0.5', 'label', '[1, 2]', '"1"']
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_quote, value))}]"
    return _quote(value) if isinstance(value, str) and parse_value(value) != value else str(value)


def _quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else format_value(value)


def _loose_number(word: str) -> Any:
    """``.05``, ``1.`` and ``007`` are numbers to people, though not to TOML; all else is a string."""
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word
