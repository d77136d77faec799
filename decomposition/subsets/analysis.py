"""Analysis: the number of models that an average needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, one, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.runs import Rounds, RunLike, client_rounds, identity, resolve_runs
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError
from ...landscape.alignment.step import align_weights, refuse_unknown_align
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    limit_samples,
    module_for,
)
from .result import RoundSubsets, Subsets


@analysis
def subsets(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    sizes: str | Sequence[int] | None = None,
    subsets: int = 20,
    weights: str = "samples",
    align: str = "none",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Subsets]:
    """Measure how many models an average needs: the error of averages of m of a round's C clients, for m = 1 to C.

    A cohort of C clients has C averages of one, the clients themselves, and one of all. See
    :func:`~fedscope.decomposition.subsets.averages.average_subsets` for the formulas.

    Args:
        runs: one, or several for one figure; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients; the first and last of these by default.
        sizes: numbers m of clients in an average, or ``all``; by default all, of more than 20 clients 12 from 1 to C.
        subsets: how many subsets of a size, drawn with ``seed``; all where there are no more.
        weights: of a subset's clients: by their numbers of ``samples``, of a run that another program
            recorded by its p, or ``uniform``.
        align: bring the units of a round's clients into the order of the first one's before, by their ``weights`` or
            their ``activations``; see :func:`fedscope.align`.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``train``
            takes all clients' training data.

    Raises:
        FedscopeError: rounds, clients or sizes that there are not; runs with other data.

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Figure 4.
    """
    source = EvaluationConfig.of("test", measured)
    refuse_unknown_align(align)
    opened, asked_rounds = resolve_runs(runs, rounds)
    asked = []
    for run, own in zip(opened, asked_rounds, strict=True):
        for number in client_rounds(run, own):
            cohort = len(run.round(number).client_ids)
            asked.append((run, number, sizes_of(sizes, cohort, f"{run.path}@{number}")))

    def prepare() -> SettingsAndCompute[Subsets]:
        dataset = dataset_of(opened, source)
        samples = common_samples(opened, dataset, source)
        modules = {run.name: module_for(run, source, dataset) for run in opened}
        settings: dict[str, Any] = {
            "run": [identity(run) for run in opened],
            "rounds": [[run.name, number] for run, number, _ in asked],
            "sizes": [list(own) for _, _, own in asked],
            "subsets": subsets,
            "weights": weights,
            **({"align": align} if align != "none" else {}),
            **given_settings(opened, source),
            **describe_samples(samples, source.seed),
            "device": source.compute.name,
            "precision": source.precision,
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Subsets:
            def task(run: Any, number: int, own: tuple[int, ...]) -> WorkUnit[RoundSubsets]:
                def measure(report: Report) -> RoundSubsets:
                    from .averages import round_subsets

                    return round_subsets(
                        modules[run.name],
                        samples,
                        run.round(number),
                        # another program may weigh its clients as it likes
                        aligned=None
                        if align == "none"
                        else lambda clients: align_weights(
                            modules[run.name],
                            limit_samples(dataset, replace(source, split="train", limit=source.limit or 2000)),
                            clients,
                            [f"client {k}" for k in run.round(number).client_ids],
                            align,
                            source.compute,
                        ),
                        weights="recorded" if run.is_foreign and weights == "samples" else weights,
                        run=run.name,
                        sizes=own,
                        subsets=subsets,
                        # not the run: those with the same cohorts meet the same subsets
                        seed=(source.seed, number),
                        compute=source.compute,
                        progress=report,
                    )

                models = models_in(own, len(run.round(number).client_ids), subsets)
                return WorkUnit(f"{run.path}@{number}", RoundSubsets, measure, models)

            asked_sizes = sizes if sizes is None or isinstance(sizes, str) else list(sizes)
            attrs = {**attrs, **averaged_statistics(opened)}
            with work.store({**settings, "sizes": asked_sizes}, *ROUNDS) as store:
                return Subsets(tuple(work.each("subsets", (task(*one) for one in asked), store)), weights, attrs)

        return settings, compute

    words = [
        source.split,
        *([] if align == "none" else [f"aligned-{align}"]),
        *(run.name for run in opened[1:]),
        slug_rounds(asked_rounds[0] or "1,last"),
    ]
    name = f"subsets-{'-'.join(words)}"
    return one(Subsets, opened[0].path / "figures", name, prepare)


def models_in(sizes: Sequence[int], clients: int, subsets: int) -> int:
    """Count the averages of a round."""
    from math import comb

    return sum(min(subsets, comb(clients, m)) for m in sizes)


def sizes_of(sizes: str | Sequence[int] | None, clients: int, where: str) -> tuple[int, ...]:
    """``1,2,5,10`` or ``all`` as sizes of subsets of a cohort, ascending; None for the default ones.

    Raises:
        FedscopeError: a word that is no number; a size that the cohort does not have.
    """
    from .averages import spread_sizes

    if sizes is None:
        return spread_sizes(clients)
    text = sizes if isinstance(sizes, str) else ",".join(map(str, sizes))
    if text.strip() == "all":
        return tuple(range(1, clients + 1))
    found = set()
    for word in text.split(","):
        try:
            size = int(word)
        except ValueError:
            raise FedscopeError(f"--sizes {text}: {word.strip()!r} is not a number; write 1,2,5,10 or all") from None
        if not 1 <= size <= clients:
            raise FedscopeError(
                f"--sizes {text}: {where} has {clients} client{'s' if clients > 1 else ''}, so there is no average of "
                f"{size}; give {'sizes from 1 to ' if clients > 1 else 'size '}{clients}"
            )
        found.add(size)
    return tuple(sorted(found))
