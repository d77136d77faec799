"""Analysis: the angles between clients' updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analysis.analysis import (
    PreparedAnalysis,
    PreparedStep,
    SettingsAndCompute,
    Step,
    analysis,
    fit_file_name,
    single_result,
    slug_rounds,
)
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, larger_cohort, parse_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_runs
from ...checkpoints import FedscopeError, Round, Run, recorded_clients, refuse_own_starts
from ...checkpoints.io.errors import spans
from ...checkpoints.models.layer_selections import layers_file_word, selections_of
from ..adapters.recorded_adapters import about_products, adapters_of_run, warn_of_products
from .angles import RoundUpdates
from .layer_result import LayerUpdates
from .layers import RoundLayers
from .result import ClientUpdates, Updates


@analysis
def updates(
    runs: RunLike | Sequence[RunLike], *, rounds: Rounds = None, layers: str | None = None
) -> PreparedAnalysis[Updates | LayerUpdates]:
    """Measure whether clients go the same way: cosines between their updates, and how much of them cancels in the mean.

    An update is a client's model less the model that it was sent. No data are needed, and nothing is evaluated. Rounds
    whose models were not recorded are told from sketches (``record.sketch``), and the error is said. See
    :class:`~fedscope.decomposition.updates.angles.RoundUpdates` for the formulas.

    Args:
        runs: one, or several in one table and one figure; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` of which clients were recorded, the default; of these, rounds of one client are left
            out.
        layers: the same of layers, one run at a time: ``each`` layer alone, or a pattern for several together,
            ``conv1,blocks.0.*`` or ``/^blocks/``; ``fedscope layers`` lists their names. The last row is of all layers
            together. The answer is a :class:`~fedscope.LayerUpdates`.

    Raises:
        FedscopeError: rounds without clients or the model they were sent, or with one client; layers that there are
            not, or of rounds of which only sketches were recorded.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.updates(run).whole  # and not layer by layer
    True
    >>> folder.cleanup()
    """
    opened, asked_rounds = resolve_runs(runs, rounds, adapters="products")
    warn_of_products(opened)
    if layers is not None:
        if len(opened) > 1:
            raise FedscopeError(f"--layers takes one run, but got {len(opened)} runs; ask for each alone")
        return _by_layer(opened[0], asked_rounds[0] or "all", layers)
    words = [said or "all" for said in asked_rounds]
    asked = [rounds_of(run, said) for run, said in zip(opened, words, strict=True)]
    notes = [left_out(run, said, own) for run, said, own in zip(opened, words, asked, strict=True)]
    ends = [f".{run.name}" if len(opened) > 1 else "" for run in opened]
    parts = (_part(*each) for each in zip(opened, asked, notes, ends, strict=True))
    return PreparedAnalysis(
        opened[0].path / "figures",
        f"updates-{'-'.join([*(run.name for run in opened[1:]), slug_rounds(words[0])])}",
        tuple(parts),
        lambda results: Updates(dict(zip(ends, results, strict=True)), [note for own in notes for note in own]),
        derived=(".updates.csv",),
    )


def _part(run: Run, numbers: Sequence[int], notes: Sequence[str], end: str) -> Step[ClientUpdates]:
    """One run's result, which keeps what was left out of it."""
    adapters = adapters_of_run(run)
    settings: dict[str, Any] = {"run": identity(run, numbers), "rounds": list(numbers), **about_products(adapters)}

    def task(number: int) -> WorkUnit[RoundUpdates]:
        def measure(report: Report) -> RoundUpdates:
            from .adapter_products import adapter_products
            from .angles import geometry, sketched_products, update_products

            round_, k = run.round(number), 0
            if adapters is not None:
                products = adapter_products(round_, adapters, (), report)[-1]
            elif has_models(round_):
                products = update_products(round_, report)
            else:
                products, k = sketched_products(round_)
            return geometry(products, round_.weights, number=number, client_ids=round_.client_ids, sketch=k)

        return WorkUnit(str(number), RoundUpdates, measure, run.layout.size)

    def compute(attrs: list[dict[str, Any]], work: Execution) -> list[ClientUpdates]:
        with work.store(settings, *ROUNDS) as store:
            rounds = work.each(f"updates of {run.name}", map(task, numbers), store)
        said = {"left_out": list(notes)} if notes else {}
        return [ClientUpdates(tuple(rounds), {**attrs[0], **said})]

    return Step(ClientUpdates, lambda: PreparedStep([settings], compute), (end,))


def _by_layer(run: Run, rounds: str, layers: str) -> PreparedAnalysis[Updates | LayerUpdates]:
    """One run's result by layer."""
    selections = selections_of(run.layout, layers, "updates")
    numbers = rounds_of(run, rounds, sketches=False)
    notes = [*left_out(run, rounds, numbers, sketches=False), *_sketches_left_out(run, rounds)]
    adapters = adapters_of_run(run)
    settings: dict[str, Any] = {"run": identity(run, numbers), "rounds": list(numbers), "layers": layers}
    settings |= about_products(adapters)

    def task(number: int) -> WorkUnit[RoundLayers]:
        def measure(report: Report) -> RoundLayers:
            from .layers import round_layers

            return round_layers(run.round(number), selections, report, adapters)

        return WorkUnit(str(number), RoundLayers, measure, run.layout.size)

    def prepare() -> SettingsAndCompute[Updates | LayerUpdates]:
        def compute(attrs: dict[str, Any], work: Execution) -> LayerUpdates:
            with work.store(settings, *ROUNDS) as store:
                found = work.each(f"layers' updates of {run.name}", map(task, numbers), store)
            said = {"left_out": notes} if notes else {}
            return LayerUpdates(tuple(cell for own in found for cell in own.cells), {**attrs, **said})

        return settings, compute

    kind: type[Updates | LayerUpdates] = LayerUpdates
    name = fit_file_name(f"updates-{slug_rounds(rounds)}-layers-{layers_file_word(layers)}")
    return single_result(kind, run.path / "figures", name, prepare)


def rounds_of(run: Run, rounds: str, *, sketches: bool = True) -> list[int]:
    """Return the rounds asked for, of which clients and the model they were sent were recorded; ``all`` are those of
    several clients.

    Args:
        sketches: whether those of the clients' updates will do.

    Raises:
        FedscopeError: a round that lacks them (says which have them), or with a cohort of one.
    """
    products = adapters_of_run(run) is not None
    sketches = sketches and not products
    recorded = _recorded_rounds(run, sketches=sketches)
    pairs = [t for t in recorded if len(run.round(t).client_ids) > 1]
    numbers = parse_rounds(rounds, run.rounds, str(run.path))
    if rounds.strip() == "all":
        numbers = pairs or recorded[-1:] or _recorded_rounds(run)[-1:] or numbers[-1:]
    else:
        numbers = [number for number in numbers if not _is_alone(run, number)] or numbers
    refuse_own_starts(run, numbers, "updates")
    for number in numbers:
        round_ = run.round(number)
        if not sketches and round_.has_sketch and not has_models(round_):
            which = f"one of rounds {spans(recorded)}" if len(recorded) > 1 else f"round {spans(recorded)}"
            other = f"give {which}, or " if recorded else ""
            lost, asks = ("no layer is told from another", "--layers needs")
            if products:
                lost, asks = "the factors of adapters are not multiplied", "updates of adapters need"
            raise FedscopeError(
                f"{run.path}@{number} keeps only sketches of its clients' updates, in which {lost}, and {asks} the "
                f"clients' models; {other}record them (record.clients = 'all')"
            )
        if not round_.has_sketch:
            recorded_clients(run, number, start=False)
        if not round_.has_sketch and "start" not in round_.models:
            anew = (
                "record the run with its start (import --start)"
                if run.is_foreign
                else "train with record.globals = 'all'"
            )
            raise FedscopeError(
                f"{run.path}@{number} recorded its clients, but not the model they were sent (start), so there are no "
                f"updates; give another round, or {anew}"
            )
        if len(round_.client_ids) < 2:
            if not pairs:
                raise FedscopeError(
                    f"{run.path}: every recorded round has a cohort of one, so there is no pair of updates; "
                    f"{run.larger_cohorts}"
                )
            raise FedscopeError(
                f"{run.path}@{number} has a cohort of one, so there is no pair of updates; {larger_cohort(run)}"
            )
    return numbers


def _is_alone(run: Run, number: int) -> bool:
    """Tell whether one client of a round was recorded, so that it has no pair of updates."""
    return len(run.round(number).client_ids) < 2


def left_out(run: Run, rounds: str, taken: Sequence[int], *, sketches: bool = True) -> list[str]:
    """Describe what is not taken of the rounds asked for though clients were recorded."""
    recorded = _recorded_rounds(run, sketches=sketches)
    asked = parse_rounds(rounds, run.rounds, str(run.path))
    alone = [t for t in recorded if t in asked and t not in taken]
    if not alone:
        return []
    which = f"round{'s' if len(alone) > 1 else ''} {spans(alone)}"
    return [f"{run.name}: {which} left out, because one client is not a pair of updates"]


def _sketches_left_out(run: Run, rounds: str) -> list[str]:
    """Describe what ``all`` does not take by layer because only sketches were recorded."""
    models = _recorded_rounds(run, sketches=False)
    lost = [t for t in _recorded_rounds(run) if t not in models] if rounds.strip() == "all" else []
    if not lost:
        return []
    which = f"round{'s' if len(lost) > 1 else ''} {spans(lost)}"
    return [f"{run.name}: {which} left out, because sketches do not tell layers from each other"]


def _recorded_rounds(run: Run, *, sketches: bool = True) -> list[int]:
    """Return the rounds of which clients and the model they were sent were recorded, or sketches of their updates."""
    return [t for t in run.rounds if has_models(run.round(t)) or (sketches and run.round(t).has_sketch)]


def has_models(round_: Round) -> bool:
    """Tell whether updates can be made of a round's models."""
    return round_.has_clients and "start" in round_.models
