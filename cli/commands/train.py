"""``fedscope train``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..option_types import HomePath, Share
from ..options import code_changed_option, code_option, pack_into
from ..printing import say, say_json, say_lines
from ..train_flags import FLAGS, warn_of_overridden

if TYPE_CHECKING:
    from ...checkpoints import Run
    from ...training.loop.options import TrainOptions

#: what ``run.engine`` takes
ENGINES = ("auto", "threads", "device", "cohort")


def _flags(function: Any) -> Any:
    for flag, place, metavar, text in reversed(FLAGS):
        function = click.option(flag, place.replace(".", "__"), metavar=metavar, help=text)(function)
    return function


@dataclass(frozen=True)
class Typed:
    """The options and arguments of a new run's settings, as they were typed."""

    config: Path | None
    method: str | None
    recipe: str | None
    scale: float | None
    assignments: Sequence[str]


@dataclass(frozen=True)
class Course:
    """The options of how a training goes, which are no settings of the run."""

    force: bool
    until: int | None
    engine: str | None
    keep_going: bool
    profile: Path | None
    code: Mapping[str, Any]
    code_changed: bool

    @property
    def cluster(self) -> str | None:
        """The cluster that trains; None for this machine.

        Raises:
            FedscopeError: no such engine.
        """
        from ...checkpoints import FedscopeError, nearest
        from ...distributed.engines import is_cluster

        if self.engine is None or self.engine in ENGINES:
            return None
        if not is_cluster(self.engine):
            raise FedscopeError(
                f"--engine {self.engine} is unknown{nearest(self.engine, (*ENGINES, 'ray'))}; give "
                f"{', '.join(ENGINES)}, or for the workers of a cluster ray, ray:2 or ray:HOST:6379"
            )
        return self.engine


