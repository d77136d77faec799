"""Examples of a long list for the ordinary suite, and the whole list for the slow one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], ordinary: Callable[[Any], bool]) -> list[Any]:
    """All values, as parameters of a test; those that are not ordinary are of a slow one."""
    return [value if ordinary(value) else pytest.param(value, marks=pytest.mark.slow) for value in values]
