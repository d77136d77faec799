"""What a recorder warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from fedscope.checkpoints import FedscopeWarning


def told(work: Callable[[], Any]) -> list[str]:
    """What is warned of, in order."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in found if issubclass(one.category, FedscopeWarning)]
