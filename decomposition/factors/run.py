"""The request for a decomposition, and its loop over rounds: for ``decompose``, and for ``explain``, which judges
one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...analysis.analysis import fit_file_name
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit, within
from ...analysis.rounds import Rounds, is_range, parse_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, refuse_other_data, refuse_replays, resolve_runs
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Run, recorded_clients, refuse_own_starts, rounds_with_clients
from ...checkpoints.io.errors import spans
from ...checkpoints.models.layer_selections import Selection, selections_of
from ...checkpoints.models.weights import taking_part
from ...evaluation.device import precision_of
from ...training.inputs.samples import (
    asked_task,
    averaged_statistics,
    dataset_of,
    digest_of_data,
    given_settings,
    module_for,
    refuse_nameless,
    refuse_without_partition,
    samples_of_clients,
)
from ...training.inputs.statistics import measured_statistics, statistics_settings
from ..draws.given_code import code_settings, refuse_ungiven
from ..draws.sources import Cohorts, Draws, Replays, groups_of, parse_draws, replays_of, usual_draws

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.measured_statistics import MeasuredStatistics
    from ...training.curves.run_curve import ErrorCurve
    from .. import Decomposition, LayerDecomposition, Loss, Outputs, RoundFactors, RoundLayerFactors, RunFactors

    Decomposed = Decomposition | LayerDecomposition

MODELS = {"global": ("global",), "averaged": ("averaged",), "both": ("global", "averaged")}


@dataclass(frozen=True)
class DecompositionRequest:
    """Runs, rounds and models to decompose.

    Attributes:
        runs: all that are given; rounds: of each.
        draws: where the draws come from.
        groups: the runs that are decomposed together.
        of: ``global``, ``averaged`` or ``both``.
        loss: ``squared``, ``cross-entropy``, ``zero-one``.
        outputs: of which the squared loss is taken.
        on: whose training data are D: of ``all`` clients, or of the ``cohort``.
        layers: ``each`` layer alone or a pattern, for the locality by layer; None: of the whole model.
        normalization: where averages have running statistics from.
    """

    runs: Sequence[Run]
    rounds: Sequence[Sequence[int]]
    draws: Draws
    groups: Sequence[Sequence[Run]]
    source: EvaluationConfig
    of: str = "global"
    loss: Loss = "squared"
    outputs: Outputs = "probabilities"
    on: str = "all"
    layers: str | None = None
    normalization: str = "averaged"

    def ready(self) -> tuple[dict[str, Any], Callable[[dict[str, Any], Execution], Decomposed]]:
        """Prepare the provenance and the function that decomposes every group's rounds, of each model asked for.

        Raises:
            FedscopeError: draws that cannot be had; rounds without recorded clients; no averaged model in any of them.
        """
        rounds = dict(zip((run.name for run in self.runs), self.rounds, strict=True))
        groups = [RunGroup(runs, windows_of(runs[0], rounds[runs[0].name], MODELS[self.of])) for runs in self.groups]
        for group in groups:
            group.refuse_unrecorded(self.draws)
            if group.run.partition is None:
                refuse_without_partition(group.run, self.source)
        if self.loss != "squared":  # also where a result is there, which earlier versions made
            self._refuse_other_task()
        settings = {
            "run": [identity(run, self._read_of(run, groups)) for run in self.runs],
            "rounds": list(self.rounds),
            "draws": str(self.draws),
            "of": self.of,
            "loss": self.loss,
            "outputs": self.outputs if self.loss == "squared" else None,
            "on": self.on,
            "split": self.source.split,
            "limit": self.source.limit,
            "seed": self.source.seed if self.source.limit else None,
            "device": self.source.compute.name,
            "precision": self.source.precision,
            **({"layers": self.layers} if self.layers is not None else {}),
            **self._statistics(),
            **given_settings(self.runs, self.source),
            **digest_of_data(self.runs, self.source),
            **(code_settings(self._replayed(groups), self.source) if self.draws.kind == "local" else {}),
            # those of the first run alone, in earlier versions
            **({"recorded_models": "means"} if self.draws.kind == "runs" and self.layers is None else {}),
        }
        return settings, partial(self._answer, groups, settings)

    def _statistics(self) -> dict[str, Any]:
        if self.normalization == "averaged":  # without a look at the network
            return {}
        dataset = dataset_of(self.runs, self.source)
        module = module_for(self.runs[0], self.source, dataset)
        return statistics_settings(self.source, self.normalization, module, dataset)

    def _answer(
        self, groups: Sequence[RunGroup], settings: Mapping[str, Any], attrs: dict[str, Any], work: Execution
    ) -> Decomposed:
        from ...training import error_curves
        from .. import Decomposition, LayerDecomposition, RunFactors, RunLayerFactors
        from .tasks import refuse_other_task

        if self.draws.kind == "local":
            for group in groups:  # before anything is measured; a result that is there needs no code
                replayed = group.needed(group.windows)
                refuse_ungiven(group.run, self.source.code, changed=self.source.code_changed, rounds=replayed)
        dataset = dataset_of(self.runs, self.source)
        measured_on = dataset.samples(cast(Any, self.source.split))
        refuse_other_task(measured_on.task, measured_on.label, self.loss)  # before the replays for it
        modules = [module_for(group.run, self.source, dataset) for group in groups]
        statistics = [measured_statistics(module, dataset, self.source, self.normalization) for module in modules]
        own = {group.run.path: module for group, module in zip(groups, modules, strict=True)}
        source = self.source
        cohorts = Cohorts(
            self.draws, dataset, source.compute, code=source.code, code_changed=source.code_changed, modules=own
        )
        with work.store(settings, *ROUNDS) as store:
            tasks: list[WorkUnit[RoundFactors | RoundLayerFactors]] = []
            for group, module, measured in zip(groups, modules, statistics, strict=True):
                replays = None
                if self.draws.kind == "local":
                    left = group.needed(place for place in group.windows if group.key(*place) not in store.done)
                    how: dict[str, Any] = {"limited": self.source.limit is not None, "tell": work.tell}
                    replays = replays_of(group.run, left, self.draws.count, cohorts.compute, **how)
                    replays.announce()
                tasks += [self._task(group, *place, module, cohorts, replays, measured) for place in group.windows]
            answers = iter(work.each("decompose", tasks, store))
        parts: list[Any] = []
        for group in groups:
            done = {place: next(answers) for place in group.windows}
            for model in MODELS[self.of]:
                rounds: Any = tuple(factors for (_, which), factors in done.items() if which == model)
                if rounds and self.layers is not None:
                    parts.append(RunLayerFactors(group.name, model, rounds))
                elif rounds:
                    parts.append(RunFactors(group.name, model, rounds, error_curves(*group.runs)))
        attrs = {
            **attrs,
            "precision": precision_of(modules[0], self.source.precision),
            **averaged_statistics(self.runs, *statistics),
        }
        if self.layers is not None:
            return LayerDecomposition(tuple(parts), self.source.split, str(self.draws), attrs)
        return Decomposition(tuple(parts), self.source.split, str(self.draws), self.loss, attrs)

    def _replayed(self, groups: Sequence[RunGroup]) -> list[tuple[Run, list[int]]]:
        return [(group.run, group.needed(group.windows)) for group in groups]

    def _read_of(self, run: Run, groups: Sequence[RunGroup]) -> set[int]:
        """Return the rounds of a run whose models are read: those that its models average, and with ``rounds:R`` the
        draws before each."""
        from ..draws.cohort_draws import rounds_of_cohort

        needed = {number for group in groups if run in group.runs for number in group.needed(group.windows)}
        if self.draws.kind != "rounds":
            return needed
        return {one.number for number in needed for one in rounds_of_cohort(run, number, self.draws.count)}

    def with_errors(self, stored: Decomposed) -> Decomposed:
        """Return a result with the test errors that its runs say now (``fedscope measure`` adds to them); the same
        object where those of its rounds are there already."""
        from .. import Decomposition

        if not isinstance(stored, Decomposition):
            return stored
        runs = {"+".join(run.name for run in own): own for own in self.groups}
        parts = tuple(with_errors(part, runs[part.run]) if part.run in runs else part for part in stored.runs)
        changed = any(new is not old for new, old in zip(parts, stored.runs, strict=True))
        return replace(stored, runs=parts) if changed else stored

    def _refuse_other_task(self) -> None:
        """Refuse a task whose loss is another.

        Raises:
            FedscopeError: as :func:`~fedscope.decomposition.factors.tasks.refuse_other_task`.
        """
        from ...evaluation.standard_tasks import is_own_task
        from .tasks import refuse_other_task

        if is_own_task(asked_task(self.runs, self.source)):
            samples = dataset_of(self.runs, self.source).samples(cast(Any, self.source.split))
            refuse_other_task(samples.task, samples.label, self.loss)

    def _task(
        self,
        group: RunGroup,
        number: int,
        model: str,
        module: nn.Module,
        cohorts: Cohorts,
        replays: Replays | None,
        measured: MeasuredStatistics | None,
    ) -> WorkUnit[Any]:
        """A round: the draws of the cohorts that its model averages, then what they answer."""
        from .. import RoundFactors, RoundLayerFactors

        run, window = group.run, group.windows[number, model]
        sizes = [len(run.round(t).client_ids) for t in window]
        clients, replayed = sum(sizes), 0 if replays is None else self.draws.count - 1
        selections = self.selections(run)
        measuring = clients * max(1, len(selections))  # as long as a replay of each client takes, its measurement may
        whole = clients * replayed + measuring

        def measure(report: Report) -> RoundFactors | RoundLayerFactors:
            from .. import join, round_factors, round_layer_factors

            cohorts.keep(run, group.needed((number, which) for which in MODELS["both"]))
            drawn, before = [], 0
            for t, size in zip(window, sizes, strict=True):
                drawn.append(cohorts.of(group.runs, t, within(report, before, whole), replays))
                before += replayed * size
            cohort = drawn[0] if model == "global" else join(drawn, [1 / len(drawn)] * len(drawn), number)
            # D of those that are averaged: one of weight 0 is not
            ids = cohort.client_ids[taking_part(cohort.p)] if self.on == "cohort" else None
            samples, population = samples_of_clients(cohorts.dataset, run, self.source, ids)
            asked = module, samples, cohort, run.round(number), run.partition
            how: dict[str, Any] = {
                "others": [one.round(number) if number in one.rounds else None for one in group.runs[1:]],
                "outputs": self.outputs,
                "population": population,
                "data_of": ids,
                "compute": cohorts.compute,
                "progress": lambda done, of: report(before + measuring * done // of, whole),
            }
            if selections:
                return round_layer_factors(*asked, selections, **how)
            return round_factors(*asked, loss=self.loss, measured=measured, **how)

        kind = RoundLayerFactors if selections else RoundFactors
        return WorkUnit(group.key(number, model), kind, measure, whole)

    def selections(self, run: Run) -> tuple[Selection, ...]:
        """Return the layers that are averaged alone, and all; nothing without ``layers``.

        Raises:
            FedscopeError: layers that the run's model has not.
        """
        if self.layers is None:
            return ()
        return selections_of(run.layout, self.layers, "decompose", statistics=True)


def with_errors(stored: RunFactors, runs: Sequence[Run]) -> RunFactors:
    """Return the factors of runs with their test errors of now; the same object where these only go further than those
    of its rounds, because the runs went on."""
    from ...training import error_curves

    now = error_curves(*runs)
    last = max([one.round for one in stored.rounds] + [t for curve in stored.curves for t in curve.rounds], default=0)

    def until_last(curves: Sequence[ErrorCurve]) -> list[tuple[str, int, float]]:
        return [
            (curve.label, number, error)
            for curve in curves
            for number, error in zip(curve.rounds, curve.error, strict=True)
            if number <= last
        ]

    return stored if until_last(stored.curves) == until_last(now) else replace(stored, curves=now)


def file_words(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs as parts of a file name; some are called by their paths."""
    paths = {run.name: fit_file_name(run.name.strip("/").replace("/", "-")) for run in runs if "/" in run.name}
    return [paths.get(run.name, run.name) for run in runs]


