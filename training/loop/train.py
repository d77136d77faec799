"""``train`` and ``resume``: a federation played to its end and recorded, interrupted at any moment, gone on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, RoundRecord, Run, RunWriter, expand_home, refuse_occupied
from ...checkpoints.io.atomic import NO_OTHER_OUT
from ...checkpoints.io.code_words import code_words, code_words_at
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.torch_state import own_torch_state
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.runs.run import lacking_words, refuse_read_only
from ...evaluation.device import Compute
from ...evaluation.standard_tasks import is_own_task
from ...results.versions import versions
from ..build import (
    build_module,
    config_of,
    data_of,
    data_to_train_on,
    model_info,
    module_of,
    partition_of,
    refuse_tokens,
    refuse_two_types,
    split_dataset,
)
from ..config.config import Config
from ..config.from_python import SINGLE, config_with
from ..data.arrays import say_own_scale
from ..inputs.adapter_settings import adapters_of_module
from ..inputs.behaviour import outputs_settings
from ..local.cohort_storage import CohortStorage
from ..local.earlier_versions import AS_WRITTEN, tell_of_earlier_version, was_trained_otherwise
from ..local.engine import Engine
from ..local.engine_choice import engine_of, refuse_one_by_one, with_engine
from ..local.gradient_hooks import refuse_hooks
from ..local.head_checks import refuse_other_head
from ..local.local_training import refuse_single_samples
from ..local.optimisers import refuse_useless
from ..local.own_randomness import draws_by_itself, unseeded, warn_of_draws, watching_draws
from ..local.profile import ROUND, Profile, time_span
from ..local.resources import disk_aside, disk_needed, refuse_small_disk, say_memory_of
from ..local.trial_batch import trial_rows, try_batch
from ..local.unrecorded_state import MethodMemory
from ..models.custom import Factory, OwnModel
from ..tasks import resolve_task, trained_task
from ..user_code.kept_source import entries_of, playing, say_changed, write_texts
from ..user_code.provided_code import code_of_objects
from .background_recorder import Recording
from .damaged_last import refuse_damaged_last, said_how_to_repeat
from .federation import Federation, Unwatched, Watcher
from .identity import identity_of
from .initial_model import first_model, refuse_other_file, with_whole_path
from .options import TrainOptions
from .resume_device import device_to_resume
from .run_history import branch_of, complete_history
from .single_client import warn_of_one_client
from .state import Position, RunMemory, position_after
from .uncounted_clients import warn_of_uncounted
from .verify_run import refuse_contradictions, refuse_damaged


@partial(speak_keywords, more=dict.fromkeys(SINGLE, "Any"), called={"set": "config"})
def train(
    config: Config | Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    *,
    force: bool = False,
    keep_going: bool = False,
    watcher: Watcher | None = None,
    workers: int | None = None,
    engine: str | None = None,
    task: Any = None,
    until: int | None = None,
    profile: Profile | None = None,
    **settings: Any,
) -> Run:
    """Train a federation and record it in ``out``.

    Args:
        config: a :class:`fedscope.Config`, or plain settings: ``{"run": {"rounds": 2}}``, ``{"run.rounds": 2}``, with
            ``"method": "ima"`` as of ``--method``, and FMA without one; written into the run, resolved. Defaults that
            depend on others follow single settings, as IMA's start ``rounds``.
        settings: single ones, which count more: ``method``, ``clients``, ``participation``, ``rounds``, ``epochs``,
            ``batch``, ``lr``, ``seed`` and ``device``; and ``client``, ``server``, ``average``, ``model``, ``data``,
            ``partition`` and ``optimiser``, each a name or the thing itself: ``server=FedX(beta=0.9)``, a class or a
            function that makes a ``torch.nn.Module``, ``torch.optim.Adam``, arrays ``(x, y)`` of which a fifth is set
            aside for tests, or ``((x, y), (x_test, y_test))``, or the path of a file; index arrays, one a client, as a
            list or by the client's number.
        force: replace an existing run, and train although the disk is too small for what will be recorded.
        keep_going: go on when a client's loss is no longer a number.
        workers: worker threads, one a core by default; the results do not depend on it.
        engine: ``ray``, ``ray:2`` or ``ray:ADDRESS``: clients are trained by the workers of a cluster, with the same
            numbers; see :func:`fedscope.distributed.engines.open_cluster`.
        task: what is learnt, where ``config.model`` does not say it, or names code of the user's own: a name, a
            :class:`fedscope.Task`, or a function ``loss(outputs, y) -> [n]``. The run keeps its name alone, so that
            resuming and analyses need it again.
        until: stop after this round, with all that :func:`resume` and a branch need; by default the last one.
        profile: where the rounds' times are left.

    Raises:
        FedscopeError: bad settings or data, an existing ``out``, a full disk, a client that diverges.
        KeyboardInterrupt: passed on; every round that was complete is on disk, and :func:`resume` goes on.

    >>> import tempfile, fedscope
    >>> small = {"data": {"clients": 4}, "run": {"rounds": 2, "participation": 0.5}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fedscope.train(small, f"{folder}/fma").rounds
    (1, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = fedscope.train(server="fedadam", clients=4, rounds=1, out=f"{folder}/adam")
    ...     run.config["server"]["method"]
    'fedadam'
    """
    watcher = watcher or Unwatched()
    options = TrainOptions(
        force=force,
        keep_going=keep_going,
        watcher=watcher,
        workers=workers,
        engine=engine,
        task=task,
        until=until,
        profile=profile,
    )
    if out is None:
        raise FedscopeError("out= is missing: the folder of the run, as in out='runs/mine'")
    return train_with(config_with(config, settings), out, options)


@own_torch_state()
def train_with(config: Config, out: Path | str, options: TrainOptions) -> Run:
    """As :func:`train`, with its options as one value."""
    out = expand_home(out)
    refuse_until(options.until, 0)
    config, learnt = resolve_task(config, options.task)
    data = data_to_train_on(
        config.data.name, learnt
    )  # a mistake in what was typed comes before what lies at a default place
    if isinstance(data.x_train, np.ndarray) and data.x_train.dtype.kind == "f" and not data.means:
        say_own_scale(data.name, data.x_train)
    refuse_occupied(out, options.force)  # looked at again when the run is created
    if config.data.augment != "none" and len(data.shape) != 3:
        raise FedscopeError(
            f"data.augment = {config.data.augment!r} crops and flips images, but a sample of {data.name} has shape "
            f"{list(data.shape)}; leave it out"
        )
    config, compute = resolve_device(config, options.workers, data.name, options.engine)
    config = with_whole_path(replace(config, data=config.data.resolved()))
    data, split = split_dataset(config, data)
    module = build_module(config.model.architecture, data.shape, data.classes, seed=config.run.seed)
    config.model.architecture.refuse_samples(data)
    refuse_tokens(config.model.architecture, config.model.name, module, data)
    refuse_two_types(config.model.name, module)
    refuse_single_samples(module, [len(own) for own in split.clients], config.client.batch, data.samples("train").x)
    config = with_engine(config, module, data)
    facts = model_info(config, module, data.classes, learnt)
    refuse_useless(config.client, module, facts.head, config.model.name)
    refuse_hooks(module, config.model.name, cluster=compute.cluster is not None)
    refuse_other_head(config, module, facts, data.samples("train"))
    first = first_model(config, module, facts)
    adapters = adapters_of_module(module, facts.layout.names)
    config.server.refuse_adapters(facts.layout, settings_of_run(adapters))
    needed = disk_needed(config, facts)  # asks the methods, who may refuse the model
    if not options.force:
        refuse_small_disk(needed + disk_aside(config, facts), out)
    say_memory_of(config, facts)
    warn_of_one_client(config)
    own = isinstance(config.model.architecture, Factory | OwnModel)
    rows = trial_rows(config.client, split.clients, config.run.seed) if own or is_own_task(learnt) else None
    try_batch(config.model.name, module, data, compute, rows)
    warn_of_uncounted(data, split)
    own_draws = own and draws_by_itself(module, data.samples("train"))
    as_written = own and was_trained_otherwise(module, data.samples("train"))
    outputs = outputs_settings(module, data.samples("train")) if own else {}
    if own_draws:
        warn_of_draws(config.model.name)
    code, texts = entries_of(config.tables())
    info: dict[str, Any] = {
        **made_with(config, compute),
        **({"code": code} if code else {}),
        "layout": facts.layout.to_json(),
        "clients": config.data.clients,
        "classes": data.classes,
        "data": data.describe(),
        **({} if first.source is None else {"weights": first.source}),
        **adapters,
        **({"own_draws": True} if own_draws else {}),
        **({AS_WRITTEN: True} if as_written else {}),
        **outputs,
    }
    info["identity"] = identity_of(info, config, split, learnt)
    keep = partial(write_texts, texts=texts)
    with RunWriter.create(out, info, config.tables(), split, force=options.force, keep=keep) as writer:
        options.watcher.begin(config.run.rounds, needed)
        work = Engine(module, compute, options.profile, config.run.engine)
        federation = Federation.assemble(config, data, split, work, info=info)
        run_rounds(federation, Position(0, first.weights), writer, options)
    return Run.open(out)


def resolve_device(config: Config, workers: int | None, data: str, engine: str | None = None) -> tuple[Config, Compute]:
    """Return the configuration as a run keeps it, and what it computes on.

    Raises:
        FedscopeError: a device or a cluster that is not there.
    """
    compute = compute_of(config, workers, engine)
    return config.on(compute.name, data), compute


def compute_of(config: Config, workers: int | None, engine: str | None) -> Compute:
    """Find the device and workers that train a run's clients.

    Raises:
        FedscopeError: a device or a cluster that is not there.
    """
    where = Compute(config.run.device, config.run.precision, workers)
    if engine is None:
        return where
    from ...distributed.engines import open_cluster

    return replace(where, device=where.name, cluster=open_cluster(engine, where.name))


def made_with(config: Config, compute: Compute) -> dict[str, Any]:
    """Describe when and on what a run was made, for ``run.json``; of a cluster what is there at the start.

    Raises:
        FedscopeError: a cluster without workers.
    """
    import torch

    return {
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "versions": versions(),
        "device": config.run.device,
        "engine": config.run.engine,
        "precision": config.run.precision,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": 1,
        **({} if compute.cluster is None else {"cluster": compute.cluster.describe()}),
    }


def tell_of_another_processor(run: Run) -> None:
    """Warn where a run has come to a processor whose products may differ in their last bits."""
    import torch

    before, here = run.info.get("capability"), torch.backends.cpu.get_cpu_capability()
    if before not in (None, here):
        warn_user(
            f"{run.path} was made on a processor with {before}, and goes on with {here}: the last bits of its numbers "
            "may be others than without the change"
        )


@speak_keywords
def resume(
    path: Path | str,
    *,
    keep_going: bool = False,
    watcher: Watcher | None = None,
    workers: int | None = None,
    engine: str | None = None,
    task: Any = None,
    data: Any = None,
    device: str | None = None,
    until: int | None = None,
    profile: Profile | None = None,
    code: Mapping[str, Any] | None = None,
    code_changed: bool = False,
) -> Run:
    """Go on with a run where it stopped; the result equals an uninterrupted run's, bit for bit (``seconds`` apart).

    On a GPU that holds as far as the kernels are deterministic, which convolutions are asked to be.

    Args:
        task: the run's, where it is code of the user's own; see :func:`train`.
        data: where the run's data lie by now, ``npz:PATH``, or the arrays themselves; they are compared with the sum
            that the run keeps, and it keeps the name that it has.
        device: another one of the kind that the run was trained on, ``cuda:1`` for ``cuda:0``.
        engine, until, profile: as in :func:`train`; on a cluster or not, whatever it was before.
        code: of the user's own that the run names, by kind, ``{"server": FedX}``: a run's files only name it, and
            nothing that they name is imported.
        code_changed: take it although its source is another than the run has; the run says from which round on.

    Raises:
        FedscopeError: no run, a complete run, changed data, a run from another program, a device that is gone or of
            another kind; code that was not given, or is another.

    >>> import tempfile, fedscope
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     begun = fedscope.train(clients=4, rounds=2, epochs=1, out=f"{folder}/fma", until=1)
    ...     begun.rounds, fedscope.resume(begun.path).rounds
    ((1,), (1, 2))
    """
    watcher = watcher or Unwatched()
    own = code_of_objects(code)
    options = TrainOptions(
        keep_going=keep_going,
        watcher=watcher,
        workers=workers,
        engine=engine,
        task=task,
        until=until,
        profile=profile,
        code=own,
        code_changed=code_changed,
        device=device,
        data=data,
    )
    return resume_with(path, options)


@own_torch_state()
def resume_with(path: Path | str, options: TrainOptions) -> Run:
    """As :func:`resume`, with its options as one value."""
    run = Run.open(path)
    run.require("config.toml")
    run, others = playing(run, options.code, changed=options.code_changed)
    config = config_of(run)
    over = bool(run.rounds) and run.rounds[-1] >= config.run.rounds
    if run.rounds:
        refuse_damaged_last(run, config, compare=over)
    if over:
        raise FedscopeError(_why_over(run, config))
    refuse_until(options.until, run.rounds[-1] if run.rounds else 0)
    refuse_read_only(run, _where_to_go_on(run, options))
    split = partition_of(run)
    data = data_of(run, trained_task(config, options.task, str(run.path)), options.data)
    module = module_of(run)
    refuse_two_types(config.model.name, module)
    refuse_hooks(module, config.model.name, cluster=options.engine is not None)
    there = device_to_resume(run, config.run.device, options.device)
    compute = compute_of(replace(config, run=replace(config.run, device=there)), options.workers, options.engine)
    tell_of_another_processor(run)
    if isinstance(config.model.architecture, Factory | OwnModel):
        tell_of_earlier_version(run, module, data.samples("train"))
    if compute.cluster is not None:
        compute.cluster.begin()
    kind = config.run.engine
    refuse_one_by_one(run, config)
    work = Engine(module, compute, options.profile, kind if kind == "cohort" else engine_of(config, module, data))
    if branch_of(run)["round"] > (run.rounds[-1] if run.rounds else 0):
        with RunWriter.open(run.path, NO_OTHER_OUT) as writer:
            complete_history(writer.run, refuse_damaged)
    with RunWriter.open(run.path, NO_OTHER_OUT) as writer:
        code, run = run.code, Run.open(path)  # what was there before the lock was ours may have grown
        run.code = writer.run.code = code
        federation = Federation.assemble(config, data, split, work, resumed=True, info=run.info)
        if run.rounds:
            with said_how_to_repeat(run, config):
                position = position_after(run, run.rounds[-1], config, federation.facts)
                refuse_contradictions(run, run.rounds[-1])
        else:
            first = first_model(config, module, federation.facts)
            refuse_other_file(run, first.source)
            position = Position(0, first.weights)
        if position.round and not options.keep_going:
            last = run.round(position.round)
            refuse_divergence(
                str(run.path), position.round, last.client_ids, last.client_loss, float(last.metrics["lr"] or 0)
            )
        say_changed(run, others)
        run_rounds(federation, position, writer, options)
    return Run.open(path)


def _why_over(run: Run, config: Config) -> str:
    """Say that a run has its last round, and what of it is gone, or how it is trained longer."""
    if gone := lacking_words(run):
        return f"{run.path} has its last round, {run.rounds[-1]}, but {gone}; restore the files from a copy"
    last, path = run.rounds[-1], str(run.path)
    words = ("--rounds", str(last + 2), *code_words(run.info, run.config), "--out", f"{path}-longer")
    longer = command_line("train", "--from", f"{path}@{last}", *words)
    return f"{path} is complete: all of its {config.run.rounds} rounds are recorded; to train longer, branch: {longer}"


def _where_to_go_on(run: Run, options: TrainOptions) -> str:
    """Say how a run's training goes on in another folder, as it was asked to go on."""
    if not run.rounds:
        return "copy the run to a folder of your own, and resume the copy"
    words = (*code_words(run.info, run.config), *_words_of(options), "--out", f"{run.name}-longer")
    branch = command_line("train", "--from", f"{run.path}@{run.rounds[-1]}", *words)
    return f"to go on in a folder of your own, branch: {branch}"


def _words_of(options: TrainOptions) -> tuple[str, ...]:
    """Return what was typed of how a training goes on, for a branch."""
    data = str(options.data) if isinstance(options.data, str | Path) else None
    until = None if options.until is None else str(options.until)
    typed = {"--data": data, "--device": options.device, "--engine": options.engine, "--until": until}
    words = [word for name, value in typed.items() if value is not None for word in (name, value)]
    flags = {"--keep-going": options.keep_going, "--code-changed": options.code_changed}
    return (*words, *(flag for flag, given in flags.items() if given))


def refuse_until(until: int | None, done: int) -> None:
    """Refuse a round to stop after that is there already.

    Raises:
        FedscopeError: names both.
    """
    if until is not None and until <= done:
        raise FedscopeError(
            f"--until {until} is to stop after a round that is there: {done} are recorded; give a later one"
            if done
            else f"--until {until} is not a round; they are counted from 1"
        )


def run_rounds(federation: Federation, position: Position, writer: RunWriter, options: TrainOptions) -> None:
    """Play and record all rounds after ``position``, or those up to ``until`` of the options.

    Raises:
        FedscopeError: a client diverges, or the last global model does (and not ``keep_going``); a full disk.
    """
    config, engine = federation.config, federation.engine
    federation = replace(federation, storage=CohortStorage(writer.path))
    # of a model that draws by itself it is said already
    methods = unseeded(() if writer.run.info.get("own_draws") else (config.client, config.server, config.average))
    memory = MethodMemory((config.client, config.server, config.average))
    beside = {"always": engine.compute.is_gpu, "never": engine.profile is not None}  # a profile's parts add up
    with Recording(writer, config, RunMemory(writer.run), options.watcher, **beside) as recording:
        while position.round < min(config.run.rounds, options.until or config.run.rounds):
            number = position.round + 1
            with time_span(engine.profile, ROUND, number):
                with watching_draws(methods), memory.watching():
                    record, position = federation.run_round(position, recording, recording)
                with time_span(engine.profile, "recording", number):
                    recording.add(record, position)
            if not options.keep_going and not np.isfinite(record.client_loss).all():
                recording.wait()  # the message says that it is recorded
                lr = float(record.metrics["lr"] or 0)
                over = record.round == config.run.rounds
                refuse_divergence(str(writer.path), record.round, record.client_ids, record.client_loss, lr, over=over)
            if not options.keep_going and (what := lost_model(record, federation)):
                recording.wait()
                smaller = "server.lr" if "lr" in config.server.table() else "--lr"
                raise FedscopeError(
                    f"round {number}: the global model {what}, although the training losses of its clients are finite; "
                    f"all rounds are recorded in {writer.path}; train again with a smaller {smaller}, or with "
                    "--keep-going if that is meant"
                )
            if not options.keep_going:
                warn_of_test_loss(record, federation)
            del record  # or the cohort would stay in memory beside the next ones


#: parameters beyond it are no model's, and their squares are no numbers in float32
FAR = 1e30


def lost_model(record: RoundRecord, federation: Federation) -> str:
    """Say why a run's last global model is none, because its server has diverged; "" where it is one.

    Of an earlier round's the next one's clients say it, whose training losses are no numbers then. The test loss does
    not say it: a loss of one's own may be infinite on a sample.
    """
    if record.round < federation.config.run.rounds or record.global_ is None:
        return ""
    parameters = record.global_.parameters
    if not np.isfinite(parameters).all():
        return "is not finite"
    far = max(parameters.max(initial=0.0), -parameters.min(initial=0.0)) > FAR
    return f"has parameters above {FAR:.0e}".replace("+", "") if far else ""


def warn_of_test_loss(record: RoundRecord, federation: Federation) -> None:
    """Warn where a run's last model is one, and its test loss is not finite."""
    loss = record.metrics.get("test_loss")
    measured = loss is not None and federation.meter is not None and federation.meter.samples > 0
    if record.round >= federation.config.run.rounds and measured and not np.isfinite(loss or 0.0):
        warn_user(
            f"round {record.round}: the test loss is {loss:g}, although the global model is finite; look at the loss "
            "on each test sample"
        )


def refuse_divergence(
    run: str, round: int, ids: np.ndarray, losses: np.ndarray, lr: float, *, over: bool = False
) -> None:
    """Stop where a client's loss is no number.

    Args:
        over: whether there is no round after it, to go on with.

    Raises:
        FedscopeError: names the round, the clients and the remedy.
    """
    lost = ids[~np.isfinite(losses)].tolist()
    if lost:
        whose = f"client {lost[0]}" if len(lost) == 1 else f"clients {', '.join(map(str, lost[:5]))}"
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        on = command_line("train", "--resume", run, *code_words_at(Path(run)), "--keep-going")
        raise FedscopeError(
            f"round {round}: the training loss of {whose}{more} is not finite at learning rate {lr:g}; the round is "
            f"recorded in {run}; use a smaller --lr" + ("" if over else f", or {on}")
        )
