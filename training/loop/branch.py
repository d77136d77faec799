"""``branch``: the same history, another method from there on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, RunWriter, expand_home, real_path, refuse_occupied
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.torch_state import own_torch_state
from ...checkpoints.rounds.run_identity import identities_upto
from ..build import config_of, data_of, module_of, partition_of
from ..config.config import Config, merge
from ..guards.own_calls import work_of
from ..guards.returned_arrays import is_own_method
from ..local.earlier_versions import tell_of_earlier_version
from ..local.engine import Engine
from ..local.engine_choice import with_engine
from ..local.local_training import LocalUpdate, refuse_single_samples
from ..local.own_updates import refuse_unrecorded
from ..local.profile import Profile
from ..local.resources import disk_aside, disk_needed, refuse_small_disk, say_memory_of
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..models.custom import Factory, OwnModel
from ..settings.missing_code import is_given, needs_code
from ..settings.registry import method_name
from ..tasks import refuse_without_classes, trained_task
from ..user_code.kept_source import branched_entries, playing, say_changed, write_texts
from ..user_code.provided_code import code_of_objects, refuse_unneeded
from ..user_code.typed import handed_tables
from .federation import Federation, Unwatched, Watcher
from .identity import identity_of
from .initial_model import with_whole_path
from .options import TrainOptions
from .run_history import SECTIONS, config_at, copy_history, fresh_sections, history_upto, refuse_gaps
from .state import Position, RunMemory, position_after
from .train import made_with, refuse_until, resolve_device, run_rounds
from .verify_run import refuse_damaged


@partial(speak_keywords, called={"set": "changes"})
def branch(
    run: Run,
    round: int,
    changes: Mapping[str, Mapping[str, Any]],
    out: Path | str,
    *,
    force: bool = False,
    keep_going: bool = False,
    watcher: Watcher | None = None,
    workers: int | None = None,
    engine: str | None = None,
    task: Any = None,
    data: Any = None,
    until: int | None = None,
    profile: Profile | None = None,
    code: Mapping[str, Any] | None = None,
    code_changed: bool = False,
) -> Run:
    """Go on from a round of a recorded run in a run of its own, with other methods or settings.

    The new run holds the history's rounds, so that its curves and analyses are whole. A method that stays goes on with
    its state, exactly; one that changes starts as :func:`branch_notes` says.

    Args:
        changes: nested tables laid over the run's configuration; methods may be objects.
        task: the run's, where it is code of the user's own.
        data: where its data lie by now, as in :func:`fedscope.training.resume`.
        engine, until, profile: as in :func:`fedscope.training.train`.
        code, code_changed: as in :func:`fedscope.training.resume`, of methods that stay.

    Raises:
        FedscopeError: changed data or model, no round left to play, an incomplete history, and all that ``train``
            refuses.
    """
    watcher = watcher or Unwatched()
    own = code_of_objects(code)
    options = TrainOptions(
        force=force,
        keep_going=keep_going,
        watcher=watcher,
        workers=workers,
        engine=engine,
        task=task,
        until=until,
        profile=profile,
        code=own,
        code_changed=code_changed,
        data=data,
    )
    return branch_with(run, round, handed_tables(changes), out, options)


@own_torch_state()
def branch_with(
    run: Run, round: int, changes: Mapping[str, Mapping[str, Any]], out: Path | str, options: TrainOptions
) -> Run:
    """As :func:`branch`, with its options as one value."""
    out = expand_home(out)
    refuse_occupied(out, options.force)
    if real_path(out) == real_path(run.path):
        raise FedscopeError(f"--out {out} is the run that is branched from; give another --out")
    run, _ = playing(run, options.code, changed=options.code_changed, all_=False, rounds=[round])
    config = branched_config(run, round, changes)
    if options.code:
        refuse_unneeded(options.code, config.tables(), f"the branch of {run.path}")
    refuse_until(options.until, round)
    learnt = trained_task(config, options.task, str(run.path))
    refuse_without_classes(config, learnt)
    data, module = data_of(run, learnt, options.data), module_of(run)
    config, compute = resolve_device(config, options.workers, config.data.name, options.engine)
    split = partition_of(run)
    refuse_single_samples(module, [len(own) for own in split.clients], config.client.batch, data.samples("train").x)
    config = with_engine(config, module, data)
    if isinstance(config.model.architecture, Factory | OwnModel):
        tell_of_earlier_version(run, module, data.samples("train"))
    work = Engine(module, compute, options.profile, config.run.engine)
    federation = Federation.assemble(config, data, split, work, info=run.info)
    config.server.refuse_adapters(federation.facts.layout, federation.adapters)
    refuse_gaps(run, round)
    refuse_damaged(run, range(1, round + 1))
    # All that the branch will read of its history is there, or it is refused before anything is made.
    position = position_after(run, round, config, federation.facts)
    _refuse_missing(run, position, config)
    if position.clients_kept is None:
        _refuse_unsaid(run, federation, position)
    needed = disk_needed(config, federation.facts, after=round)
    if not options.force:
        refuse_small_disk(needed + disk_aside(config, federation.facts), out)
    say_memory_of(config, federation.facts)
    code, texts, others = branched_entries(run, round, config.tables())
    info = {
        **{key: value for key, value in run.info.items() if key not in ("format", "version", "code")},
        **made_with(config, compute),
        **({"code": code} if code else {}),
        "branch": {
            "run": str(real_path(run.path)),
            "round": round,
            "created": run.info.get("created", ""),
            "history": history_upto(run, round),
            "identities": identities_upto(run.info, round),
        },
    }
    origin = run.identity or str(run.info.get("created", ""))
    info["identity"] = identity_of(info, config, split, learnt, origin, str(round))
    keep = partial(write_texts, texts=texts)
    with RunWriter.create(out, info, config.tables(), split, force=options.force, keep=keep):
        copy_history(run, round, out)
        say_changed(Run.open(out), others)
    with RunWriter.open(out) as writer:
        options.watcher.begin(config.run.rounds, needed)
        run_rounds(federation, position, writer, options)
    return Run.open(out)


def branched_config(run: Run, round: int, changes: Mapping[str, Mapping[str, Any]]) -> Config:
    """Return the configuration of a branch.

    Raises:
        FedscopeError: another data set, partition or model; no round left to play.
    """
    run.require("partition.h5")
    run.round(round)
    before = config_of(run)
    for section in ("client", "server", "average"):
        method = getattr(before, section)
        if not is_given(method) and "method" not in changes.get(section, {}):
            raise FedscopeError(f"{run.path}: {needs_code(section, method_name(method))}")
    chosen = changes.get("run", {})
    if "device" in chosen and "engine" not in chosen:
        changes = merge(changes, {"run": {"engine": "auto"}})
    config = with_whole_path(Config.read(merge(before.tables(), changes)))
    if "engine" not in chosen and config.run.engine == "cohort" and not config.client.takes_several:
        config = replace(config, run=replace(config.run, engine="auto"))  # the engine is kept where it can be
    for section in ("data", "model"):
        old, new = before.tables()[section], config.tables()[section]
        for key in sorted(
            {*old, *new}, key=lambda key: (key != "name", key)
        ):  # what depends on the name comes after it
            if old.get(key) != new.get(key):
                is_place = (section, key) == ("data", "name")
                moved = ", or give --data if the same data lie elsewhere now" if is_place else ""
                raise FedscopeError(
                    f"{section}.{key} = {new.get(key)!r} differs from {old.get(key)!r} of {run.path}: a branch keeps "
                    f"its history's data and model; train a new run instead{moved}"
                )
    if config.run.rounds <= round:
        raise FedscopeError(
            f"run.rounds = {config.run.rounds} leaves nothing to play after round {round}; give more, as in "
            f"--rounds {round + 20}"
        )
    return config


def branch_notes(
    run: Run, round: int, config: Config, changes: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Describe what the methods of a branch start from, where the history was made with others, and which of their
    settings go with the history's number of rounds; a sentence each.

    Args:
        changes: what was given for the branch, of which nothing is to be said.
    """
    before = config_at(run, round)
    notes = []
    for section in fresh_sections(run, round, config):
        new, old = getattr(config, section), method_name(getattr(before, section))
        keeps = new.about.keeps or ("a state" if _begins_with_state(new) else "")
        if not keeps:
            continue
        how = "is worked out from the history's globals" if section == "average" else "starts with an empty state"
        lacks = (
            "in the history had other settings"
            if old == method_name(new)
            else f"the history, made with {old}, does not have"
        )
        notes.append(
            f"the {section} method {method_name(new)} keeps {keeps}, which {lacks}: it {how} after round {round}"
        )
    return [*notes, *_rounds_kept(config_of(run), config, changes or {})]


