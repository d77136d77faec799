"""Test losses and errors of a run's recorded models, measured after it was recorded, as ``fedscope train`` would have
measured them meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.named_code import NamedCodeError
from ...analysis.rounds import Rounds, parse_rounds, rounds_text
from ...analysis.runs import RunLike, open_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Round, Run, RunWriter, Weights, has_no_server
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.torch_state import own_torch_state
from ...checkpoints.runs.measured_numbers import (
    NAME,
    REPLACES,
    MeasuredNumbers,
    Measurement,
    find_differences,
    is_number,
    merge_numbers,
)
from ...results.answers import same_answers
from ...results.versions import versions
from .measure_outcome import CLIENTS, COLUMNS, MeasuredRun, group_by_column, name_rounds

if TYPE_CHECKING:
    from ...evaluation.evaluator import Evaluator
    from ...evaluation.samples import Samples

#: those that a task may not have
ERRORS = (*(error for _, error in COLUMNS.values()), *CLIENTS)
#: settings in which all numbers of a column should agree
AGREEING = ("data_sha256", "samples", "seed", "task", "standardised", "precision")
#: seconds after which what was measured is written
_EVERY = 2.0
#: settings that say what the user's own code answers, and how sentences call the code
ANSWERS = {
    "behaviour": "the model's code",
    "task_behaviour": "the task's code",
    "task_means_behaviour": "the task's code",
}

_NO_ERROR = "their task has no error, only a loss"
#: of the user's own task, which may have none, or one that counts none of these samples
_NOT_A_NUMBER = "their task gives no error that is a number"

#: columns by round
Columns = Mapping[int, Sequence[str]]


@partial(speak_keywords, more=EvaluationSettings.__annotations__)
def measure(
    run: RunLike,
    *,
    rounds: Rounds = None,
    clients: bool = False,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **measured: Unpack[EvaluationSettings],
) -> MeasuredRun:
    """Fill a run's table of numbers from its recorded models: test loss and error of ``global``, and of ``averaged``
    where the run keeps one, in the rounds that have none.

    For runs that were recorded without an evaluation: own loops, Flower, imports. What the training wrote itself stays.
    The numbers are those that ``fedscope train`` would have measured. They lie in the run, in ``measured.json`` with
    what they were measured on, and in ``metrics.csv``; ``curves``, ``table`` and ``report`` read them. An interrupted
    call keeps the rounds that it has finished, and the same call goes on.

    Args:
        run: whole, and not being written.
        rounds: which, ``1,20,last``; all by default.
        clients: also measure the models of each round's clients, as mean and deviation of their errors
            (``client_error_mean``, ``client_error_std``), on as many test samples as ``run.evaluate_clients`` says, or
            1,000.
        force: measure all of it again, and replace what the training wrote; the rounds' files keep that.
        progress: told how many models are done, and of how many.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``.

    Raises:
        FedscopeError: no run; one that another process is writing; rounds that there are not; no global models; a run
            that names no data or no architecture, and none given; earlier numbers on other data or samples; a recorded
            ``test_error`` that is not what is measured.

    >>> import tempfile, fedscope, numpy as np, torch
    >>> x, y = np.eye(4, 3, dtype=np.float32), np.array([0, 1, 2, 0])
    >>> net = torch.nn.Linear(3, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fedscope.Recorder(folder + "/run", data=(x, y)) as recorder:
    ...         _ = recorder.round(clients=[net, net], start=net, global_=net)
    ...     done = fedscope.measure(folder + "/run", model=net)
    >>> done.new
    {'test_loss': (1,), 'test_error': (1,)}
    """
    source = EvaluationConfig.of("test", measured)
    try:
        return measure_run(open_run(run), source, rounds=rounds, clients=clients, force=force, progress=progress)
    except NamedCodeError as error:
        raise FedscopeError(error.as_call("measure", [run], measured)) from None


@own_torch_state()
def measure_run(
    run: Run,
    source: EvaluationConfig,
    *,
    rounds: Rounds = None,
    clients: bool = False,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuredRun:
    """Measure as :func:`measure`, of an opened run. Raises the same."""
    if source.split != "test":
        raise FedscopeError(
            f"--split {source.split}: the columns test_loss and test_error are of the test split; leave --split out"
        )
    numbers = parse_rounds(rounds_text(rounds) or "all", run.rounds, str(run.path))
    plan = _Plan.of(run, numbers, clients=clients, force=force)
    if not plan.possible:
        of = name_rounds(numbers) if len(numbers) < len(run.rounds) else f"all its {len(numbers)} rounds"
        if has_no_server(run):
            raise FedscopeError(_lacks_server(run, numbers, of))
        raise FedscopeError(
            f"{run.path}: of {of} no model was recorded that could be measured; record the server's model (global_= "
            "of Recorder, record.globals of fedscope train)"
        )
    if not plan.asked and not (plan.earlier and _is_specific(source)):
        _refuse_strange_options(run, source)
        if run.is_table_behind:
            with _open_writer(run) as writer:
                writer.fill_table()
        return plan.outcome(run, {}, {}, {})
    with _open_writer(run) as writer:
        return _fill(run, writer, plan, source, progress or (lambda done, of: None))


def _lacks_server(run: Run, numbers: Sequence[int], of: str) -> str:
    """Say what can be measured of a run whose nodes have no server."""
    why = f"{run.path}: of {of} no model was recorded that could be measured, for the run has no server"
    if not any(run.round(number).has_clients for number in numbers):
        return f"{why}, and the models of all clients were not kept; record them with keep='all'"
    return (
        f"{why}; give --clients for the clients' mean error, or ask {command_line('consensus', run.path)}, which "
        "measures their merged model too"
    )


def _open_writer(run: Run) -> RunWriter:
    """Hold the right to write a run.

    Raises:
        FedscopeError: another process writes it; its folder may not be written to.
    """
    try:
        return RunWriter.open(run.path, "wait until it ends, and measure then", mend=False)
    except PermissionError:
        raise FedscopeError(
            f"{run.path} cannot be written to, and what is measured is kept in the run; copy it to where you may write"
        ) from None


@dataclass(frozen=True)
class _Plan:
    """What is to be measured of a run.

    Attributes:
        rounds: those that were asked for.
        asked: by round the columns to measure; there: those that have a number and keep it.
        recorded: of what is asked for, where the training has written a number; earlier: columns by round that were
            measured before, among all that was asked for.
        possible: whether any of the rounds has a model to measure.
        left_out: by reason the rounds.
        force: whether all is measured, whatever there is.
    """

    rounds: Sequence[int]
    asked: Columns
    there: Columns
    recorded: Columns
    earlier: Columns
    possible: bool
    left_out: Mapping[str, tuple[int, ...]]
    force: bool

    @classmethod
    def of(cls, run: Run, rounds: Sequence[int], *, clients: bool, force: bool) -> _Plan:
        """Look at every round's numbers and models; no model is read."""
        asked, there, recorded, earlier = {}, {}, {}, {}
        lacking: dict[str, list[int]] = {}
        possible, others, no_server = False, run.table_of_others(), has_no_server(run)
        own_task = any("task_behaviour" in one.settings for one in run.measured.measurements)
        for t in rounds:
            round_ = run.round(t)
            own, later = merge_numbers(round_.metrics, others.get(t, {})), run.measured.of(t)
            names = [name for model, columns in COLUMNS.items() if model in round_.models for name in columns]
            if "global" not in round_.models and not (clients and no_server):
                lacking.setdefault("their global models were not recorded", []).append(t)
            if clients and round_.has_clients:
                names += CLIENTS
            elif clients:
                lacking.setdefault("the models of all their clients were not recorded", []).append(t)
            possible |= bool(names)
            if (none := _measured_to_be_none(own, later)) and not force:
                names = [name for name in names if name not in none]
                lacking.setdefault(_NOT_A_NUMBER if own_task else _NO_ERROR, []).append(t)
            has = [name for name in names if is_number(own.get(name)) or name in later]
            asked[t] = names if force else [name for name in names if name not in has]
            there[t] = [] if force else has
            recorded[t] = [name for name in asked[t] if is_number(own.get(name))]
            earlier[t] = [name for name in names if name in later]
        left_out = {why: tuple(own) for why, own in lacking.items()}
        return cls(
            rounds,
            asked=_drop_empty(asked),
            there=_drop_empty(there),
            recorded=_drop_empty(recorded),
            earlier=_drop_empty(earlier),
            possible=possible,
            left_out=left_out,
            force=force,
        )

    def without_errors(self) -> _Plan:
        """Return the plan for a task that has no error."""
        asked = {t: [name for name in names if name not in ERRORS] for t, names in self.asked.items()}
        lacking = [t for t, names in self.asked.items() if len(asked[t]) < len(names)]
        return replace(self, asked=_drop_empty(asked), left_out=_add_rounds(self.left_out, _NO_ERROR, lacking))

    def outcome(
        self, run: Run, settings: Mapping[str, Any], client_settings: Mapping[str, Any], done: Columns
    ) -> MeasuredRun:
        """Say what was done."""
        now = Run.open(run.path).numbers(self.rounds[-1])
        fresh = {
            t: [name for name in names if name not in (*self.recorded.get(t, ()), *self.earlier.get(t, ()))]
            for t, names in done.items()
        }
        over = {t: [name for name in names if name in self.recorded.get(t, ())] for t, names in done.items()}
        old = {t: [name for name in names if name in self.earlier.get(t, ())] for t, names in done.items()}
        old = {t: [name for name in names if name not in over[t]] for t, names in old.items()}
        # a loop may have given numbers of its own of models that it has not recorded
        ours = {name for own in (done, self.there, self.earlier) for name in own.get(self.rounds[-1], ())}
        last = {
            name: float(value) for name, value in now.items() if name in ours and value is not None and is_number(value)
        }
        return MeasuredRun(
            run.path,
            new=group_by_column(fresh),
            replaced=group_by_column(over),
            again=group_by_column(old),
            there=group_by_column(self.there),
            left_out=self.left_out,
            settings=settings,
            client_settings=client_settings,
            last={**last, "round": float(self.rounds[-1])},
        )


def _measured_to_be_none(own: Mapping[str, Any], later: Mapping[str, Any]) -> list[str]:
    """Return the errors of a round that have no number although their losses were measured, or that an earlier version
    wrote down as none: those of a task without an error."""
    return [
        error
        for loss, error in COLUMNS.values()
        if (error in later or is_number(later.get(loss)))
        and not is_number(later.get(error))
        and not is_number(own.get(error))
    ]


def _add_rounds(left_out: Mapping[str, tuple[int, ...]], why: str, more: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return by reason the rounds of which something is left out, with more of them."""
    return {**left_out, why: tuple(sorted({*left_out.get(why, ()), *more}))} if more else dict(left_out)


@dataclass
class _Keeper:
    """Keeps what was measured in the run, now and then; what the training wrote is replaced apart from the rest."""

    writer: RunWriter
    plan: _Plan
    numbers: MeasuredNumbers
    kept_at: float = field(default_factory=time.monotonic)
    done: dict[int, list[str]] = field(default_factory=dict)
    waiting: bool = False

    def add(self, settings: Mapping[str, Any], t: int, values: Mapping[str, float]) -> None:
        """Take numbers of a round, of the columns that were asked for."""
        asked = {name: value for name, value in values.items() if name in self.plan.asked.get(t, ())}
        if none := [name for name in asked if name in ERRORS and not is_number(asked[name])]:
            asked = {name: value for name, value in asked.items() if name not in none}
            self.plan = replace(self.plan, left_out=_add_rounds(self.plan.left_out, _NOT_A_NUMBER, [t]))
        over = self.plan.recorded.get(t, ())
        for replaces in (False, True):
            own = {name: value for name, value in asked.items() if (name in over) == replaces}
            if own:
                one = Measurement({**settings, **({REPLACES: True} if replaces else {})}, {t: own})
                self.numbers = self.numbers.add(one)
        self.done.setdefault(t, []).extend(asked)
        self.waiting = True
        if time.monotonic() - self.kept_at > _EVERY:
            self.keep()

    def keep(self) -> None:
        """Write what is not written yet."""
        if self.waiting:
            self.writer.write_measured(self.numbers)
            self.waiting, self.kept_at = False, time.monotonic()


def _fill(
    run: Run, writer: RunWriter, plan: _Plan, source: EvaluationConfig, progress: Callable[[int, int], None]
) -> MeasuredRun:
    """Measure what a plan asks for, keeping what is done whatever ends it."""
    from ...evaluation.evaluator import Evaluator
    from ...evaluation.standard_tasks import is_own_task
    from ...evaluation.tasks import Task
    from ..inputs.any_model import any_model
    from ..inputs.behaviour import answers_of
    from ..inputs.samples import (
        dataset_of,
        describe_samples,
        given_settings,
        is_own_model,
        limit_samples,
        model_named,
        module_for,
    )

    dataset = dataset_of([run], source)
    module = module_for(run, source, dataset)
    samples = limit_samples(dataset, source)
    few, seed = _take_fewer(run, samples, source)
    given = given_settings([run], source, module=module)
    own_code = is_own_model(model_named(run, source)) or is_own_task(samples.task)
    first = any_model(run, first=True) if own_code else None  # stays the first one when the run goes on
    answers = {} if first is None else answers_of(module, dataset.samples("test"), first)
    about = {
        # outputs of the user's own code fill a page
        **{name: value for name, value in given.items() if name not in ANSWERS},
        **answers,
        "precision": source.precision,
        "device": source.compute.name,
        "versions": versions(),
    }
    whole = {**about, **describe_samples(samples, source.seed if source.limit else None)}
    part = {**about, **describe_samples(few, seed if len(few) < len(dataset.y_test) else None)}
    if not plan.force:
        _refuse_other_settings(run, writer.run.measured, [name for own in COLUMNS.values() for name in own], whole)
        _refuse_other_settings(run, writer.run.measured, CLIENTS, part)
        _refuse_other_code(run, writer.run.measured, answers)
    if type(samples.task).error is Task.error:
        plan = plan.without_errors()
    keeper = _Keeper(writer, plan, writer.run.measured)
    models = _list_models(plan)
    count = len(models) + sum(len(ids) for ids in _list_cohorts(run, plan).values())
    done = 0
    try:
        if models:
            evaluator = Evaluator(module, samples, compute=source.compute)
            for (t, model), loss, error in _measure_models(evaluator, run, models):
                keeper.add(whole, t, dict(zip(COLUMNS[model], (loss, error), strict=True)))
                progress(done := done + 1, count)
        for t, values, size in _measure_clients(run, plan, lambda: Evaluator(module, few, compute=source.compute)):
            keeper.add(part, t, values)
            progress(done := done + size, count)
    finally:
        keeper.keep()
        if keeper.done or run.is_table_behind:
            writer.fill_table()
    said, of_clients = (
        {name: value for name, value in about.items() if name not in ANSWERS} for about in (whole, part)
    )
    if not any(set(CLIENTS) & set(names) for names in keeper.done.values()):
        of_clients = {}
    return keeper.plan.outcome(run, said if models else of_clients, of_clients, keeper.done)


def _is_specific(source: EvaluationConfig) -> bool:
    """Check whether anything is said of what to measure on."""
    return any(one is not None for one in (source.data, source.limit, source.task, source.standardise, source.model))


def _refuse_strange_options(run: Run, source: EvaluationConfig) -> None:
    """Look at data, a model and a task that were given, although nothing is to be measured with them.

    Raises:
        FedscopeError: as where something is.
    """
    if source.data is None and source.model is None and source.task is None:
        return
    from ..inputs.samples import dataset_of, module_for

    dataset = dataset_of([run], source)
    if source.model is not None:
        module_for(run, source, dataset)


def _list_models(plan: _Plan) -> list[tuple[int, str]]:
    """The models to measure, a round after the other."""
    return [
        (t, model) for t, names in plan.asked.items() for model, columns in COLUMNS.items() if set(columns) & set(names)
    ]


def _list_cohorts(run: Run, plan: _Plan) -> dict[int, list[int]]:
    """By round the clients to measure."""
    return {t: run.round(t).client_ids.tolist() for t, names in plan.asked.items() if set(CLIENTS) & set(names)}


def _measure_models(
    evaluator: Evaluator, run: Run, models: Sequence[tuple[int, str]]
) -> Iterator[tuple[tuple[int, str], float, float]]:
    """Yield the loss and the error of each model, in order, as they are ready."""

    def form(i: int, replica: Any) -> None:
        from ...evaluation.evaluator import load_into

        t, model = models[i]
        load_into(replica, run.round(t).read(model))

    for i, loss, error in evaluator.evaluate(len(models), form, here=True):
        yield models[i], float(loss[0]), float(error[0])


def _measure_clients(
    run: Run, plan: _Plan, make: Callable[[], Evaluator]
) -> Iterator[tuple[int, dict[str, float], int]]:
    """Yield of each round mean and deviation of its clients' errors, and how many clients these are."""
    from ...evaluation.lazy_models import LazyModels
    from .metrics import summarize_errors

    evaluator: Evaluator | None = None
    for t, ids in _list_cohorts(run, plan).items():
        evaluator = evaluator or make()
        round_: Round = run.round(t)

        def read(i: int, round_: Round = round_, ids: list[int] = ids) -> Weights:
            return round_.client(ids[i])

        _, errors = evaluator.models(LazyModels(len(ids), read))
        yield t, dict(zip(CLIENTS, map(float, summarize_errors(errors)), strict=True)), len(ids)


def _take_fewer(run: Run, samples: Samples, source: EvaluationConfig) -> tuple[Samples, int]:
    """The test samples of the clients' models, as ``run.evaluate_clients`` has them, and the seed of their draw."""
    from ..config.sections import RunConfig

    own = (run.config or {}).get("run", {})
    count = own.get("evaluate_clients") or RunConfig().evaluate_clients
    seed = int(own.get("seed", source.seed)) if source.limit is None else source.seed
    return samples.limit(int(count), seed), seed


def _refuse_other_settings(
    run: Run, numbers: MeasuredNumbers, columns: Sequence[str], settings: Mapping[str, Any]
) -> None:
    """Refuse to measure the rest of a column on something else.

    Raises:
        FedscopeError: says what was measured, and in which settings it differs.
    """
    for one in numbers.measurements:
        if not set(one.columns) & set(columns):
            continue
        for clause in find_differences([one], settings, AGREEING):
            raise FedscopeError(
                f"{run.path / NAME} has {one.words}: {clause}; give the same again, or --force (force=True) to measure "
                "all of it anew"
            )


def _refuse_other_code(run: Run, numbers: MeasuredNumbers, answers: Mapping[str, Sequence[float]]) -> None:
    """Refuse to measure the rest with code of the user's own that answers otherwise than when the others were measured.

    Raises:
        FedscopeError: says what was measured, and whose code has changed.
    """
    for one in numbers.measurements:
        for name, code in ANSWERS.items():
            had = one.settings.get(name)
            if name in answers and isinstance(had, list) and not same_answers(had, answers[name]):
                raise FedscopeError(
                    f"{run.path / NAME} has {one.words}, by {code} as it was before; give the code of then, or --force "
                    "(force=True) to measure all of it anew"
                )


def _drop_empty(columns: Mapping[int, Sequence[str]]) -> dict[int, Sequence[str]]:
    return {t: names for t, names in columns.items() if names}
