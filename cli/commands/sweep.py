"""``fedscope sweep``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...checkpoints.io.errors import count_of, list_few
from ...checkpoints.io.shell_words import command_line
from ..option_types import HomePath, Share
from ..options import Jobs, code_option, launcher_options, pack_into
from ..printing import say, say_json
from ..progress import progress

if TYPE_CHECKING:
    from ...analysis.execution import Report
    from ...training.jobs.progress import Progress
    from ...training.sweeps.plan import Plan


@dataclass(frozen=True)
class Varied:
    """The options and arguments that say what is varied, as they were typed."""

    keys: tuple[str, ...]
    recipe: str | None
    scale: float | None
    seeds: str | None
    assignments: tuple[str, ...]
    alone: bool
    code: Mapping[str, Any]
    tasks: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """The configuration, if one was given."""
        return [word for word in self.keys if "=" not in word]

    @property
    def name(self) -> str:
        """``method-participation``: the folder of a sweep that has no name."""
        if self.recipe:
            return self.recipe
        axes = [word.partition("=")[0].rpartition(".")[2] for word in self.keys if "=" in word] or ["seeds"]
        return re.sub(r"[^\w.-]+", "-", "-".join([*(Path(file).stem for file in self.files), *axes]))


@click.command(
    "sweep",
    epilog="Example:  fedscope sweep method=fma,ima run.participation=0.1,0.2 --seeds 0..2 --set run.rounds=30    "
    "All of a paper's table:  fedscope sweep --recipe ima/table1-cifar10-cnn-shards2 --scale 0.1    "
    "Look first:  fedscope sweep method=fma,ima --dry-run    "
    "On a cluster:  fedscope sweep method=fma,ima --seeds 0..4 --launcher slurm --job timeout_min=60",
)
@click.argument("keys", nargs=-1, metavar="[CONFIG] [KEY=A,B,C]...")
@click.option(
    "--recipe", metavar="PAPER/NAME", help="A paper's set-up; without keys, everything that its figure or table varies."
)
@click.option(
    "--scale", type=Share(), metavar="S", help="Multiply rounds, clients and samples of CONFIG or --recipe by S."
)
@click.option("--seeds", metavar="A..B", help="Seeds of run and partition: 0..4 (both ends included), or 0,1,5.")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="A setting of all runs; repeatable."
)
@click.option("--out", type=HomePath(), help="Folder of the sweep (default: sweeps/NAME).")
@click.option("--resume", type=HomePath(), metavar="SWEEP", help="Continue a sweep where it stopped.")
@click.option("--dry-run", is_flag=True, help="Only print the commands, with estimates of time and disk space.")
@click.option(
    "--alone", is_flag=True, help="Train every run from its start, even if several runs share their first rounds."
)
@code_option
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="NAME",
    help="Task of all runs, as of train; with --resume your own ones that the plan names, repeatable.",
)
@launcher_options("trains one run")
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
@pack_into("varied", Varied)
def command(varied: Varied, out: Path | None, resume: Path | None, dry_run: bool, jobs: Jobs, as_json: bool) -> None:
    """Train a run for every combination of settings and seeds.

    A key is section.key of a configuration, or method. Put a value with commas in quotes, as in
    data.partition='"shards:2,250",iid'. CONFIG is a .toml file.

    Runs are trained in a second process, which ends with this one, or by jobs, which continue. If a run fails, the
    command names it and continues with the others. The same command, or --resume, continues after any stop and finds
    jobs that still run.
    """
    from ...checkpoints import FedscopeError
    from ...training import Sweep, train_plan
    from ...training.sweeps.own_code import with_given_code
    from ...training.sweeps.own_task import tasks_of_options
    from ...training.sweeps.printed_commands import resuming

    by, seeds = jobs.chosen(), varied.seeds
    if resume is not None:
        if out or any(value for name, value in vars(varied).items() if name not in ("code", "tasks")):
            raise FedscopeError(
                f"--resume {resume} goes on with the sweep's own plan; give it alone, or with --code and --task"
            )
        given = {**varied.code, **tasks_of_options(varied.tasks)}
        plan, out = with_given_code(Sweep.open(resume).plan, given), resume
    else:
        plan, out = _plan_of(varied), out or Path("sweeps") / varied.name
    if seeds and seeds.strip().isdecimal() and int(seeds) > 1:
        say(f"fedscope: --seeds {int(seeds)} is one seed; {int(seeds)} of them are 0..{int(seeds) - 1}", err=True)
    for note in plan.notes:
        say(f"fedscope: {note}", err=True)
    if dry_run:
        _dry(plan, out, Path(varied.files[0]) if varied.files else None, as_json)
        return
    say(f"{out}: {count_of(len(plan.runs), 'run')}, {count_of(plan.rounds, 'round')} in all", err=True)
    with progress(str(out)) as report:
        try:
            done = train_plan(plan, out, _progress_printer(report, len(plan.runs)), by)
        except KeyboardInterrupt:
            how = jobs.words if by is not None else []
            say(f"fedscope: go on with: {command_line(*resuming(plan, out), *how)}", err=True)
            raise
    complete, failures = done.runs, done.failures
    if as_json:
        said = {"sweep": str(out), "complete": [run.name for run in complete], "failed": dict(failures)}
        say_json({**said, "missing": list(done.missing)})
    else:
        say(f"{out}: {len(complete)} of {len(plan.runs)} runs complete; {command_line('table', out)}")
    if failures:
        raise FedscopeError(
            f"{len(failures)} of {len(plan.runs)} runs failed: {list_few(failures)}; see {out / 'logs'}"
        )


#: what data go behind
_DATA = "--set data.name="


def _plan_of(varied: Varied) -> Plan:
    """Return the plan of what was typed.

    Raises:
        FedscopeError: words that are neither a configuration nor keys with values, and what the plan refuses.
    """
    from ...checkpoints import FedscopeError
    from ...training import Setup, read_assignments
    from ...training.config.config import SECTIONS
    from ...training.config.data_meant import refuse_data
    from ...training.config.sources import stored_tables, with_place
    from ...training.sweeps.axes import read_axes, read_seeds
    from ...training.sweeps.plan import plan_sweep
    from ...training.user_code.provided_code import with_code

    keys, files = varied.keys, varied.files
    known = ("method", *SECTIONS)
    if bare := [word for word in files if word.partition(".")[0] in known and not Path(word).exists()]:
        raise FedscopeError(f"{bare[0]} has no values; write what is varied as {bare[0]}=A,B,C")
    if files:
        refuse_data(files[0], "not a configuration", _DATA)
    if files and len(keys) > 1 and not files[0].endswith(".toml") and not Path(files[0]).exists():
        raise FedscopeError(
            f"{files[0]} is neither a configuration nor KEY=A,B,C; separate values with commas and no spaces, as "
            "in method=fma,ima"
        )
    if len(files) > 1:
        raise FedscopeError(f"{files[1]} is a second configuration after {files[0]}; write keys as KEY=A,B,C")
    stored = with_code(stored_tables(Path(files[0]), _DATA) if files else {}, varied.code)
    axes = read_axes(word for word in keys if "=" in word)
    chosen = read_seeds(varied.seeds) if varied.seeds else ()
    setup = Setup(varied.recipe or "", stored, varied.scale)
    settings = _with_task(read_assignments(varied.assignments), varied.tasks)
    try:
        return plan_sweep(setup, axes, chosen, settings, share=not varied.alone)
    except FedscopeError as error:
        raise with_place(error, Path(files[0]), stored) if files else error from None


def _with_task(settings: dict[str, dict[str, Any]], tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of all runs with the task that ``--task`` gives.

    Raises:
        FedscopeError: two tasks, of which it is not clear what counts.
    """
    from ...checkpoints import FedscopeError

    given = [f"--set model.task={text}" for text in [settings.get("model", {}).get("task")] if text is not None]
    given += [f"--task {text}" for text in tasks]
    if len(given) > 1:
        raise FedscopeError(
            f"{given[0]} and {given[1]} are two tasks of all runs; leave one out, or vary model.task=A,B"
        )
    if tasks:
        settings = {**settings, "model": {**settings.get("model", {}), "task": tasks[0]}}
    return settings


