"""Progress of many pieces of work: jobs, the runs of a sweep, the blocks of a surface."""

from __future__ import annotations

from collections.abc import Sequence


class Progress:
    """A listener to many pieces of work. It does nothing; subclasses do what they want to."""

    def begin(self, complete: Sequence[str]) -> None:
        """Work begins; these pieces are complete already."""

    def advance(self, done: int, of: int) -> None:
        """So much of all is done."""

    def ended(self, name: str, failure: str | None) -> None:
        """A piece is complete, or has failed with a sentence."""

    def note(self, sentence: str) -> None:
        """Something is worth reading meanwhile."""
