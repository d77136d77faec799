"""What a recorder knows of the rounds that it has accepted, by which the next one is read and checked."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..models.expected import ExpectedModel
from ..runs.run import Run
from .identify_server import ServerIdentifier


@dataclass
class AcceptedRounds:
    """What is known of a run's rounds.

    A round works on a :meth:`draft` of it, which takes its place once nothing can refuse the round any more. So one
    that is refused leaves nothing: no scale, no names, no column, and no warning that another round will need.

    Attributes:
        next: the number of the round that comes next.
        expected: what the models of all rounds should look like.
        scale, alphas: who has said first how the products of adapters are scaled, a module or tensors, and how.
        server: looks at how the server comes to its models.
        columns: of the run's table, that only some runs have.
        resumed: the run that is gone on with, until the first round behind it.
        said: the kinds of warnings that were told.
        sentences: the warnings of a draft, which are told once its round is accepted.
    """

    next: int = 1
    expected: ExpectedModel | None = None
    scale: tuple[object, dict[str, Any]] | None = None
    alphas: tuple[object, dict[str, Any]] | None = None
    server: ServerIdentifier | None = None
    columns: tuple[str, ...] = ()
    resumed: Run | None = None
    said: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)

    def draft(self) -> Self:
        """Return a copy for the next round to change.

        >>> known = AcceptedRounds(said={"memory"})
        >>> draft = known.draft()
        >>> draft.tell("adapters", "they are adapters")
        >>> draft.tell("memory", "they were not copied")
        >>> draft.sentences, sorted(draft.said), sorted(known.said)
        (['they are adapters'], ['adapters', 'memory'], ['memory'])
        """
        return replace(self, server=copy(self.server), said=set(self.said), sentences=[])

    def tell(self, what: str, sentence: str) -> None:
        """Warn of each kind of thing once."""
        if what not in self.said:
            self.said.add(what)
            self.sentences.append(sentence)
