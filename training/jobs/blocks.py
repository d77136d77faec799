"""A question's surfaces cut into blocks of points, each measured by a job, and put together where it is asked."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...analysis.analysis import PreparedAnalysis
from ...analysis.execution import Execution, Report, no_output
from ...checkpoints import FedscopeError, WriterLock, write_durably
from ...checkpoints.io.atomic import LOCK_NAME
from ...checkpoints.io.safe_write import own_folder, refuse_linked
from ...checkpoints.io.untrusted import read_json
from ...checkpoints.runs.run import rounds_agreed
from ...results.versions import versions
from .environment import Environment
from .job import Do
from .launchers import Launcher, refuse_marks
from .progress import Progress
from .wait import wait_for_jobs
from .worker import last_words, wait_until_free

_POINTS, _COMPLETE = "points", "complete.json"


@dataclass(frozen=True)
class PartBlock:
    """Every ``count``-th point of a part of a question, from the ``index``-th on; the work of one job.

    Attributes:
        folder: of all blocks; part: the place of the question's part.
        words: the command that asks the question.
        directory: that relative paths begin at.
    """

    folder: Path
    part: int
    index: int
    count: int
    words: tuple[str, ...] = ()
    directory: Path | None = None

    @property
    def name(self) -> str:
        """``0-3-of-8``: part, block, of how many."""
        return f"{self.part}-{self.index + 1}-of-{self.count}"

    @property
    def log(self) -> Path:
        """The file that its command prints to."""
        return self.folder / f"{self.name}.log"

    @property
    def points(self) -> Path:
        """The store of what is measured, from which an interrupted block goes on."""
        return self.folder / self.name / _POINTS

    @property
    def capability(self) -> str:
        """Of the processor that measured a complete block.

        Raises:
            FedscopeError: a damaged file of it.
        """
        path, remedy = self.folder / self.name / _COMPLETE, "remove it, and its points are measured again"
        said = read_json(path, "the end of a block", remedy)
        if not (isinstance(said, dict) and isinstance(said.get("capability"), str)):
            raise FedscopeError(f"{path} is damaged: it does not say capability; {remedy}")
        return str(said["capability"])

    def is_complete(self) -> bool:
        """Check whether all of its points are measured."""
        return (self.folder / self.name / _COMPLETE).exists()

    def waits_for(self) -> str | None:
        """No block needs another."""
        return None

    def work(self, do: Do) -> str | None:
        """Measure what is left of it."""
        own_folder(self.folder / self.name)
        wait_until_free(self.folder / self.name)
        place = map(str, (self.part, self.index, self.count, self.folder))
        status = do([*self.words, "--block", *place], self.log)
        return last_words(self.log, status) if status else None

    def measure(self, question: PreparedAnalysis[Any]) -> None:
        """In the job's command: measure its points, and say that they are complete.

        Raises:
            FedscopeError: another process measures it.
        """
        own = self.folder / self.name
        refuse_linked(self.folder.parent, self.folder, own)
        own.mkdir(parents=True, exist_ok=True)
        with WriterLock(own):
            question.parts[self.part].answer(Execution(keep=self.points, block=(self.index, self.count)))
            with write_durably(own / _COMPLETE) as temporary:
                temporary.write_text(json.dumps({"capability": Environment.here().capability}) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Blocks:
    """The blocks in which jobs measure a question's surfaces.

    Attributes:
        by: sends them; count: of blocks of a surface.
        words: the command that asks the question; directory: where it was given.
    """

    by: Launcher
    count: int
    words: tuple[str, ...]
    directory: Path

    def of(self, question: PreparedAnalysis[Any], base: Path, part: int) -> list[PartBlock]:
        """Return the blocks of a part. Where they lie depends on all that the numbers do, so that blocks of another
        question are never taken for this one's."""
        asked = []
        for one in question.parts:
            asked.append(_round_digits(one.settings))
            one.release()
        text = json.dumps([asked, self.count, versions()], sort_keys=True)
        folder = _jobs(base) / hashlib.sha256(text.encode()).hexdigest()[:12]
        # jobs begin later, when a run that is being trained has more rounds
        upto = [word for path, last in rounds_agreed().items() for word in ("--up-to", str(path), str(last))]
        words = (*self.words, *upto)
        return [PartBlock(folder, part, i, self.count, words, self.directory) for i in range(self.count)]

    def measure(self, question: PreparedAnalysis[Any], base: Path, parts: Sequence[int], progress: Progress) -> None:
        """Have jobs measure what is lacking of parts of a question.

        Raises:
            FedscopeError: blocks that fail, with the first one's sentence; see
                :func:`~fedscope.training.jobs.wait.wait_for_jobs`.
            KeyboardInterrupt: passed on; jobs go on.
        """
        blocks = [block for part in parts for block in self.of(question, base.absolute(), part)]
        refuse_marks(self.by, _jobs(base))
        base.parent.mkdir(parents=True, exist_ok=True)
        own_folder(_jobs(base))
        with WriterLock(_jobs(base)):
            ended = wait_for_jobs(
                blocks,
                self.by,
                blocks[0].folder,
                progress,
                count=lambda: (sum(block.is_complete() for block in blocks), len(blocks)),
            )
        failed = {name: failure for name, failure in ended.items() if failure is not None}
        if failed:
            name, failure = next(iter(failed.items()))
            raise FedscopeError(
                f"{len(failed)} of {len(blocks)} blocks failed, {name} for one: {failure}; measured points are kept, "
                f"and the logs are in {blocks[0].folder}"
            )

    def elsewhere(self, question: PreparedAnalysis[Any], base: Path, part: int, work: dict[str, Any]) -> dict[str, Any]:
        """Settings with which a computation takes over from a part's blocks."""
        from ...evaluation.resumable import OtherStore

        own, blocks = Environment.here().capability, self.of(question, base.absolute(), part)
        there = [block for block in blocks if block.is_complete()]
        stores = [OtherStore(block.points, block.capability != own) for block in there]
        mixed = {block.capability for block in there} | {own}
        about = {"capabilities": sorted(mixed)} if len(mixed) > 1 else {}
        return {**work, "elsewhere": stores, "about": about}

    def forget(self, question: PreparedAnalysis[Any], base: Path) -> None:
        """Remove the blocks of a question whose answer is kept."""
        refuse_linked(_jobs(base))
        shutil.rmtree(self.of(question, base.absolute(), 0)[0].folder, ignore_errors=True)  # which follows no link
        with suppress(OSError):  # another question's blocks lie there, too
            (_jobs(base) / LOCK_NAME).unlink(missing_ok=True)
            _jobs(base).rmdir()


class BlockProgress(Progress):
    """Reports how many blocks are complete, and says what is worth reading."""

    def __init__(self, report: Report, tell: Any = no_output) -> None:
        self._report, self._tell = report, tell

    def advance(self, done: int, of: int) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._report(done, of)

    def ended(self, name: str, failure: str | None) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        if failure is not None:
            self._tell(f"fedscope: block {name} failed: {failure}")

    def note(self, sentence: str) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._tell(f"fedscope: {sentence}")


def _jobs(base: Path) -> Path:
    return Path(f"{base}.jobs")


def _round_digits(value: Any) -> Any:
    """Settings without the last digits of what modules answer, which depend on the processor."""
    if isinstance(value, dict):
        return {key: _digits(one) if key.endswith("behaviour") else _round_digits(one) for key, one in value.items()}
    return [_round_digits(one) for one in value] if isinstance(value, list) else value


def _digits(value: Any) -> Any:
    return [_digits(one) for one in value] if isinstance(value, list) else (value and f"{value:.3g}")
