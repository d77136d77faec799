"""The evidence by which a claim is judged, and the statement that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..factors.result import RunFactors
from ..factors.rows import RoundFactors
from .intervals import Reading
from .phases import Phase

if TYPE_CHECKING:
    from .context_measures import ModelComparison, Similarity

Verdict = Literal["supported", "contradicted", "undecided"]


@dataclass(frozen=True)
class Statement:
    """One claim, and what the data say of it.

    Attributes:
        claim: its id, `own-data`; of a phase `greatest-part/late`.
        run: which run it is about; for several `fma, ima`.
        title: what is judged, in words.
        paper: what the paper says of it.
        verdict: on the title.
        sentence: what was measured, with its numbers.
        decide: what would decide it; empty unless undecided.
        readings: all numbers behind the sentence.
    """

    claim: str
    run: str
    title: str
    paper: str
    verdict: Verdict
    sentence: str
    decide: str
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Evidence:
    """The evidence of a run.

    Attributes:
        phases: the run's, with their decomposed rounds.
        split: what was measured on; "" where the run does not say whose samples are whose.
        similarity: of its clients, None where it was not measured.
        compared: its models on test data.
        stand_in: the run that similarity and comparisons on test data are of, where `run` are several.
        recorded: the last round that the run has; 0: all of its phases.
        kept: the rounds that can be decomposed, because their clients are there; None: all.
        undrawn: rounds whose clients are there, but not those of the rounds before them that draws from rounds take.
        replays: whether its local training can be done again, for other draws.
    """

    run: RunFactors
    phases: Sequence[Phase]
    split: str = ""
    similarity: Sequence[Similarity] | None = None
    compared: Sequence[ModelComparison] = ()
    stand_in: str = ""
    recorded: int = 0
    kept: Sequence[int] | None = None
    undrawn: Sequence[int] = ()
    replays: bool = True

    @property
    def rounds(self) -> Sequence[RoundFactors]:
        """The decomposed ones."""
        return self.run.rounds

    def phase(self, name: str) -> Phase | None:
        """`early`, `middle` or `late`, where the run is long enough to have it."""
        return next((one for one in self.phases if one.name == name), None)

    def there(self, phase: Phase) -> int:
        """Return the last round of a phase that the run has, or would have before it."""
        return min(phase.last, self.recorded or phase.last)

    def kept_in(self, phases: Sequence[Phase]) -> list[int]:
        """List the rounds of phases that can be decomposed; of those that the run does not have yet none."""
        rounds = [number for one in phases for number in range(one.first, self.there(one) + 1)]
        return rounds if self.kept is None else sorted(set(self.kept).intersection(rounds))

    def undrawn_in(self, phases: Sequence[Phase]) -> list[int]:
        """List the rounds of phases that cannot be decomposed, though their clients are there."""
        return [number for number in self.undrawn if any(one.first <= number <= one.last for one in phases)]

    def measured(self, sentence: str) -> str:
        """A sentence of what was measured of one run alone."""
        return f"Of the run {self.stand_in} alone. {sentence}" if self.stand_in else sentence


@dataclass(frozen=True)
class Judgement:
    """The verdict of the data on a claim.

    Attributes:
        decide: what would decide it, said where the verdict is undecided.
        words: those that the claim's title leaves open.
    """

    verdict: Verdict
    sentence: str
    decide: str
    readings: Sequence[Reading]
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperClaim:
    """A claim's id, what is judged, in words, what the paper says of it, and the function that judges."""

    id: str
    title: str
    paper: str
    judge: Callable[..., Judgement | None]

    def judged(self, run: str, *known: Evidence) -> Statement | None:
        """Return the statement of this claim; None where it has nothing to be judged by."""
        judgement = self.judge(*known)
        if judgement is None:
            return None
        decide = judgement.decide if judgement.verdict == "undecided" else ""
        title = self.title.format(**judgement.words)
        verdict, sentence, readings = judgement.verdict, judgement.sentence, tuple(judgement.readings)
        return Statement(self.id, run, title, self.paper, verdict, sentence, decide, readings)


def throughout(signs: Sequence[int | None]) -> Verdict:
    """Supported where all of them are 1, contradicted where all are -1.

    >>> throughout([1, 1]), throughout([-1]), throughout([1, -1]), throughout([0, 1]), throughout([])
    ('supported', 'contradicted', 'undecided', 'undecided', 'undecided')
    """
    return "supported" if set(signs) == {1} else "contradicted" if set(signs) == {-1} else "undecided"