@dataclass(frozen=True)
class OpenedRuns:
    """Runs to decompose.

    Attributes:
        runs: all of them; rounds: as they are asked for of each.
        draws: where the draws come from.
        source: what they are measured on; note: on both where nobody asked for them.
        groups: the runs that are decomposed together.
    """

    runs: list[Run]
    rounds: list[str | None]
    draws: Draws
    source: EvaluationConfig
    note: str
    groups: list[list[Run]]


def runs_of(
    runs: RunLike | Sequence[RunLike],
    rounds: Rounds,
    draws: str | None,
    measured: Mapping[str, Any],
    question: str = "decompose",
) -> OpenedRuns:
    """Open runs, with the rounds asked for of each, and group those that are decomposed together.

    Args:
        draws: as they are given; None for those that the runs can have.
        measured: of :class:`~fedscope.analysis.settings.EvaluationSettings`; without ``split`` it is ``train``, and of
            a run of another program that does not say who holds which samples ``test``.
        question: its name, for sentences.

    Raises:
        FedscopeError: runs that do not say what is needed, with other data, or that are no draws of each other; rounds
            whose clients started from models of their own.
    """
    source = EvaluationConfig.of("train", measured)
    if draws is not None:
        parse_draws(draws)  # what is wrong with them is said first
    opened, asked = resolve_runs(runs, rounds, apart=True)
    for run, own in zip(opened, asked, strict=True):
        refuse_own_starts(run, parse_rounds(own or "last", run.rounds, str(run.path)), question)
    refuse_nameless(opened, source)
    usual, note = usual_draws(draws, opened)
    unknown = next((run for run in opened if run.is_foreign and run.partition is None), None)
    if unknown is not None and "split" not in measured:
        source = replace(source, split="test")
        which = f"{unknown.path} does not say which client holds which samples, so --split test is taken"
        note = f"{note}; {which}" if note else which
    drawn = parse_draws(usual)
    if drawn.kind == "local":
        refuse_replays(opened, source.split)
    refuse_other_data(opened)
    return OpenedRuns(opened, asked, drawn, source, note, groups_of(opened, drawn))


