"""Analysis: the number of models that an average needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ...analysis.analysis import PreparedAnalysis, analysis, single_result, slug, slug_rounds
from ...analysis.rounds import Rounds, client_rounds, rounds_text
from ...analysis.runs import RunLike, resolve_runs
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_unknown_choice
from ...checkpoints import FedscopeError
from ...landscape.alignment.step import refuse_unknown_align
from ...training.inputs.data_of import sets_of_rounds, training_split
from ...training.inputs.statistics import refuse_unknown_statistics, statistics_word
from .request import RoundSizes, SubsetsRequest
from .result import Subsets


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
        FedscopeError: rounds, clients, sizes or weights that there are not; runs with other data.

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
    refuse_unknown_choice("weights", weights, ("samples", "uniform"))
    refuse_unknown_align(align)
    refuse_unknown_statistics(normalization)
    opened, asked_rounds = resolve_runs(runs, rounds)
    asked = []
    for run, own in zip(opened, asked_rounds, strict=True):
        for number in client_rounds(run, own):
            cohort = len(run.round(number).client_ids)
            asked.append(RoundSizes(run, number, sizes_of(sizes, cohort, f"{run.path}@{number}")))
    places = None if whose is None else sets_of_rounds([(one.run, one.number) for one in asked], whose)
    request = SubsetsRequest(
        opened,
        asked,
        source,
        sizes=sizes,
        subsets=subsets,
        weights=weights,
        data_of=whose,
        places=places,
        align=align,
        normalization=normalization,
    )
    words = [
        source.split if whose is None else f"data-of-{slug(whose)}",
        *([] if align == "none" else [f"aligned-{align}"]),
        *statistics_word(normalization),
        *(run.name for run in opened[1:]),
        slug_rounds(asked_rounds[0] or "1,last"),
    ]
    name = f"subsets-{'-'.join(words)}"
    return single_result(Subsets, opened[0].path / "figures", name, request.ready)


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
