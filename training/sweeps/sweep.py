"""``sweep``: many runs in one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, WriterLock
from ...checkpoints.io.atomic import LOCK_NAMES, NO_OTHER_OUT, OTHER_OUT, sweep_temporaries
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.untrusted import expand_home, lost_link, real_path
from ..config.config import Config, merge
from ..config.from_python import SINGLE, nested_tables, tables_of_keywords
from ..config.recipes import Cell
from ..config.sources import COMMAND_DEFAULT, PYTHON_DEFAULT, Setup, stored_tables
from ..jobs.job_settings import LOCAL
from ..jobs.launchers import Launcher, chosen_launcher, refuse_marks
from ..jobs.progress import Progress
from .axes import METHOD, cells_given, checked_seeds
from .by_jobs import refuse_jobs, train_by_jobs
from .data_watch import DataWatch
from .own_code import code_in, given_with, refuse_unknown_process, refuse_untrusted, with_given_code
from .own_task import handed_task
from .plan import FILE, Plan, PlannedRun, describe_difference, plan_sweep, read_plan
from .printed_commands import resuming
from .running import train_sweep
from .schedule import RUNS
from .state import failures_in, rounds_of


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder.

    Attributes:
        path: of the folder; plan: what it is to hold.
        failures: of the runs that failed when it was trained last, by name, their sentences.
    """

    path: Path
    plan: Plan
    failures: Mapping[str, str]

    @classmethod
    def open(cls, path: Path | str, *, checked: bool = True) -> Sweep:
        """A sweep that is there.

        Args:
            checked: whether the configurations of its plan are made, as training needs them.

        Raises:
            FedscopeError: no sweep, or a damaged plan.
        """
        path = expand_home(path)
        plan = read_plan(path, checked=checked)
        return cls(path, plan, failures_in(path, plan))

    @cached_property
    def _complete(self) -> frozenset[str]:
        return frozenset(run.name for run in self.plan.runs if self._is_complete(run))

    def _is_complete(self, run: PlannedRun) -> bool:
        try:
            return (rounds_of(self.path, run, self.plan.directory) or 0) >= run.rounds
        except FedscopeError:  # a damaged run, or another one: training says which
            return False

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that are complete, in the order of the plan."""
        return tuple(Run.open(self.path / RUNS / run.name) for run in self.plan.runs if run.name in self._complete)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the runs that are not complete."""
        return tuple(run.name for run in self.plan.runs if run.name not in self._complete)


@partial(speak_keywords, more=dict.fromkeys(SINGLE, "Any"))
def sweep(
    axes: Mapping[str, Sequence[Any]] | Sequence[Sequence[Cell]] = (),
    *,
    out: Path | str,
    recipe: str = "",
    config: Path | str | Config | Mapping[str, Any] | None = None,
    scale: float | None = None,
    seeds: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    share: bool = True,
    watcher: Progress | None = None,
    launcher: str = LOCAL,
    job: Mapping[str, Any] | None = None,
    task: Any = None,
    **single: Any,
) -> Sweep:
    """Train a run for every combination of settings, or go on with what is there of them.

    Where neither axes, recipe, configuration nor settings name a method, runs are FMA, as of :func:`fedscope.train`.
    ``fedscope sweep`` averages such runs over rounds, by IMA.

    Runs are trained in a process of their own, which ends with this one, or by jobs. One that fails is named, and the
    others go on.

    Args:
        axes: what is varied, as in ``{"method": ["fma", "ima"], "run.participation": [0.1, 0.2]}``; or axes of cells,
            each a mapping of several settings. Without any what the recipe varies.
        out: the sweep's folder: new, or with the same plan.
        recipe: a paper's set-up; config: or a ``.toml`` file, its tables or a
            :class:`fedscope.Config`; neither for the defaults of ``train``.
        scale: of the recipe or the configuration, see :func:`~fedscope.training.config.scale.scale_tables`.
        seeds: each sets ``run.seed`` and ``data.seed``.
        settings: of all runs, in tables or by their whole names, as ``{"run.rounds": 30}``.
        share: train once what several runs have in common, see
            :func:`~fedscope.training.sweeps.schedule.shared_histories`.
        launcher: ``local``, one run after the other; ``slurm``, jobs of a cluster; ``processes``, jobs as processes of
            this machine. Jobs go on when this call is interrupted, and the same call finds them.
        job: what each job is given, see :class:`~fedscope.training.jobs.job_settings.JobSettings`.
        task: what all runs learn, as of :func:`fedscope.train`; of one's own by its name, ``mytask:make``, or a
            criterion of torch.
        single: settings of all runs by keyword, as of :func:`fedscope.train`: ``rounds=30``, ``server=FedX``,
            ``model=Net``. Code of one's own is of a module that other processes can import, here and in ``axes``.

    Raises:
        FedscopeError: what :func:`~fedscope.training.sweeps.plan.plan_sweep` refuses; an ``out`` that holds something
            else; a launcher that is not there.
        KeyboardInterrupt: passed on; the same call goes on.

    >>> import tempfile, fedscope
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small = {"data": {"clients": 4}, "run": {"rounds": 2, "participation": 0.5}}
    ...     made = fedscope.sweep({"method": ["fma", "fedavgm"]}, settings=small, out=folder)
    ...     [run.name for run in made.runs], dict(made.failures)
    (['fma', 'fedavgm'], {})
    """
    for given in (single, settings or {}):
        if METHOD in given:
            raise FedscopeError(
                f"method={given[METHOD]!r} is no setting of all runs: methods are varied; give them first, as in "
                f'fedscope.sweep({{"method": [{given[METHOD]!r}]}}, ...)'
            )
    stored: Mapping[str, Mapping[str, Any]] = {}
    if isinstance(config, Config):
        stored = config.asked()
    elif config is not None:
        stored = nested_tables(config) if isinstance(config, Mapping) else stored_tables(Path(config))
    cells = cells_given(axes)
    learnt = {} if task is None else {"model": {"task": handed_task(task)}}
    tables, keywords = nested_tables(settings or {}), merge(tables_of_keywords(single), learnt)
    laid = merge(tables, keywords)
    setup, plan_of = Setup(recipe, stored, scale, PYTHON_DEFAULT), partial(plan_sweep, axes=cells, share=share)
    chosen = checked_seeds(seeds)
    try:
        plan = plan_of(setup, seeds=chosen, settings=laid)
    except FedscopeError as error:
        with_average = partial(plan_of, replace(setup, default=COMMAND_DEFAULT), seeds=chosen, settings=laid)
        if setup.unsaid(None, laid) and _is_taken(with_average):
            raise FedscopeError(
                f"{error}; runs for which no method is named have no average over rounds, so give "
                f"average={COMMAND_DEFAULT!r}"
            ) from None
        raise
    return train_plan(plan, out, watcher, chosen_launcher(launcher, job))


