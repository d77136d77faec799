"""Analysis: how far nodes' models are apart, and their merged model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.run_identity import identities
from ...analysis.runs import RunLike, resolve_runs
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import Run
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
from .result import Consensus, MeasuredRound


@analysis
def consensus(
    runs: RunLike | Sequence[RunLike], *, rounds: Rounds = None, **measured: Unpack[EvaluationSettings]
) -> PreparedAnalysis[Consensus]:
    """Measure how far nodes' models are apart, before and after they are mixed, and what one merged model would do.

    Made for runs without a server (gossip, rings), whose rounds were recorded with ``starts=``; of other runs the nodes
    are the clients of a round, and after mixing all have one model. The merged model of a round is the mean of all its
    nodes with equal weights, which such a run never makes; its loss stands beside the mean of the nodes' own. See
    :func:`~fedscope.decomposition.consensus.distances.measure_distances` and
    :func:`~fedscope.decomposition.consensus.merged.merged_losses` for the formulas.

    Args:
        runs: one, or several for one figure; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which; by default ``all`` with their clients.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``train``
            takes all clients' training data.

    Raises:
        FedscopeError: rounds without their clients; runs with other data.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [(one.row.round, one.row.nodes) for one in fedscope.consensus(run).rounds]
    [(1, 4), (2, 4)]
    >>> folder.cleanup()

    Source: Kong et al., "Consensus Control for Decentralized Deep Learning", ICML 2021 (consensus distance).
    """
    source = EvaluationConfig.of("test", measured)
    opened, asked_rounds = resolve_runs(runs, rounds, adapters="products")
    warn_of_products(opened, means=True)
    words = [said or "all" for said in asked_rounds]
    asked = [(run, number) for run, own in zip(opened, words, strict=True) for number in client_rounds(run, own)]

    def prepare() -> SettingsAndCompute[Consensus]:
        dataset = dataset_of(opened, source)
        samples = common_samples(opened, dataset, source)
        adapters = {run.name: own for run in opened if (own := adapters_of_run(run)) is not None}
        modules = {run.name: module_for(run, source, dataset) for run in opened}
        settings: dict[str, Any] = {
            "run": identities(opened, asked),
            "rounds": [[run.name, number] for run, number in asked],
            **given_settings(opened, source, said_of_means(opened), module=modules[opened[0].name]),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": precision_of(modules[opened[0].name], source.precision),
            **about_products(next(iter(adapters.values()), None)),
            **({"adapter_runs": list(adapters)} if 0 < len(adapters) < len(opened) else {}),
            # said, so that a stored result of an earlier version is not taken for this one
            **({"served_last": served} if (served := _served_last(asked)) else {}),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Consensus:
            def task(i: int) -> WorkUnit[MeasuredRound]:
                run, number = asked[i]

                def measure(report: Report) -> MeasuredRound:
                    from .rounds import measure_round

                    how: dict[str, Any] = {"compute": source.compute, "progress": report}
                    return measure_round(modules[run.name], samples, run, number, **how)

                return WorkUnit(f"{run.path}@{number}", MeasuredRound, measure, len(samples))

            attrs = {**attrs, **averaged_statistics(opened)}
            with work.store(settings, *ROUNDS) as store:
                return Consensus(tuple(work.each("consensus", map(task, range(len(asked))), store)), attrs)

        return settings, compute

    names = [source.split, *(run.name for run in opened[1:]), slug_rounds(words[0])]
    return single_result(Consensus, opened[0].path / "figures", f"consensus-{'-'.join(names)}", prepare)


def _served_last(asked: Sequence[tuple[Run, int]]) -> list[str]:
    """List the recorded runs whose last round is asked for, behind which a server sends one model."""
    from .distances import sends_one

    last = [run for run, number in asked if run.is_foreign and number == run.rounds[-1]]
    return [run.name for run in last if sends_one(run, run.round("last"), None)]
