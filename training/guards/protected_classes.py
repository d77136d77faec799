"""The classes whose objects hold arrays that code of one's own is handed, or returns. Loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: by class the fields that are functions which give such arrays
PROTECTED: dict[type, tuple[str, ...]] = {}


def holds_arrays(*functions: str) -> Callable[[type[T]], type[T]]:
    """Have the arrays in a dataclass's fields protected where it is handed over.

    See :mod:`fedscope.training.guards.handed`.

    Args:
        functions: fields that give models or arrays when they are called with a number.
    """

    def mark(kind: type[T]) -> type[T]:
        PROTECTED[kind] = functions
        return kind

    return mark
