"""No averaging over rounds: what FMA alone does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..base import AverageMethod, MethodInfo


@dataclass(frozen=True)
class NoAverage(AverageMethod):
    """``averaged`` never exists; every round starts from the last ``global``."""

    about: ClassVar[MethodInfo] = MethodInfo("none", "", "every round starts from `global`")

    def begins(self) -> int | None:
        """Never."""
        return None


PROVIDES = NoAverage
