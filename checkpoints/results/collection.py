"""Several results of one question, which are drawn and told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from ..errors import FedscopeError
from .result import Result

R = TypeVar("R", bound=Result)


class Collection(Result, Generic[R]):
    """The answers to one question for several runs, rounds, layers or sets of samples; each has files of its own.

    Attributes:
        parts: the results, by what stands behind the base in the names of their files (``.ima``, ``.round-20``).

    Raises:
        FedscopeError: no part.
    """

    def __init__(self, parts: Mapping[str, R]) -> None:
        if not parts:
            raise FedscopeError("there is no result to put together; give at least one")
        self.parts = dict(parts)

    @property
    def attrs(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The provenance of the first part."""
        return next(iter(self.parts.values())).attrs

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[R]:
        return iter(self.parts.values())

    def __getitem__(self, end: str | int) -> R:
        return list(self)[end] if isinstance(end, int) else self.parts[end]

    def save(self, base: Path | str) -> list[Path]:
        """Write every part's files, and what is derived from all."""
        return [*(path for end, part in self.parts.items() for path in part.save(f"{base}{end}")), *self.derive(base)]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Parts are loaded one by one, by the class of their own."""
        raise FedscopeError(f"{base} names several results; load each by its own file")

    def derive(self, base: Path | str, *, again: bool = True) -> list[Path]:
        """What every part derives."""
        return [path for end, part in self.parts.items() for path in part.derive(f"{base}{end}", again=again)]

    def summary(self) -> str:
        """Every part's sentence, a line each."""
        return "\n".join(part.summary() for part in self)

    def pages(self, title: str | None = None) -> dict[str, str]:
        """Every part's pages."""
        return {f"{end}{more}": page for end, part in self.parts.items() for more, page in part.pages(title).items()}
