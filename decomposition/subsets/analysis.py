"""Analysis: the number of models that an average needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.runs import Rounds, RunLike, client_rounds, identities, resolve_runs, rounds_text
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Round, Run, Weights
from ...landscape.alignment.step import align_weights, calibration_samples, refuse_unknown_align
from ...training.inputs.data_of import RunData, describe_sets, read_sets, sets_of_rounds, training_split
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)
from ...training.inputs.statistics import (
    measured_statistics,
    refuse_unknown_statistics,
    statistics_settings,
    statistics_word,
)
from .result import RoundSubsets, Subsets, SubsetsAtPlaces


@analysis
def subsets(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    sizes: str | Sequence[int] | None = None,
    subsets: int = 20,
    weights: str = "samples",
    data_of: str | int | Sequence[int] | None = None,
    align: str = "none",
    normalization: str = "averaged",
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
        data_of: whose training data: ``own``, of each average its members'; ``all`` clients'; ``client-7`` or numbers;
            each of the round's ``clients``; or ``every`` one of them and all.
        align: bring the units of a round's clients into the order of the first one's before, by their ``weights`` or
            their ``activations``; see :func:`fedscope.align`.
        normalization: where averages have BatchNorm statistics from: ``averaged`` as the weights are, or
            ``re-estimate``, measured on 2,000 training samples, or ``limit``.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``train``
            takes all clients' training data.

    Raises:
        FedscopeError: rounds, clients or sizes that there are not; runs with other data.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [row.m for row in fedscope.subsets(run, sizes=(1, 2)).rounds[-1].sizes]
    [1, 2]
    >>> folder.cleanup()

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Figure 4.
    """
    whose = rounds_text(data_of)
    source = EvaluationConfig.of("test" if whose is None else "train", measured)
    training_split(whose, source)
    refuse_unknown_align(align)
    refuse_unknown_statistics(normalization)
    opened, asked_rounds = resolve_runs(runs, rounds)
    asked = []
    for run, own in zip(opened, asked_rounds, strict=True):
        for number in client_rounds(run, own):
            cohort = len(run.round(number).client_ids)
            asked.append((run, number, sizes_of(sizes, cohort, f"{run.path}@{number}")))
    places = None if whose is None else sets_of_rounds([(run, number) for run, number, _ in asked], whose)

    def prepare() -> SettingsAndCompute[Subsets]:
        dataset = dataset_of(opened, source)
        data = RunData(tuple(opened), dataset)
        read = None if places is None else read_sets(data, source, [one for own in places for one in own])
        samples = common_samples(opened, dataset, source) if read is None else next(iter(read.values()))[0]
        said = describe_samples(samples, source.seed) if read is None else {**describe_sets(read), "data_of": whose}
        modules = {run.name: module_for(run, source, dataset) for run in opened}
        settings: dict[str, Any] = {
            "run": identities(opened, [(run, number) for run, number, _ in asked]),
            "rounds": [[run.name, number] for run, number, _ in asked],
            "sizes": [list(own) for _, _, own in asked],
            "subsets": subsets,
            "weights": weights,
            **({"align": align} if align != "none" else {}),
            **statistics_settings(source, normalization),
            **given_settings(opened, source, module=modules[opened[0].name]),
            **said,
            "device": source.compute.name,
            "precision": source.precision,
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Subsets:
            statistics = {
                name: measured_statistics(module, dataset, source, normalization) for name, module in modules.items()
            }

            def task(i: int) -> WorkUnit[Any]:
                run, number, own = asked[i]

                def measure(report: Report) -> Any:
                    from .averages import round_subsets, subsets_at

                    def aligned(clients: list[Weights]) -> list[Weights]:
                        names = [f"client {k}" for k in run.round(number).client_ids]
                        calibration = calibration_samples(dataset, samples, source)
                        return align_weights(modules[run.name], calibration, clients, names, align, source.compute)

                    known: dict[str, Any] = {
                        # another program may weigh its clients as it likes
                        "weights": weights_of(run.round(number), run, weights),
                        "aligned": None if align == "none" else aligned,
                        "measured": statistics[run.name],
                        "run": run.name,
                        "sizes": own,
                        "subsets": subsets,
                        # not the run: those with the same cohorts meet the same subsets
                        "seed": (source.seed, number),
                        "compute": source.compute,
                        "progress": report,
                    }
                    if places is None or read is None:
                        return round_subsets(modules[run.name], samples, run.round(number), **known)
                    there = {one.name: read[one.name][0] for one in places[i]}
                    return subsets_at(modules[run.name], there, run.round(number), own=whose == "own", **known)

                models = models_in(own, len(run.round(number).client_ids), subsets)
                kind: type[Any] = RoundSubsets if places is None else SubsetsAtPlaces
                return WorkUnit(f"{run.path}@{number}", kind, measure, models)

            several = list(sizes) if isinstance(sizes, Iterable) else [sizes]
            asked_sizes = sizes if sizes is None or isinstance(sizes, str) else several
            attrs = {**attrs, **averaged_statistics(opened, *statistics.values())}
            with work.store({**settings, "sizes": asked_sizes}, *ROUNDS) as store:
                made = list(work.each("subsets", map(task, range(len(asked))), store))
            found = made if places is None else [one for own in made for one in own.places]
            by_name = {run.name: run for run in opened}
            words = [weights_of(by_name[one.run].round(one.round), by_name[one.run], weights) for one in found]
            alike = weights if "recorded" not in words else "recorded" if len(set(words)) == 1 else weights
            found = [
                replace(one, weights=word if word != alike else "") for one, word in zip(found, words, strict=True)
            ]
            return Subsets(tuple(found), alike, attrs)

        return settings, compute

    words = [
        source.split if whose is None else f"data-of-{slug(whose)}",
        *([] if align == "none" else [f"aligned-{align}"]),
        *statistics_word(normalization),
        *(run.name for run in opened[1:]),
        slug_rounds(asked_rounds[0] or "1,last"),
    ]
    name = f"subsets-{'-'.join(words)}"
    return single_result(Subsets, opened[0].path / "figures", name, prepare)


def weights_of(round_: Round, run: Run, weights: str) -> str:
    """Say how averages of a round weigh their clients: ``samples``, ``uniform``, or ``recorded`` where another program
    weighed them otherwise than by their samples."""
    from .averages import shares_of

    if weights != "samples" or not run.is_foreign:
        return weights
    by_samples = round_.has("client_samples") and np.array_equal(shares_of(round_, "recorded"), round_.client_samples)
    return "samples" if by_samples else "recorded"


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
    text = str(rounds_text(sizes))  # are written as they are
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
