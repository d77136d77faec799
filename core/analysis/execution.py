"""The progress of a computation, and the store of what it has finished; the one loop over rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..results import Serializable
from ..results.resume import ResumeStore
from ..results.versions import versions
from .run_identity import split_seals

if TYPE_CHECKING:
    from ..evaluation.resumable import OtherStore

#: called with (done, of)
Report = Callable[[int, int], None]

#: what a result says and a store of finished rounds does not depend on: asking for more of them goes on with those
ROUNDS = ("rounds",)


T = TypeVar("T", bound=Serializable)


def no_output(line: str) -> None:
    """A line that nobody reads."""


@contextmanager
def no_progress(label: str) -> Iterator[Report]:
    """Progress that nobody watches."""
    yield lambda done, of: None


@dataclass(frozen=True)
class Execution:
    """One computation at work.

    Attributes:
        keep: the file of what is finished, from which the same question goes on; None keeps nothing.
        progress: given a label, a context that gives what is told of (done, of).
        preview: the base next to which a picture may be drawn meanwhile; None for none.
        tell: takes a line that is worth reading before the answer is there, such as what it costs.
        before: results of the question's earlier parts, for one that is made from them.
        earlier: results of the same settings that were not computed far enough: what they hold is taken over.
        block: (i, n): only the i-th of n blocks is to be computed, and kept; there is no answer.
        elsewhere: what other processes have kept of such blocks.
        about: what the answer's provenance says of how it was computed.
    """

    keep: Path | None = None
    progress: Callable[[str], AbstractContextManager[Report]] = no_progress
    preview: Path | None = None
    tell: Callable[[str], None] = no_output
    before: Sequence[Any] = ()
    earlier: Sequence[Any] = ()
    block: tuple[int, int] | None = None
    elsewhere: Sequence[OtherStore] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def store(self, settings: Mapping[str, Any], *loose: str) -> ResumeStore:
        """Open the store of what is finished of the analysis with these settings; those named ``loose`` are not part of
        it.

        Where rounds are loose, what tells each of them from another in its place is not, either: the store goes on with
        more rounds, and begins afresh where one that it was made of was recorded again.
        """
        question = {key: value for key, value in settings.items() if key not in loose}
        seals: dict[str, str] = {}
        if question.get("precision") == "float64":  # which earlier versions called so, and went on from
            question["precision"] = "float32"
        if "rounds" in loose and "run" in question:
            question["run"], seals = split_seals(question["run"])
        return ResumeStore(self.keep, {**question, "versions": versions()}, made_of=seals)

    def each(self, label: str, tasks: Iterable[WorkUnit[T]], store: ResumeStore) -> list[T]:
        """Every task's answer: from the store where it is there, else computed and kept."""
        tasks = list(tasks)
        whole, before = sum(task.size for task in tasks), 0
        answers: list[T] = []
        with self.progress(label) as report:
            for task in tasks:
                answer = store.take(task.key, task.kind.from_json)
                if answer is None:
                    store.add(task.key, task.compute(within(report, before, whole)).to_json())
                    answer = task.kind.from_json(store.done[task.key])
                answers.append(answer)
                before += task.size
                report(before, whole)
        return answers


@dataclass(frozen=True)
class WorkUnit(Generic[T]):
    """A part of the work, a round mostly.

    Attributes:
        key: of its answer in the store.
        kind: of its answer.
        compute: given how to report progress in its own units, gives its answer.
        size: how many of these units it takes.
    """

    key: str
    kind: type[T]
    compute: Callable[[Report], T]
    size: int = 1


def within(report: Report, before: int, whole: int) -> Report:
    """Progress of a part as progress of the whole, of which ``before`` is done already."""

    def tell(done: int, of: int) -> None:
        report(before + done, whole)

    return tell


def describe_seconds(seconds: float) -> str:
    """``42 s``, ``7 min``, ``3 h 05 min``.

    >>> describe_seconds(42), describe_seconds(431), describe_seconds(11_112)
    ('42 s', '7 min', '3 h 05 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"
