"""Training a sweep's runs by jobs, each run by one of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...checkpoints import FedscopeError, real_path
from ...checkpoints.io.safe_write import open_own
from ..jobs.job import Do
from ..jobs.launchers import Launcher
from ..jobs.progress import Progress
from ..jobs.records import JOBS, JobRecord
from ..jobs.wait import refuse_live_jobs, wait_for_jobs
from ..jobs.worker import last_words, wait_until_free
from .own_code import GivenAs, given_with, refuse_untrusted, source_changed, without_code
from .plan import Plan, PlannedRun, read_plan
from .running import make_folders, own_rounds, refuse_strange_logs
from .schedule import LOGS, RUNS, TrainStep, arguments_of, steps_of
from .state import failures_in, keep_failures, rounds_in, rounds_of

#: behind the name of a run that branches: its first round is there, and nobody else writes to it
_BEGUN = ".begun"


@dataclass(frozen=True)
class RunOfSweep:
    """Trains one run of a sweep; on its way it begins the runs that branch from it, each at its round.

    So no branch waits for its job while this run, which is trained on, loses what the branch needs of it.

    Attributes:
        folder: the sweep's; planned: the run.
        directory: that relative paths begin at.
        code: of one's own that was typed or given, by kind and name; the plan's file may name no other.
    """

    folder: Path
    planned: PlannedRun
    directory: Path | None
    code: Mapping[str, GivenAs] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's."""
        return self.planned.name

    @property
    def log(self) -> Path:
        """The file that ``fedscope train`` prints to."""
        return self.folder / LOGS / f"{self.name}.log"

    def is_complete(self) -> bool:
        """Check whether all rounds are recorded; raises FedscopeError for a damaged run, or another one."""
        return (rounds_of(self.folder, self.planned, self.directory) or 0) >= self.planned.rounds

    def waits_for(self) -> str | None:
        """Return the run that it branches from, until that has begun it; where that one fails it is trained from its
        start."""
        if self.planned.after is None or _begun(self.folder, self.name).exists():
            return None
        return self.planned.after[0]

    def work(self, do: Do) -> str | None:
        """Train it from where it stands."""
        plan = read_plan(self.folder, checked=False)
        plan.refuse_edited(self.folder)
        refuse_untrusted(plan.runs, self.code, self.folder)
        trunk = self.planned.after[0] if self.planned.after else ""
        near = {run.name: run for run in plan.runs if self.name in (run.name, (run.after or ("",))[0])}
        near |= {trunk: plan.of(trunk)} if trunk else {}
        done: dict[str, int | None] = dict.fromkeys(near)
        for name, run in near.items():
            try:
                done[name] = rounds_of(self.folder, run, self.directory)
            except FedscopeError:  # of another run, whose own job says it
                if name == self.name:
                    raise
        for step in steps_of(plan):
            if step.run.name == self.name:
                failure = self._trained(step, done, do)
                if failure is not None:
                    return failure
            elif step.run.name in near and step.run.name != trunk:
                self._begin(step.run, done, do)
        return None

    def _begin(self, branch: PlannedRun, done: dict[str, int | None], do: Do) -> None:
        """Train the first round of a run that branches from this one, which stands at the round for it.

        Where this one has gone on without it, or it fails, its own job trains it from its start, or says why not.
        """
        mark = _begun(self.folder, branch.name)
        if mark.exists():
            return
        if (
            JobRecord.read(self.folder / JOBS, branch.name) is not None
        ):  # it may be at work now, while this one is behind
            _make_mark(mark)
            return
        assert branch.after is not None, "it branches"
        here = done[branch.name] is not None or done[self.name] == branch.after[1]
        here = here and source_changed(branch, self.code) is None  # which its own job says
        words = self._words(TrainStep(branch, branch.after[1] + 1), done) if here else None
        if words is not None:
            if done[branch.name] is not None:
                wait_until_free(self.folder / RUNS / branch.name)
            do(words, self.folder / LOGS / f"{branch.name}.log")
        _make_mark(mark)

    def _trained(self, step: TrainStep, done: dict[str, int | None], do: Do) -> str | None:
        words = self._words(step, done)
        if words is None:
            return None
        if (changed := source_changed(self.planned, self.code)) is not None:
            return changed
        if done[self.name] is not None:
            wait_until_free(self.folder / RUNS / self.name)
        status = do(words, self.log)
        done[self.name] = rounds_of(self.folder, self.planned, self.directory)
        return last_words(self.log, status) if status and (done[self.name] or 0) < step.last else None

    def _words(self, step: TrainStep, done: Mapping[str, int | None]) -> list[str] | None:
        return arguments_of(step, self.folder, done, None, self.code)


def _make_mark(mark: Path) -> None:
    os.close(open_own(mark, "the mark of a run that has begun"))


def _begun(folder: Path, name: str) -> Path:
    return folder / JOBS / f"{name}{_BEGUN}"


def train_by_jobs(plan: Plan, folder: Path, by: Launcher, progress: Progress | None = None) -> None:
    """Have jobs train what a sweep still lacks; the caller holds its lock. Failures are kept next to the plan.

    Raises:
        FedscopeError: see :func:`~fedscope.training.jobs.wait.wait_for_jobs`.
        KeyboardInterrupt: passed on; jobs go on, and the same call collects them.
    """
    progress = progress or Progress()
    folder = real_path(folder)
    make_folders(folder, LOGS, RUNS, JOBS)
    refuse_strange_logs(plan, folder)
    code = given_with(plan)  # all that it names: refused before, where nobody gave it
    specs = [RunOfSweep(folder, without_code(run), plan.directory, code) for run in plan.runs]
    complete = [spec.name for spec in specs if _is_complete(spec)]
    progress.begin(complete)
    known = {name: text for name, text in failures_in(folder, plan).items() if name not in complete}
    keep_failures(folder, known)  # a job may have completed a run since
    told = _SweepProgress(plan, folder, known, progress)
    wait_for_jobs(specs, by, folder / JOBS, told, count=told.count)


def _is_complete(spec: RunOfSweep) -> bool:
    try:
        return spec.is_complete()
    except FedscopeError:  # which the wait for jobs says
        return False


class _SweepProgress(Progress):
    """Passes on what jobs do, and keeps failures."""

    def __init__(self, plan: Plan, folder: Path, known: Mapping[str, str], progress: Progress) -> None:
        self._plan, self._folder, self._known, self._progress = plan, folder, dict(known), progress

    def count(self) -> tuple[int, int]:
        """Return how many rounds are recorded, of how many."""
        done = sum(own_rounds(run.after, rounds_in(self._folder, run.name)) for run in self._plan.runs)
        return done, self._plan.rounds

    def advance(self, done: int, of: int) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.advance(done, of)

    def ended(self, name: str, failure: str | None) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._known.pop(name, None)
        if failure is not None:
            self._known[name] = failure
        keep_failures(self._folder, self._known)
        self._progress.ended(name, failure)

    def note(self, sentence: str) -> None:
        """See :class:`~fedscope.training.jobs.progress.Progress`."""
        self._progress.note(sentence)


def refuse_jobs(names: Sequence[str], folder: Path) -> None:
    """Refuse to train in this process what jobs train.

    Raises:
        FedscopeError: names the jobs.
    """
    if (folder / JOBS).is_dir():
        refuse_live_jobs(names, folder / JOBS, "give the same --launcher to wait for them")