class _Train(click.Command):
    """The command, whose help also lists what installed packages add."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        from ...training.settings.entry_points import describe_installed

        if lines := describe_installed():
            with formatter.section("Of installed packages"):
                formatter.write_dl(lines)
        super().format_epilog(ctx, formatter)


@click.command(
    "train",
    cls=_Train,
    epilog="Example:  fedscope train --method ima --rounds 60 --out runs/ima --set average.window=5",
)
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--method", metavar="NAME", help="A published method: ima (default), fma (or fedavg), fedsa (or fedpake), ..."
)
@_flags
@click.option(
    "--recipe", metavar="PAPER/NAME", help="A paper's set-up, without the method; fedscope recipes lists them."
)
@click.option(
    "--scale", type=Share(), metavar="S", help="Multiply rounds, clients and samples of CONFIG or --recipe by S."
)
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting; repeatable.")
@click.option("--out", type=HomePath(), help="Folder of the run (default: runs/METHOD).")
@click.option("--force", is_flag=True, help="Replace an existing run; train even if the disk may be too small.")
@click.option(
    "--resume",
    type=HomePath(),
    metavar="RUN",
    help="Continue a run exactly where it stopped, on the same kind of device.",
)
@click.option("--from", "from_", metavar="RUN@ROUND", help="Branch: same history, another method from there on.")
@click.option("--until", type=int, metavar="ROUND", help="Stop after this round; --resume continues.")
@click.option("--download", is_flag=True, help="Fetch missing files of a published data set.")
@click.option(
    "--engine",
    metavar="NAME",
    help="auto, threads, device or cohort; or ray, ray:HOST:6379: the workers of a cluster, with the same numbers; "
    "with --device cuda each on a GPU (ray@0.5: two share one).",
)
@click.option("--keep-going", is_flag=True, help="Continue when a client's loss is no longer a number.")
@click.option(
    "--profile",
    type=HomePath(),
    metavar="FILE",
    help="Print where a round's time goes, and write a trace for ui.perfetto.dev to FILE.",
)
@code_option
@code_changed_option
@click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result.")
@pack_into("typed", Typed)
@pack_into("course", Course)
def command(
    typed: Typed,
    course: Course,
    out: Path | None,
    resume: Path | None,
    from_: str | None,
    download: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Train a federation and record every round.

    Without options: IMA on the embedded digits (50 clients, ten per round, two label shards each, mlp, 60 rounds).
    CONFIG is a .toml file, for example a run's config.toml. --recipe takes a paper's set-up. Flags and --set override
    both.
    """
    from ...checkpoints import FedscopeError
    from ...training import canonical_method, merge, preset, read_assignments
    from ...training.loop.options import TrainOptions
    from ...training.user_code.typed import typed_method, typed_tables

    method = canonical_method(typed_method(typed.method, given=course.code)) if typed.method else None
    typed = replace(typed, method=method)
    flags, own = _own_task(flags)
    given = [f"{place.replace('__', '.')}={value}" for place, value in flags.items() if value is not None]
    cluster = course.cluster
    given += [f"run.engine={course.engine}"] if course.engine is not None and cluster is None else []
    warn_of_overridden(read_assignments(given), read_assignments(typed.assignments))
    times = _profile_at(course.profile)
    how = TrainOptions(
        force=course.force,
        keep_going=course.keep_going,
        engine=cluster,
        task=own,
        until=course.until,
        profile=times,
        code=course.code,
        code_changed=course.code_changed,
    )
    if resume is not None:
        how = replace(how, device=flags["run__device"], data=_place_of_data(flags))
        apart = ("run.device=", "data.name=", *(["model.task="] if own is not None else []))
        given = [text for text in given if not text.startswith(apart)]
        if any((*vars(typed).values(), given, out, course.force, from_, download)):
            raise FedscopeError(
                f"--resume {resume} goes on with the settings that the run has; give it alone, or with --keep-going, "
                "--engine ray, --device, --data, --until, --code or --profile"
                f"{_train_longer(resume, flags['run__rounds'])}"
            )
        run = _resume_run(resume, how, course.profile)
    elif from_ is not None:
        recipe, scale = typed.recipe, typed.scale
        if other := typed.config or (recipe and f"--recipe {recipe}") or (scale and f"--scale {scale:g}"):
            raise FedscopeError(
                f"--from {from_} takes the settings of that run; leave {other} out, and use flags or --set"
            )
        if download:
            raise FedscopeError(f"--from {from_} goes on with that run's data; leave --download out")
        how = replace(how, data=_place_of_data(flags))
        given = [text for text in given if not text.startswith("data.name=")]
        changes = merge(
            preset(typed.method) if typed.method else {},
            *(typed_tables(read_assignments(texts), course.code) for texts in (given, typed.assignments)),
        )
        with _with_profile(times, course.profile):
            run = _branch_run(from_, typed.method, changes, out, how)
    else:
        run = _start_run(typed, given, out, how, course.profile, download=download)
    _say(run, as_json, times)


def _train_longer(path: Path, rounds: str | None) -> str:
    """Say how a run gets more rounds than it was to have, where somebody asks for a number of them."""
    if rounds is None:
        return ""
    from ...checkpoints import FedscopeError, Run
    from ...checkpoints.io.code_words import code_words
    from ...checkpoints.io.shell_words import command_line

    try:
        run = Run.open(path)
        own = code_words(run.info, run.config)
    except (FedscopeError, OSError):  # what is to be resumed is looked at when the options are right
        own = ()
    words = ("--rounds", rounds, *own, "--out", f"{path}-longer")
    return f"; to train longer, branch: {command_line('train', '--from', f'{path}@last', *words)}"


def _own_task(flags: Mapping[str, str | None]) -> tuple[dict[str, str | None], str | None]:
    """The flags, with code of one's own that ``--task`` names as a run names it; and that code as it was typed, which a
    run's file may not ask for."""
    from ...training.import_string import CodeFile, ImportString, is_call

    flag, place = "--task", "model__task"
    typed = flags[place]
    own = None if typed is None else CodeFile.typed(flag, typed)
    if own is None or not is_call(own):
        return dict(flags), None
    return {**flags, place: ImportString.parse(flag, own).importable}, own