def _rounds_kept(before: Config, config: Config, changes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the settings of methods that stay which are what the history's number of rounds gives by default, where the
    branch's gives another; a run does not hold whether somebody gave them."""
    for section in SECTIONS:
        method, old = getattr(config, section), getattr(before, section)
        if type(method) is not type(old) or is_own_method(method):
            continue
        for key in fields(method):
            value = getattr(method, key.name)
            if key.default is not None or value is None or key.name in changes.get(section, {}):
                continue
            with suppress(FedscopeError):  # the other settings do not go with the default
                usual, now = (
                    getattr(replace(m, **{key.name: None}).resolve(of), key.name)
                    for m, of in ((old, before), (method, config))
                )
                if getattr(old, key.name) == usual == value != now:
                    name = f"{section}.{key.name}"
                    yield (
                        f"{name} = {value} stays as in the history, where {before.run.rounds} rounds have it by "
                        f"default; {config.run.rounds} rounds have {now}: give --set {name}={now} if that is meant"
                    )


def _begins_with_state(method: ClientMethod | ServerMethod | AverageMethod) -> bool:
    """Check whether a method of the user's own, which need not say what it keeps, makes a first state."""
    if not is_own_method(method):
        return False
    if isinstance(method, ServerMethod):
        return type(method).init is not ServerMethod.init
    return isinstance(method, ClientMethod) and type(method).begin is not ClientMethod.begin


def _refuse_missing(run: Run, position: Position, config: Config) -> None:
    """Refuse a history that lacks what later rounds of the branch will read.

    Raises:
        FedscopeError: names the round, and what is missing of it.
    """
    memory = RunMemory(run)
    for t in range(max(1, position.round - config.average.reaches_back() + 1), position.round + 1):
        memory.refuse_missing_row(t, mean=config.average.averages_first)
    for t in sorted(set(position.last.values())):
        memory.refuse_missing_states(t, [k for k, last in position.last.items() if last == t])


def _refuse_unsaid(run: Run, federation: Federation, position: Position) -> None:
    """Refuse a client method that keeps a state, where no file of the history tells that it does: one client is trained
    to see it, before anything is made.

    Raises:
        FedscopeError: it keeps something.
    """
    client, round = federation.config.client, position.round + 1
    ids, memory = federation.cohort(round)[:1], RunMemory(run)
    tasks = federation.tasks(round, ids, position.start, position.sent or {}, {}, memory)
    for update in federation.engine.each(work_of(client, "train"), tasks):
        if isinstance(update, LocalUpdate):  # another thing is refused where it is played
            refuse_unrecorded(client, update.state, round, str(run.path))
