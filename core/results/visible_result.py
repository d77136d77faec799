"""A result whose texts can be shown: none of what its files say steers a terminal or ends a line."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from ..checkpoints.io.visible_text import visible

T = TypeVar("T")


def make_visible(value: T) -> T:
    r"""Return the same, with every text in it made visible; itself where there is nothing to change.

    Tables keep texts as they are, so a result that was read back may hold any.

    >>> make_visible({"run": "a\n", "losses": (1.0, ["b"])})
    {'run': 'a\\n', 'losses': (1.0, ['b'])}
    """
    return value if (changed := _replacement(value)) is None else changed


def _replacement(value: Any) -> Any:
    """Return the replacement of a value; None where it may stay."""
    if isinstance(value, str):
        text = visible(value)
        return None if text == value else text
    if isinstance(value, dict | MappingProxyType):  # and no mapping that reads a file for each value
        pairs = {key: (_replacement(key), _replacement(part)) for key, part in value.items()}
        if all(name is None and part is None for name, part in pairs.values()):
            return None
        return {
            key if name is None else name: value[key] if part is None else part for key, (name, part) in pairs.items()
        }
    if isinstance(value, tuple | list):
        parts = [_replacement(part) for part in value]
        if all(part is None for part in parts):
            return None
        own = [old if new is None else new for old, new in zip(value, parts, strict=True)]
        return type(value)(*own) if hasattr(value, "_fields") else type(value)(own)
    if is_dataclass(value) and not isinstance(value, type):
        every = {field.name: _replacement(getattr(value, field.name)) for field in fields(value) if field.init}
        changes = {name: part for name, part in every.items() if part is not None}
        return replace(value, **changes) if changes else None
    return None