def _place_of_data(flags: Mapping[str, str | None]) -> str | None:
    """Return where the data of a run lie that goes on, if that was typed.

    Raises:
        FedscopeError: code of one's own, which is given like all of it.
    """
    from ...checkpoints import FedscopeError
    from ...checkpoints.io.shell_words import quoted
    from ...training.settings.code_kinds import KINDS
    from ...training.user_code.provided_code import names_code

    typed = flags["data__name"]
    if typed is not None and names_code(KINDS["data"], typed):
        raise FedscopeError(
            f"--data {typed} is code of your own, and a run that goes on takes it otherwise; give --code "
            f"{quoted(f'data={typed}')}"
        )
    return typed


def _start_run(
    typed: Typed, given: Sequence[str], out: Path | None, how: TrainOptions, trace: Path | None, *, download: bool
) -> Run:
    """Train a new run; ``given`` are the settings that have flags of their own, which count less than ``typed``."""
    from ...checkpoints import FedscopeError
    from ...training import Setup, read_assignments
    from ...training.config.sources import with_place
    from ...training.loop.train import train_with
    from ...training.settings.own_code import short_name
    from ...training.user_code.provided_code import refuse_unneeded, with_code
    from ...training.user_code.typed import typed_tables
    from ..progress import TrainingWatcher, fetch

    stored = _stored(typed.config) if typed.config else {}
    stored = with_code(stored, how.code)
    if how.code_changed:
        raise FedscopeError("--code-changed is for a run that goes on; give it with --resume or --from")
    setup = Setup(typed.recipe or "", stored, typed.scale)
    layers = [typed_tables(read_assignments(texts), how.code) for texts in (given, typed.assignments)]
    try:
        resolved = setup.config(typed.method, *layers)
    except FedscopeError as error:
        raise with_place(error, typed.config, stored) if typed.config else error from None
    if how.code:
        refuse_unneeded(how.code, resolved.tables(), str(typed.config or "the run"))
    if note := setup.note(setup.notes(resolved, typed.method, *layers)):
        say(f"fedscope: {note}", err=True)
    if download:
        fetch(resolved.data.name)
    out = out or Path("runs") / (typed.recipe or "") / short_name(typed.method or resolved.title())
    with TrainingWatcher(str(out), _setting(resolved)) as watcher, _resumable(out), _with_profile(how.profile, trace):
        return train_with(resolved, out, replace(how, watcher=watcher))


def _stored(config: Path) -> dict[str, Any]:
    """Return the tables of a configuration's file.

    Raises:
        FedscopeError: none; a run in its place, or a round of one, says how these are gone on with.
    """
    from ...checkpoints import FedscopeError
    from ...checkpoints.io.shell_words import command_line
    from ...checkpoints.io.untrusted import is_there
    from ...training.config.sources import stored_tables

    name, at, _ = str(config).rpartition("@")
    if at and not is_there(config) and is_there(Path(name) / "run.json"):
        on = command_line("train", "--from", config)
        raise FedscopeError(f"{config} is a round of a run, not a configuration; branch from it: {on}")
    try:
        return stored_tables(config)
    except FedscopeError as error:
        if not (is_there(config / "run.json") and is_there(config / "config.toml")):
            raise
        on = command_line("train", "--resume", config)
        raise FedscopeError(f"{error}, or go on with the run itself: {on}") from None


def _resume_run(path: Path, how: TrainOptions, trace: Path | None) -> Run:
    """Continue a run."""
    from ...training.loop.train import resume_with
    from ..progress import TrainingWatcher

    with TrainingWatcher(str(path)) as watcher, _resumable(path, how.data), _with_profile(how.profile, trace):
        return resume_with(path, replace(how, watcher=watcher))


def _setting(config: Any) -> str:
    """``digits on 50 clients, shards:2, with ima``: what is learnt, by which clients and methods."""
    from ...checkpoints.io.errors import count_of

    clients = count_of(config.data.clients, "client")
    return f"{config.data.name} on {clients}, {config.data.partition}, with {config.title()}"


