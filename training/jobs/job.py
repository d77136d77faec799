"""A job: what a scheduler runs. It starts fedscope's commands, stops them in time, and says how it went."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.visible_text import visible
from .environment import Environment
from .records import JobOutcome, JobRecord
from .share import Share
from .worker import Worker

#: seconds between looks at a command
LOOK = 0.1
#: seconds that a command has to stop where the job's time is over: schedulers leave thirty
STOP = 20.0

#: runs ``fedscope WORDS`` with what it prints at the end of a log, and gives its status
Do = Callable[[Sequence[str], Path], int]


class JobSpec(Protocol):
    """A piece of work that one job does; what it has done is seen on disk."""

    @property
    def name(self) -> str:
        """A file's name, which no other one of the folder has."""

    @property
    def log(self) -> Path:
        """The file that its commands print to."""

    @property
    def directory(self) -> Path | None:
        """The folder that relative paths begin at."""

    def work(self, do: Do) -> str | None:
        """In the job: do what is left of it. Gives the sentence with which it failed, or None."""

    def is_complete(self) -> bool:
        """Check whether nothing is left to do.

        Raises:
            FedscopeError: what is there is damaged.
        """

    def waits_for(self) -> str | None:
        """Return the one that has to end, well or not, before this one can begin; None where it can."""


class SentJob:
    """A job spec with its token, as submitit sends it.

    Args:
        folder: of the records.
        token: without which the job does nothing, see :mod:`fedscope.training.jobs.records`.
        environment: of the command that sends it.
        place: among the jobs at work, which no other one of them has.
        share: of the machine that it keeps to; None where the scheduler sees to that.
    """

    def __init__(
        self,
        spec: JobSpec,
        folder: Path,
        token: str,
        environment: Environment,
        place: int = 0,
        share: Share | None = None,
    ) -> None:
        self.spec, self.folder, self.token, self.environment = spec, folder, token, environment
        self.place, self.share = place, share
        self._worker: Worker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None}

    def __call__(self) -> str | None:
        """Do the work; gives the sentence with which it failed, or None."""
        record = JobRecord.read(self.folder, self.spec.name)
        if record is None or record.token != self.token:
            print(visible(f"fedscope: {self.spec.name} is another job's by now; nothing done"), flush=True)
            return None
        share = getattr(self, "share", None)  # a job that waits may have been sent before there were shares
        if share is not None:
            share.take()
        here = Environment.here()
        failure = self.environment.refusal(here)
        if failure is None:
            try:
                with Worker(self.spec.directory) as self._worker:
                    failure = self.spec.work(self._do)
            except FedscopeError as error:
                failure = str(error)
            except Exception as error:
                traceback.print_exc()
                failure = self._sentence(error)
                self._end(here, failure)
                raise
        self._end(here, failure)
        return failure

    def checkpoint(self) -> Any:
        """Stop, because the scheduler takes the machine back; gives what goes on, on whichever machine comes next.

        submitit calls it where the job's time is over, or where others have precedence.
        """
        from submitit.core.utils import DelayedSubmission

        if self._worker is not None:
            self._worker.stop(STOP)
        place, share = getattr(self, "place", 0), getattr(self, "share", None)
        return DelayedSubmission(SentJob(self.spec, self.folder, self.token, self.environment, place, share))

    def _do(self, words: Sequence[str], log: Path) -> int:
        assert self._worker is not None, "a job spec is at work"
        print("$", visible(command_line(*words)), flush=True)
        self._worker.begin(words, log)
        while (status := self._worker.status(LOOK)) is None:
            sys.stdout.flush()
        return status

    def _sentence(self, error: Exception) -> str:
        """submitit raises its own where it does not queue the job again."""
        if "timed-out too many times" in str(error):
            return (
                "it ran out of time too often; what is complete is kept, and the same command continues: give a "
                f"larger --job timeout_min or max_num_timeout, see {self.spec.log}"
            )
        return f"ended with {type(error).__name__}: {error}, see {self.spec.log}"

    def _end(self, here: Environment, failure: str | None) -> None:
        outcome = JobOutcome(self.token, failure, socket.gethostname(), here.capability)
        outcome.write(self.folder, self.spec.name)
