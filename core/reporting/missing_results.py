"""The questions that a report would like answered of a run, and how long those take that nobody has asked yet."""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.analysis import PreparedAnalysis
from ..checkpoints import FedscopeError, Run, rounds_with_clients
from ..checkpoints.models.layers import layers_of
from .discover import Beside

#: points a side of the surface
GRID = 25
#: seconds that a question takes besides: opening, drawing
EACH = 2.0
#: a report that takes more seconds is offered on so many samples
LONG, FEWER = 600.0, 2000
#: of a line on which one layer moves
POINTS = 11
#: draws of the cohort in a decomposition
DRAWS = 4


@dataclass(frozen=True)
class Lacking:
    """A question that was not asked yet.

    Attributes:
        words: of the command line that asks the same.
        kinds: of whose results one is enough.
        question: ready to be answered.
        evaluations: how many times a model is measured on the data; replays: how many rounds of the run are trained.
    """

    words: str
    kinds: tuple[str, ...]
    question: PreparedAnalysis[Any]
    evaluations: int
    replays: int = 0


def find_missing(
    run: Run, results: Beside, limit: int | None = None, given: Mapping[str, Any] | None = None
) -> tuple[list[Lacking], dict[str, str]]:
    """List what to ask of a run, on ``limit`` samples, and by the words of the others why they cannot be asked.

    Args:
        given: data, model and how they are taken, as of :class:`~fedscope.analysis.settings.EvaluationSettings`.

    Of runs that fedscope trained the factors come from replays (``local:4``), of others from the recorded models alone.
    Of rounds whose clients start from models of their own it is asked how far these are apart, in some of the rounds.
    """
    from ..decomposition.adapters.analysis import adapters
    from ..decomposition.adapters.recorded_adapters import adapters_of_run
    from ..decomposition.cka.analysis import cka
    from ..decomposition.consensus.analysis import consensus
    from ..decomposition.explanation.analysis import explain
    from ..decomposition.explanation.phases import spread_rounds
    from ..decomposition.matrix.analysis import matrix
    from ..decomposition.subsets.analysis import subsets
    from ..decomposition.updates.analysis import updates
    from ..landscape.lines.analysis import line
    from ..landscape.planes.analysis import plane

    last = max((number for number in run.rounds if run.round(number).has_clients), default=run.rounds[-1])
    cohort, at = len(run.round(last).client_ids), f"{run.path}@{last}"
    draws = f"local:{DRAWS}" if run.config is not None else "none"
    # who holds which training samples is not known of every recorded run; the bias is not split then
    split: dict[str, Any] = {} if (run.path / "partition.h5").exists() else {"split": "test"}
    layers = sum(layer.size > 0 for layer in layers_of(run.layout))
    some, of_adapters = min(10, len(run.rounds)), adapters_of_run(run) is not None
    few = ("" if limit is None else f" --limit {limit}") + _options(given or {})
    fewer: dict[str, Any] = {**({} if limit is None else {"limit": limit}), **(given or {})}
    at_home = (
        f"matrix {run.path} --rounds {last}{few}",
        ("Matrix",),
        lambda: matrix.prepare(run, rounds=last, **fewer),
        2 * (cohort + 3),
        0,
    )
    have = rounds_with_clients(run)
    of_nodes = any(run.round(number).own_starts for number in have)
    spread = spread_rounds(have) if of_nodes else []
    apart = ",".join(map(str, spread)) if len(spread) < len(have) else None
    nodes = (
        f"consensus {run.path}{'' if apart is None else f' --rounds {apart}'}{few}",
        ("Consensus",),
        lambda: consensus.prepare(run, rounds=apart, **fewer),
        len(spread) * (cohort + 1),
        0,
    )
    wanted: tuple[tuple[str, tuple[str, ...], Callable[[], PreparedAnalysis[Any]], int, int], ...] = (
        (
            f"explain {run.path} --draws {draws}{' --split test' if split else ''}{few}",
            ("Explanation",),
            lambda: explain.prepare(run, draws=draws, **split, **fewer),
            some * cohort * (DRAWS if run.config is not None else 1),
            some * (DRAWS - 1) if run.config is not None else 0,
        ),
        (
            f"plane {at} --clients --grid {GRID}{few}",
            ("Plane",),
            lambda: plane.prepare(at, clients=True, grid=GRID, **fewer),
            GRID**2 + cohort,
            0,
        ),
        (
            f"subsets {run.path} --rounds {last}{few}",
            ("Subsets",),
            lambda: subsets.prepare(run, rounds=last, **fewer),
            20 * cohort,
            0,
        ),
        (
            f"cka {run.path} --rounds {last}{few}",
            ("ClientCKA",),
            lambda: cka.prepare(run, rounds=last, **fewer),
            2 * cohort,
            0,
        ),
        *([at_home] if not split else []),
        *([nodes] if of_nodes else []),
        (
            f"line {run.path} --layers each --rounds {last}{few}",
            ("LayerRounds",),
            lambda: line.prepare(run, layers="each", rounds=last, **fewer),
            2 * layers * POINTS,
            0,
        ),
        (f"updates {run.path}", ("ClientUpdates",), lambda: updates.prepare(run), 0, 0),
        (f"updates {run.path} --layers each", ("LayerUpdates",), lambda: updates.prepare(run, layers="each"), 0, 0),
        *([(f"adapters {run.path}", ("AdapterMeans",), lambda: adapters.prepare(run), 0, 0)] if of_adapters else []),
    )
    there = {one.kind.name for one in results.results}
    found, refused = list[Lacking](), dict[str, str]()
    for words, kinds, prepare, evaluations, replays in wanted:
        if there & set(kinds):
            continue
        try:
            found.append(Lacking(words, kinds, prepare(), evaluations, replays))
        except FedscopeError as error:
            refused[words] = str(error)
    return found, refused


def _options(given: Mapping[str, Any]) -> str:
    """Settings as a command line has them; what is an object in Python is named by its class."""
    words = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, str(value) if isinstance(value, str | int | float) else type(value).__name__]
    return f" {shlex.join(words)}" if words else ""


def seconds(
    run: Run, asked: Sequence[Lacking], *limits: int | None, given: Mapping[str, Any] | None = None
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

    return [training + models(limit) + EACH * len(asked) for limit in limits or (None,)]


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
