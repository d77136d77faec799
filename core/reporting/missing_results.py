"""The questions that a report would like answered of a run, and how long those take that nobody has asked yet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..analysis.analysis import PreparedAnalysis
from ..checkpoints import FedscopeError, Run, rounds_with_clients
from ..checkpoints.io.shell_words import quoted
from ..checkpoints.models.layers import layers_of
from .discover import Beside
from .run_tasks import has_classes

#: points a side of the surface
GRID = 25
#: that a question takes besides: opening, drawing
SECONDS_A_QUESTION = 2.0
#: a report that takes more seconds is offered on so many samples
LONG_REPORT, FEWER_SAMPLES = 600.0, 2000
#: of a line on which one layer moves
POINTS = 11
#: draws of the cohort in a decomposition
DRAWS = 4
#: subsets of a size; there are as many sizes as clients, at most
SUBSETS = 20
#: rounds that an explanation measures, at most
EXPLAINED = 10


@dataclass(frozen=True)
class MissingResult:
    """A question that was not asked yet.

    Attributes:
        words: of the command line that asks the same, without ``fedscope``, quoted as a shell takes them.
        kind: the class of its result.
        question: ready to be answered.
        evaluations: how many times a model is measured on the data; replays: how many rounds of the run are trained.
    """

    words: str
    kind: str
    question: PreparedAnalysis[Any]
    evaluations: int
    replays: int = 0


@dataclass(frozen=True)
class Candidate:
    """A question that a report would like answered; :class:`MissingResult` has the attributes.

    Attributes:
        prepare: makes the question ready.
    """

    words: str
    kind: str
    prepare: Callable[[], PreparedAnalysis[Any]]
    evaluations: int
    replays: int = 0


@dataclass(frozen=True)
class ReportedRun:
    """A run of which a report asks.

    Attributes:
        limit: the samples that are measured; all with None.
        given: data, model and how they are taken.
    """

    run: Run
    limit: int | None
    given: Mapping[str, Any]

    @cached_property
    def last(self) -> int:
        """The last round with its clients; of a run without them the last."""
        run = self.run
        return max((number for number in run.rounds if run.round(number).has_clients), default=run.rounds[-1])

    @cached_property
    def cohort(self) -> int:
        """How many clients that round has."""
        return len(self.run.round(self.last).client_ids)

    @property
    def is_trained(self) -> bool:
        """Whether fedscope trained it, so that its rounds can be replayed."""
        return self.run.config is not None

    @property
    def has_partition(self) -> bool:
        """Whether it says who holds which training samples, which not every recorded run does."""
        return (self.run.path / "partition.h5").exists()

    @cached_property
    def rounds_of_nodes(self) -> list[int]:
        """Some of the rounds, where clients start from models of their own; none where they do not."""
        from ..decomposition.explanation.phases import spread_rounds

        have = rounds_with_clients(self.run)
        return spread_rounds(have) if any(self.run.round(number).own_starts for number in have) else []

    @property
    def settings(self) -> dict[str, Any]:
        """How is measured, as keywords."""
        return {**({} if self.limit is None else {"limit": self.limit}), **self.given}

    def words(self, *asked: object) -> str:
        """Return the words of a question that measures: what is asked, then how is measured."""
        limit = [] if self.limit is None else ["--limit", self.limit]
        return quoted(*asked, *limit, *_options(self.given))


def find_missing(
    run: Run, results: Beside, limit: int | None = None, given: Mapping[str, Any] | None = None
) -> tuple[list[MissingResult], dict[str, str]]:
    """List what to ask of a run, on ``limit`` samples, and by the words of the others why they cannot be asked.

    Args:
        given: data, model and how they are taken, as of :class:`~fedscope.analysis.settings.EvaluationSettings`.

    Of runs that fedscope trained the factors come from replays (``local:4``), of others from the recorded models alone.
    Of rounds whose clients start from models of their own it is asked how far these are apart, in some of the rounds.
    """
    reported = ReportedRun(run, limit, given or {})
    there = {one.kind.name for one in results.results}
    found, refused = list[MissingResult](), dict[str, str]()
    for question in QUESTIONS:
        one = question(reported)
        if one is None or one.kind in there:
            continue
        try:
            found.append(MissingResult(one.words, one.kind, one.prepare(), one.evaluations, one.replays))
        except FedscopeError as error:
            refused[one.words] = str(error)
    return found, refused


# --- the questions, each with what it costs; None where a run has nothing that could be asked about ---


def _explain(of: ReportedRun) -> Candidate:
    from ..decomposition.explanation.analysis import explain

    if not has_classes(of.run):
        return _decompose(of)
    rounds, draws = min(EXPLAINED, len(of.run.rounds)), DRAWS if of.is_trained else 1
    source = f"local:{DRAWS}" if of.is_trained else "none"
    split: dict[str, Any] = {} if of.has_partition else {"split": "test"}  # the bias is not split then
    return Candidate(
        of.words("explain", of.run.path, "--draws", source, *_options(split)),
        "Explanation",
        lambda: explain.prepare(of.run, draws=source, **split, **of.settings),
        rounds * of.cohort * draws,
        rounds * (draws - 1),
    )


def _decompose(of: ReportedRun) -> Candidate:
    """The factors alone, of a task without the classes that explanations need."""
    from ..decomposition.factors.analysis import decompose

    source = f"local:{DRAWS}" if of.is_trained else "none"
    split: dict[str, Any] = {} if of.has_partition else {"split": "test"}
    return Candidate(
        of.words("decompose", of.run.path, "--draws", source, *_options(split)),
        "Decomposition",
        lambda: decompose.prepare(of.run, draws=source, **split, **of.settings),
        2 * of.cohort * (DRAWS if of.is_trained else 1),
        2 * (DRAWS - 1) if of.is_trained else 0,
    )


def _plane(of: ReportedRun) -> Candidate:
    from ..landscape.planes.analysis import plane

    at = f"{of.run.path}@{of.last}"
    return Candidate(
        of.words("plane", at, "--clients", "--grid", GRID),
        "Plane",
        lambda: plane.prepare(at, clients=True, grid=GRID, **of.settings),
        GRID**2 + of.cohort,
    )


def _subsets(of: ReportedRun) -> Candidate:
    from ..decomposition.subsets.analysis import subsets

    return Candidate(
        of.words("subsets", of.run.path, "--rounds", of.last),
        "Subsets",
        lambda: subsets.prepare(of.run, rounds=of.last, **of.settings),
        SUBSETS * of.cohort,
    )


def _cka(of: ReportedRun) -> Candidate:
    from ..decomposition.cka.analysis import cka

    return Candidate(
        of.words("cka", of.run.path, "--rounds", of.last),
        "ClientCKA",
        lambda: cka.prepare(of.run, rounds=of.last, **of.settings),
        2 * of.cohort,
    )


def _matrix(of: ReportedRun) -> Candidate | None:
    from ..decomposition.matrix.analysis import matrix

    if not of.has_partition:
        return None
    return Candidate(
        of.words("matrix", of.run.path, "--rounds", of.last),
        "Matrix",
        lambda: matrix.prepare(of.run, rounds=of.last, **of.settings),
        2 * (of.cohort + 3),
    )


def _consensus(of: ReportedRun) -> Candidate | None:
    from ..decomposition.consensus.analysis import consensus

    if not of.rounds_of_nodes:
        return None
    all_rounds = len(of.rounds_of_nodes) == len(rounds_with_clients(of.run))
    rounds = None if all_rounds else ",".join(map(str, of.rounds_of_nodes))
    return Candidate(
        of.words("consensus", of.run.path, *_options({} if rounds is None else {"rounds": rounds})),
        "Consensus",
        lambda: consensus.prepare(of.run, rounds=rounds, **of.settings),
        len(of.rounds_of_nodes) * (of.cohort + 1),
    )


def _layer_lines(of: ReportedRun) -> Candidate:
    from ..landscape.lines.analysis import line

    layers = sum(layer.size > 0 for layer in layers_of(of.run.layout))
    return Candidate(
        of.words("line", of.run.path, "--layers", "each", "--rounds", of.last),
        "LayerRounds",
        lambda: line.prepare(of.run, layers="each", rounds=of.last, **of.settings),
        2 * layers * POINTS,
    )


def _updates(of: ReportedRun) -> Candidate:
    from ..decomposition.updates.analysis import updates

    return Candidate(quoted("updates", of.run.path), "ClientUpdates", lambda: updates.prepare(of.run), 0)


def _layer_updates(of: ReportedRun) -> Candidate:
    from ..decomposition.updates.analysis import updates

    words = quoted("updates", of.run.path, "--layers", "each")
    return Candidate(words, "LayerUpdates", lambda: updates.prepare(of.run, layers="each"), 0)


def _adapters(of: ReportedRun) -> Candidate | None:
    from ..decomposition.adapters.analysis import adapters
    from ..decomposition.adapters.recorded_adapters import adapters_of_run

    if adapters_of_run(of.run) is None:
        return None
    return Candidate(quoted("adapters", of.run.path), "AdapterMeans", lambda: adapters.prepare(of.run), 0)


#: in the order in which they are asked
QUESTIONS: tuple[Callable[[ReportedRun], Candidate | None], ...] = (
    *(_explain, _plane, _subsets, _cka, _matrix, _consensus, _layer_lines, _updates, _layer_updates, _adapters),
)


def _options(given: Mapping[str, Any]) -> list[str]:
    """Settings as a command line has them; what is an object in Python is named by its class."""
    words = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, str(value) if isinstance(value, str | int | float) else type(value).__name__]
    return words


# --- how long they take ---


def seconds(
    run: Run, asked: Sequence[MissingResult], *limits: int | None, given: Mapping[str, Any] | None = None
) -> list[float]:
    """About how long questions take on all samples (None) or on fewer.

    Rounds that are trained again take as long as when the run was made, models as long as one takes now on all cores,
    and each question something for itself.
    """
    took = [float(own["seconds"] or 0) for t in run.rounds if "seconds" in (own := run.round(t).metrics)]
    training = sum(one.replays for one in asked) * (statistics.median(took) if took else 0.0)
    measuring = _one_evaluation(run, given or {}) if any(one.evaluations for one in asked) else {}

    def models(limit: int | None) -> float:
        splits = ("train" if one.replays else "test" for one in asked)
        costs = (measuring.get(split, (0.0, 1)) for split in splits)
        samples = ((cost, count if limit is None else min(count, limit)) for cost, count in costs)
        return sum(one.evaluations * cost * count for one, (cost, count) in zip(asked, samples, strict=True))

    return [training + models(limit) + SECONDS_A_QUESTION * len(asked) for limit in limits or (None,)]


def _one_evaluation(run: Run, given: Mapping[str, Any]) -> dict[str, tuple[float, int]]:
    """Seconds that a model takes on a sample of a split, with every core at work on others, and its samples; nothing
    where that cannot be said."""
    from ..analysis.settings import EvaluationConfig
    from ..distributed.cores import cores
    from ..evaluation.evaluator import Evaluator
    from ..training.inputs.any_model import any_model
    from ..training.inputs.samples import dataset_of, module_for

    try:
        source = EvaluationConfig("test", **given)
        dataset = dataset_of([run], source)
        samples = dataset.samples("test")
        evaluator = Evaluator(module_for(run, source, dataset), samples)
        weights = any_model(run)
    except FedscopeError:
        return {}
    if weights is None:
        return {}
    began = time.perf_counter()
    evaluator.models([weights] * cores())
    one = (time.perf_counter() - began) / cores() / len(samples.y)
    return {"test": (one, len(samples.y)), "train": (one, len(dataset.y_train))}
