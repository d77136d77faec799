"""What a recorder knows of the rounds that it has accepted, by which the next one is read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..models.adapters import refuse_other_scale, scale_of_module
from ..models.expected import ExpectedModel
from ..runs.run import Run
from .coerce_models import ModelTensors, scale_of_tensors
from .identify_server import ServerIdentifier


@dataclass
class AcceptedRounds:
    """What is known of a run's rounds.

    A round works on a :meth:`draft` of it, which takes its place once nothing can refuse the round any more. So one
    that is refused leaves nothing: no scale, no names, no column, and no warning that another round will need.

    Attributes:
        next: the number of the round that comes next.
        expected: what the models of all rounds should look like.
        scale, alphas: who has said first how the products of adapters are scaled, a module or tensors, and how; where
            one is gone on with, the run.
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

    def refuse_other_scales(self, place: str, given: Mapping[str, Any]) -> None:
        """Refuse adapters whose products are scaled differently, as far as their modules say it.

        Args:
            place: of the round, for sentences.
            given: models as they were given, by what they are.

        Raises:
            FedscopeError: names two of them.
        """
        for what, model in given.items():
            if scale := scale_of_module(model):
                self.scale = self.scale or (f"{place}: {what}", scale)
                refuse_other_scale(*self.scale, f"{place}: {what}", scale)

    def refuse_other_alphas(self, place: str, given: Mapping[str, ModelTensors | None]) -> None:
        """Refuse the same as far as tensors say it, as kohya's adapters have them."""
        for what, model in given.items():
            if model is not None and (scale := scale_of_tensors(model)):
                self.alphas = self.alphas or (f"{place}: {what}", scale)
                if not _is_mean(scale["alpha"], self.alphas[1]["alpha"]):
                    refuse_other_scale(*self.alphas, f"{place}: {what}", scale)


def _is_mean(alphas: Mapping[str, float], of: Mapping[str, float]) -> bool:
    """Check whether alphas are the others but for the rounding of a mean of equal numbers, in bfloat16 at worst."""
    return alphas.keys() == of.keys() and all(abs(alphas[name] - of[name]) <= 0.01 * abs(of[name]) for name in of)