def _progress_printer(report: Report, count: int) -> Progress:
    """Make a progress that says each run that is complete or has failed, and how many of all rounds are recorded."""
    from ...training.jobs.progress import Progress

    class Printed(Progress):
        done = 0

        def begin(self, complete: Sequence[str]) -> None:
            self.done = len(complete)

        def advance(self, done: int, of: int) -> None:
            report(done, of)

        def ended(self, name: str, failure: str | None) -> None:
            self.done += 1
            state = "complete" if failure is None else f"failed: {failure}"
            say(f"[{self.done}/{count}] {name}: {state}", err=True)

        def note(self, sentence: str) -> None:
            say(f"fedscope: {sentence}", err=True)

    return Printed()


def _dry(plan: Any, out: Path, given: Path | None, as_json: bool) -> None:
    """Print the commands that are left, in their order, and an estimate of what is left."""
    from ...analysis.execution import describe_seconds
    from ...checkpoints import format_size
    from ...training.sweeps.estimates import estimate
    from ...training.sweeps.printed_commands import printed_commands
    from ...training.sweeps.sweep import plan_there, rounds_there

    plan = plan_there(plan, out)
    there = rounds_there(plan, out)
    commands = list(printed_commands(plan, out, there, given))
    if not as_json:
        for text in commands:
            say(text)
    with progress("trying a few steps of each kind") as report:
        guess = estimate(plan, there, report)
    if as_json:
        said = {"commands": commands, "runs": len(plan.runs), "rounds": plan.rounds}
        left = {"runs_left": guess.runs, "rounds_left": guess.rounds}
        say_json({**said, **left, "seconds": guess.seconds, "bytes": guess.bytes})
        return
    if not guess.runs:
        say(f"nothing is left to train: {count_of(len(plan.runs), 'run')} complete")
        return
    rounds, every = count_of(guess.rounds, "round"), count_of(len(plan.runs), "run")
    whole = guess.rounds == plan.rounds
    work = f"{every}, {rounds}" if whole else f"{guess.runs} of {every}, {rounds} are left"
    say(
        f"{work}: about {describe_seconds(guess.seconds)} on this machine, from a few steps of each kind, and up to "
        f"{format_size(guess.bytes)} on the disk"
    )