@dataclass(frozen=True)
class RunGroup:
    """Runs that are decomposed together; the first stands for all.

    Attributes:
        windows: by round and model, ``global`` or ``averaged``, of which rounds' averages it is the mean.
    """

    runs: Sequence[Run]
    windows: dict[tuple[int, str], tuple[int, ...]]

    @property
    def run(self) -> Run:
        """The one that stands for all."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """The name in tables and figures."""
        return "+".join(run.name for run in self.runs)

    def key(self, number: int, model: str) -> str:
        """Return the key of a finished round in the store."""
        return f"{'+'.join(str(run.path) for run in self.runs)}@{number}/{model}"

    def needed(self, places: Iterable[tuple[int, str]]) -> list[int]:
        """Return the rounds whose clients these models average."""
        return sorted({t for place in places for t in self.windows.get(place, ())})

    def refuse_unrecorded(self, draws: Draws) -> None:
        """Say before anything is computed that a round lacks its clients, or what draws need of it.

        Raises:
            FedscopeError: such a round.
        """
        from ..draws.cohort_draws import rounds_of_cohort

        for number in self.needed(self.windows):
            for run in self.runs:
                recorded_clients(run, number, start=draws.kind == "local")
            if draws.kind == "rounds":
                rounds_of_cohort(self.run, number, draws.count)


def windows_of(run: Run, rounds: Sequence[int], models: Sequence[str]) -> dict[tuple[int, str], tuple[int, ...]]:
    """Find the rounds whose averages each model of each round is the mean of: for ``averaged`` those of its window.

    Raises:
        FedscopeError: there is none.
    """
    each = {(number, model): _window(run, number, model) for number in rounds for model in models}
    windows = {place: window for place, window in each.items() if window}
    if not windows:
        raise FedscopeError(
            f"{run.path} has no plain average over rounds in round {', '.join(map(str, rounds))}; choose later rounds "
            "of a run with --average ima, wima or swa, or leave out --of averaged"
        )
    return windows


def _window(run: Run, number: int, model: str) -> tuple[int, ...]:
    from ...training import config_at
    from ...training.methods.average_formula import members_of

    if model == "global":
        return (number,)
    return tuple(members_of(config_at(run, number).average, number)) if "averaged" in run.round(number).models else ()


def lacking_averages(run: Run, words: str | None, rounds: Sequence[int], of: str) -> str:
    """Say in which of a run's rounds there is no average over rounds to decompose, where there is one in others or the
    global model beside it; "" where none lacks.

    Args:
        words: as the rounds were asked for; rounds: those that they mean.
        of: ``averaged`` or ``both``.

    Raises:
        FedscopeError: only averages are asked for, and a round without one was asked for by its number.
    """
    without = [number for number in rounds if not _window(run, number, "averaged")]
    if not without or (of == "averaged" and len(without) == len(rounds)):  # refused with its reason
        return ""
    where = f"{run.path} has no plain average over rounds in round{'s' if len(without) > 1 else ''}"
    if of == "both":
        return f"{where} {spans(without)}, of which the global model alone is decomposed"
    named = [number for number in without if number in named_rounds(run, words)]
    if named:
        have = [number for number in rounds_with_clients(run) if _window(run, number, "averaged")]
        raise FedscopeError(
            f"{where} {spans(without)}, so --of averaged cannot decompose it there; give --rounds among {spans(have)}, "
            "or --of both, which has the global model of every round"
        )
    return f"{where} {spans(without)}, which {'are' if len(without) > 1 else 'is'} left out"


def named_rounds(run: Run, words: str | None) -> set[int]:
    """Return the rounds that were asked for one by one, and not as ``all``, ``1-5``, ``last:10`` or ``every:20``."""
    each = [word.strip() for word in (words or "all").split(",")]
    alone = [word for word in each if word != "all" and ":" not in word and not is_range(word)]
    return {number for word in alone for number in parse_rounds(word, run.rounds, str(run.path))}
