"""Analysis: what predicts that averaging helps."""

from __future__ import annotations

from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds, larger_cohort, left_out
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Run, refuse_own_starts
from ...evaluation.device import precision_of
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)
from ..adapters.recorded_adapters import about_products, adapters_of_run, said_of_means, warn_of_products
from .result import PredictedRound, Predictors, correlations_of


@analysis
def predictors(
    run: RunLike, *, rounds: Rounds = None, **measured: Unpack[EvaluationSettings]
) -> PreparedAnalysis[Predictors]:
    """Measure what predicts that the mean of a round's clients is better than they are.

    Of every round: what the mean gains, the clients' mean loss less the loss of their mean; and numbers that may
    predict it: cosines and sign conflicts of updates, the length that the mean keeps, the barrier between pairs of
    clients, the overlap of the layers' main directions, and the effective rank of the updates. Then the rank
    correlation of each with the gain over the rounds, with a 95 % interval; where it includes 0 the number is no better
    than chance in this run. Six numbers are tried, so one may seem better by chance in up to 30 % of runs. For the
    formulas see :func:`~fedscope.decomposition.predictors.round_predictors.predicted_round` and
    :func:`~fedscope.decomposition.predictors.correlation.interval`.

    Args:
        run: ``RUN@1-60`` is a run with ``rounds="1-60"``.
        rounds: which, or ``all`` with their clients and the model they were sent, the default; of several, those of
            one client are left out. A correlation needs five.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``.

    Raises:
        FedscopeError: rounds without clients or the model they were sent, or with one client.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [(one.round, one.clients) for one in fedscope.predictors(run).rounds]
    [(1, 4), (2, 4)]
    >>> folder.cleanup()
    """
    source = EvaluationConfig.of("test", measured)
    opened, asked_rounds = resolve_run(run, rounds, adapters="products")
    warn_of_products([opened], means=True)
    adapters = adapters_of_run(opened)
    numbers, notes = rounds_of(opened, asked_rounds or "all")

    def prepare() -> SettingsAndCompute[Predictors]:
        dataset = dataset_of([opened], source)
        samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
        settings: dict[str, Any] = {
            "run": identity(opened, numbers),
            "rounds": numbers,
            **given_settings([opened], source, said_of_means([opened]), module=module),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": precision_of(module, source.precision),
            **about_products(adapters),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Predictors:
            from ...evaluation.evaluator import Evaluator

            evaluator = Evaluator(module, samples, compute=source.compute)

            def task(number: int) -> WorkUnit[PredictedRound]:
                def measure(report: Report) -> PredictedRound:
                    from .round_predictors import predicted_round

                    return predicted_round(opened.round(number), evaluator, opened.name, report, adapters)

                size = 2 * len(opened.round(number).client_ids) + 1
                return WorkUnit(str(number), PredictedRound, measure, size)

            with work.store(settings, *ROUNDS) as store:
                found = tuple(work.each("predictors", map(task, numbers), store))
            said = {"left_out": notes} if notes else {}
            return Predictors(found, correlations_of(found), {**attrs, **averaged_statistics([opened]), **said})

        return settings, compute

    name = f"predictors-{source.split}-{slug_rounds(asked_rounds or 'all')}"
    return single_result(Predictors, opened.path / "figures", name, prepare)


def rounds_of(run: Run, rounds: str) -> tuple[list[int], list[str]]:
    """Return the rounds asked for, and sentences on those that are left out: of one client, and of ``all`` those
    without the model that clients were sent.

    Raises:
        FedscopeError: a round that lacks one of these, where it is asked for alone or no other has both.
    """
    numbers = client_rounds(run, rounds)
    several = [t for t in numbers if len(run.round(t).client_ids) > 1]
    sent = [t for t in numbers if "start" in run.round(t).models]
    able = [t for t in several if t in sent]
    alone = left_out(run, [t for t in numbers if t not in several], "one client is nothing to average")
    if rounds.strip() == "all" and able:
        unsent = [t for t in several if t not in sent]
        return able, alone + left_out(run, unsent, "the model that clients were sent (start) was not recorded")
    numbers = several or numbers
    refuse_own_starts(run, numbers, "predictors")
    for number in numbers:
        if number in able:
            continue
        if len(run.round(number).client_ids) < 2:
            raise FedscopeError(
                f"{run.path}@{number} has a cohort of one, so there is nothing to average; {larger_cohort(run)}"
            )
        anew = (
            "record the run with its start (import --start)" if run.is_foreign else "train with record.globals = 'all'"
        )
        raise FedscopeError(
            f"{run.path}@{number} recorded its clients, but not the model they were sent (start), so there are no "
            f"updates; give another round, or {anew}"
        )
    return numbers, alone