def _branch_run(
    address: str, method: str | None, changes: Mapping[str, Mapping[str, Any]], out: Path | None, how: TrainOptions
) -> Run:
    """Continue from a round of another run, in a run of its own."""
    from ...checkpoints import FedscopeError, Run, parse_address, real_path
    from ...training import branch_notes, branched_config
    from ...training.loop.branch import branch_with
    from ...training.settings.own_code import short_name
    from ...training.user_code.kept_source import playing
    from ..progress import TrainingWatcher

    found = parse_address(address)
    if found.round is None or found.which is not None:
        raise FedscopeError(f"--from {address!r} is not a round of a run; write RUN@ROUND, as in runs/fma@40")
    source = Run.open(found.path)
    number = source.round(found.round).number
    run, _ = playing(source, how.code, changed=how.code_changed, all_=False, rounds=[number])
    config = branched_config(run, number, changes)
    beside = run.path.parent if run.path.name not in ("", "..") else real_path(run.path).parent
    target = out or beside / f"{short_name(method or config.title())}-from-{run.name}-{number}"
    for note in branch_notes(run, number, config, changes):
        say(f"fedscope: {note}", err=True)
    with TrainingWatcher(str(target), _setting(config)) as watcher, _resumable(target, how.data):
        return branch_with(run, number, changes, target, replace(how, watcher=watcher))


@contextmanager
def _resumable(path: Path, data: str | None = None) -> Iterator[None]:
    """Say at Ctrl-C how a run goes on, whose data may lie elsewhere by now."""
    try:
        yield
    except KeyboardInterrupt:
        if (path / "run.json").exists():
            from ...checkpoints.io.code_words import code_words_at
            from ...checkpoints.io.shell_words import command_line

            words = (*code_words_at(path), *(() if data is None else ("--data", data)))
            say(f"fedscope: go on with: {command_line('train', '--resume', path, *words)}", err=True)
        raise


def _profile_at(path: Path | None) -> Any:
    """A profile, where a file is given for its trace; the file can be written."""
    if path is None:
        return None
    from ...training import Profile
    from ...training.local.profile import refuse_unwritable

    refuse_unwritable(path)
    return Profile()


@contextmanager
def _with_profile(profile: Any, path: Path | None) -> Iterator[None]:
    """Write the trace, of what was stopped or failed too; what was refused has none."""
    from ...checkpoints import FedscopeError

    try:
        yield
    except BaseException:
        if profile is not None and profile.spans:
            try:
                profile.save(path)
            except FedscopeError as error:  # what ended the training is what is said at the end
                say(f"fedscope: {error}", err=True)
        raise
    if profile is not None:
        profile.save(path)


def _say(run: Any, as_json: bool, profile: Any = None) -> None:
    import numpy as np

    from ...results import plain
    from ...training import Curves, measure_of
    from ...training.curves.diverged import lost_in
    from ..streams import say_if_unprinted

    measured = Curves.of([run]).runs[0]
    without = np.isnan(measured.deployed("test_error")).all()  # of a task without an error, its loss
    name = "test_loss" if without else "test_error"
    mean, deviation, count = measured.tail(name)
    last, of = run.rounds[-1], run.config["run"]["rounds"] if run.config else run.rounds[-1]
    final = float(measured.deployed(name)[-1])
    whole = say_if_unprinted(f"the run {run.path} is whole, with {last} of {of} rounds")
    if as_json:
        said: dict[str, Any] = {"run": str(run.path), "rounds": last, name: final, "last_rounds_mean": mean}
        said |= {"profile": profile.findings()} if profile is not None else {}
        with whole:
            say_json(plain(said))
        return
    which = "averaged" if "averaged" in run.round(last).models else "global"
    if without:
        now, spread = f"{final:.3g}", f"{mean:.3g} ± {deviation:.2g}"
    else:
        now, spread = f"{100 * final:.1f} %", f"{100 * mean:.1f} ± {100 * deviation:.1f} %"
    so_far = f"{last} of {of}" if last < of else f"{last}"
    over = f", {spread} over the last {count} rounds" if count > 1 else ""
    if over and (ended := measured.stale_at(measure_of(name))) is not None:  # of a loss that is no number any more
        over = f"{over} with a number, to round {ended}"
    over += " (mean ± deviation)" if over else ""
    rounds = "round" if so_far == "1" else "rounds"
    lost = lost_in(measured, measure_of(name))
    told = "" if lost is None else f"; it {lost.words}"
    with whole:
        say(f"{run.path}: {so_far} {rounds}; {name.replace('_', ' ')} of the {which} model {now}{over}{told}")
        if profile is not None:
            say_lines(profile.summary())