def _is_taken(made: Callable[[], Plan]) -> bool:
    try:
        made()
    except FedscopeError:
        return False
    return True


def train_plan(plan: Plan, out: Path | str, watcher: Progress | None = None, by: Launcher | None = None) -> Sweep:
    """Make a folder a sweep, or go on with the same one.

    Args:
        by: what sends jobs; without it one run is trained after the other.

    Raises:
        FedscopeError: the folder holds something else, or another sweep; another process, or jobs, train it; a folder
            that cannot hold jobs.
        KeyboardInterrupt: passed on; the same call goes on.
    """
    out = expand_home(out)
    if by is not None:
        refuse_marks(by, real_path(out))
    trusted = given_with(plan)
    refuse_unknown_process(plan)
    asked, plan = plan, plan_there(plan, out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = lost_link(out) or f"cannot be made ({error.strerror})"
        raise FedscopeError(f"{out} {why}; give another --out") from error
    with WriterLock(out, OTHER_OUT if plan is asked else NO_OTHER_OUT):
        plan = plan_there(plan, out)  # again: now nobody else can fill it
        sweep_temporaries(out)
        if not (out / FILE).exists():
            plan.write(out)
        plan.write_given(out)
        plan.refuse_edited(out)
        refuse_untrusted(plan.runs, trusted, out)
        watcher = DataWatch(plan, out, watcher)
        if by is not None:
            train_by_jobs(plan, out, by, watcher)
        else:
            refuse_jobs([run.name for run in plan.runs], out)
            train_sweep(plan, out, watcher)
    return Sweep.open(out)


def rounds_there(plan: Plan, out: Path) -> dict[str, int | None]:
    """Of each run the last round that a sweep's folder has already, None where there is no run yet.

    Raises:
        FedscopeError: the folder holds something else, or another sweep; a damaged run.
    """
    there = plan_there(plan, out)
    if there is plan:
        return dict.fromkeys(run.name for run in plan.runs)
    there.refuse_edited(out)
    return {run.name: rounds_of(out, run, there.directory) for run in plan.runs}


def plan_there(plan: Plan, out: Path) -> Plan:
    """Return the plan of the same sweep that a folder holds already, or this one for a folder that is free.

    Free are: nothing, an empty folder, and what an interrupted beginning left.

    Raises:
        FedscopeError: it holds something else, or another sweep.
    """
    if (out / FILE).exists():
        there = read_plan(out)
        if other := describe_difference(there, plan):
            again = command_line(*resuming(there, out, plan))
            raise FedscopeError(f"{out} holds another sweep{other}; give another --out, or {again}")
        given = {name: code for run in plan.runs for name, code in code_in(run.tables).items()}
        return with_given_code(there, given) if given else there
    if out.exists() and not out.is_dir():
        raise FedscopeError(f"{out} exists and is a file; give another --out")
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    left = {name for name in names if name.startswith(f".{FILE}.") and name.endswith(".tmp")}
    strange = names - left - {*LOCK_NAMES}
    if strange:
        raise FedscopeError(f"{out} exists and is not a sweep: it holds {sorted(strange)[0]}; give another --out")
    return plan
