"""Analysis: the forgetting of clients in local training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Run, recorded_clients, refuse_own_starts
from ...checkpoints.io.errors import list_few, rounds_have
from ...evaluation.device import precision_of
from ...training.inputs.samples import (
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
    require_own_data,
)
from .result import Answers, Forgetting


@analysis
def forgetting(
    run: RunLike, *, rounds: Rounds = None, **measured: Unpack[EvaluationSettings]
) -> PreparedAnalysis[Forgetting]:
    """Measure the effect of a client's local training on its accuracy on its own data and on the others', class by
    class.

    See :func:`~fedscope.decomposition.forgetting.accuracy.count_answers` for the formulas.

    Args:
        run: ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients; the first and last of these by default.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``train``, which takes all
            clients' training data; in the test data, a client's own are those of its classes.

    Raises:
        FedscopeError: rounds without clients or the model they were sent; a run without a partition.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.forgetting(run).own.shape  # rounds, clients, classes
    (2, 4, 10)
    >>> folder.cleanup()
    """
    source = EvaluationConfig.of("train", measured)
    opened, asked_rounds = resolve_run(run, rounds)

    def prepare() -> SettingsAndCompute[Forgetting]:
        asked = client_rounds(opened, asked_rounds)
        refuse_unrecorded(opened, asked)  # before a model and data are asked for
        dataset = dataset_of([opened], source)
        require_own_data(opened)
        samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
        settings: dict[str, Any] = {
            "run": identity(opened, asked),
            "rounds": asked,
            **given_settings([opened], source, module=module),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": precision_of(module, source.precision),
        }

        def task(number: int) -> WorkUnit[Answers]:
            def measure(report: Report) -> Answers:
                from .accuracy import round_answers

                partition = opened.partition
                assert partition is not None, "just required"
                return round_answers(
                    module, samples, opened.round(number), partition, compute=source.compute, progress=report
                )

            return WorkUnit(f"{opened.path}@{number}", Answers, measure, len(samples))

        def compute(attrs: dict[str, Any], work: Execution) -> Forgetting:
            with work.store(settings, *ROUNDS) as store:
                return Forgetting.of(work.each("forgetting", map(task, asked), store), attrs)

        return settings, compute

    name = f"forgetting-{source.split}-{slug_rounds(asked_rounds or '1,last')}"
    return single_result(Forgetting, opened.path / "figures", name, prepare)


def refuse_unrecorded(run: Run, rounds: Sequence[int]) -> None:
    """Say before computing that models are missing.

    Raises:
        FedscopeError: a round without its clients, or without the model they were sent.
    """
    refuse_own_starts(run, rounds, "forgetting")
    for number in rounds:
        if "start" not in recorded_clients(run, number, start=False).models:
            have = [t for t in run.rounds if run.round(t).has_clients and "start" in run.round(t).models]
            before = f"before; {rounds_have(have, 'it', list_few(have))}" if have else "before, and no round has it"
            raise FedscopeError(
                f"{run.path}@{number} recorded its clients, but not the model they were sent (start), so there is no "
                f"{before}"
            )
