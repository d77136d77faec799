"""Whether the runs of a sweep that name one data set were trained on one: its file may change between two stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.warn_user import warn_user
from ..data.same_data import name_of_data, other_data
from ..jobs.progress import Progress
from .plan import Plan
from .printed_commands import resuming
from .schedule import RUNS


class DataWatch(Progress):
    """Passes progress on, and warns of each run that is complete and on other data than an earlier one of the same
    ``data.name``: a table refuses both in one cell."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress | None) -> None:
        self._plan, self._folder, self._progress = plan, folder, progress or Progress()
        #: by ``data.name`` the first run that is complete
        self._first: dict[str | None, Run] = {}

    def begin(self, complete: Sequence[str]) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.begin(complete)
        for name in complete:
            self._look(name)

    def advance(self, done: int, of: int) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.advance(done, of)

    def ended(self, name: str, failure: str | None) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.ended(name, failure)
        if failure is None:
            self._look(name)

    def note(self, sentence: str) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.note(sentence)

    def _look(self, name: str) -> None:
        try:
            run = Run.open(self._folder / RUNS / name)
            first = self._first.setdefault(name_of_data(run), run)
        except FedscopeError:  # which who reads it says
            return
        if other_data([first, run]):
            again = command_line(*resuming(self._plan, self._folder))
            warn_user(
                f"{run.path} was trained on other data than {first.path}, though both have data.name = "
                f"{name_of_data(run)}: it has changed in between; move the runs on one of the two elsewhere, "
                f"and {again} trains them again"
            )
