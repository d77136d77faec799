"""The first lines of a report: what the run is worth, what its loss is made of, whether averaging was good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checkpoints import Run
from ..checkpoints.io.errors import spans
from ..decomposition.explanation.result import Explanation
from ..decomposition.factors.result import Decomposition
from ..results import Result
from ..training.curves.measures import measure_of
from ..training.curves.result import Curves
from ..training.loop.verify_run import Soundness
from .clients import readable
from .discover import Beside

#: how far a client's error may be above its model's before averaging is said to have helped, in deviations over clients
_CLEAR = 1.0


@dataclass(frozen=True)
class Sentence:
    """A line of the verdict.

    Attributes:
        question: what it answers.
        answer: with numbers, and their errors where they have some.
        tone: ``good``, ``bad`` or ``open``; words say the same.
    """

    question: str
    answer: str
    tone: str = "open"


def verdict(run: Run, sound: Soundness, results: Beside) -> list[Sentence]:
    """Write what a co-author wants to know first."""
    return [
        soundness(run, sound),
        *outcome(run),
        *judge_average(run),
        *composition(results),
        describe_recorded(run),
    ]


def soundness(run: Run, sound: Soundness) -> Sentence:
    """Say whether the run's files are what was written."""
    asks = "Is the run sound?"
    if sound.faults:
        name, what = sound.faults[0]
        more = f" and {len(sound.faults) - 1} more" if len(sound.faults) > 1 else ""
        return Sentence(asks, f"No: {name}: {what}{more}.", "bad")
    lost = diverged_clients(run)
    if lost:
        rounds = _rounds(sorted(lost))
        clients = sorted({k for own in lost.values() for k in own})
        whose = f"client {clients[0]}" if len(clients) == 1 else f"{len(clients)} clients"
        return Sentence(asks, f"No: {whose} diverged (the training loss is not finite in {rounds}).", "bad")
    if sound.torn:
        return Sentence(asks, f"No: {sound.torn}.", "bad")
    short = "" if run.planned is None or run.planned <= sound.rounds else f" of {run.planned}"
    sums = f"{sound.checksums:,} checksums hold" if sound.checksums else "it has no checksums"
    return Sentence(
        asks, f"Yes: {sound.rounds}{short} rounds are there, {sums}, and they do not contradict each other.", "good"
    )


def diverged_clients(run: Run) -> dict[int, list[int]]:
    """By round the clients whose training loss is not finite."""
    found: dict[int, list[int]] = {}
    for round_ in readable(run):
        if not round_.has("client_loss"):
            continue
        own = round_.client_ids[~np.isfinite(round_.client_loss)].tolist()
        if own:
            found[round_.number] = own
    return found


def outcome(run: Run) -> list[Sentence]:
    """Return the error of the model that one would deploy."""
    curve = Curves.of([run]).runs[0]
    for name, spoken, unit in (("test_error", "has an error of", True), ("test_loss", "has a loss of", False)):
        mean, deviation, count = curve.tail(name)
        if not np.isfinite(mean):
            continue
        which = "averaged" if curve.averaged(name) is not None else "global"
        spread = "" if count == 1 else f" ± {100 * deviation:.1f}" if unit else f" ± {deviation:.2g}"
        value = f"{100 * mean:.1f}{spread} % of the test data" if unit else f"{mean:.3g}{spread}"
        last = curve.measured(measure_of(name))[0][-1]
        over = f"mean ± deviation over the last {count} measured rounds" if count > 1 else f"round {last}"
        return [Sentence("How good is it?", f"The {which} model {spoken} {value} ({over}).")]
    return [Sentence("How good is it?", "Nothing was measured on test data while it was trained.")]


def judge_average(run: Run) -> list[Sentence]:
    """Compare the error of the average with that of what was averaged."""
    curve = Curves.of([run]).runs[0]
    own, clients, spread = (curve.column(name) for name in ("test_error", "client_error_mean", "client_error_std"))
    there = np.flatnonzero(np.isfinite(own) & np.isfinite(clients))
    asks = "Was averaging good?"
    if not len(there):
        return [Sentence(asks, "Not known: the clients' models were not measured while it was trained.")]
    at = there[-1]
    gain, scatter = clients[at] - own[at], spread[at]
    beside = (
        f"{100 * own[at]:.1f} %; the clients have {100 * clients[at]:.1f} ± {100 * scatter:.1f} % (mean ± deviation)"
    )
    text = f"in round {curve.round[at]} the average of the clients has an error of {beside}."
    better = int((clients[there] > own[there]).sum())
    count = f" It was better than their mean in {better} of {len(there)} measured rounds."
    if gain > _CLEAR * scatter:
        return [Sentence(asks, f"Yes: {text}{count}", "good")]
    if gain < -_CLEAR * scatter:
        return [Sentence(asks, f"No: {text}{count}", "bad")]
    return [Sentence(asks, f"Too close to say: {text}{count}")]


def composition(results: Beside) -> list[Sentence]:
    """Return the first claim of a page on the factors, and how many of its claims hold; else the decomposition's
    sentence."""
    asks = "What dominates the loss?"
    explained = [one.result for one in results.results if isinstance(one.result, Explanation)]
    if explained:
        page = explained[-1]
        said = [one for one in page.statements if one.claim.startswith("greatest-part")] or list(page.statements)
        counts = {word: sum(one.verdict == word for one in page.statements) for word in ("supported", "contradicted")}
        counts["undecided"] = len(page.statements) - sum(counts.values())
        held = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
        return [
            Sentence(asks, f"{said[-1].title}: {said[-1].sentence} ({len(page.statements)} statements below: {held}.)")
        ]
    factors: list[Result] = [one.result for one in results.results if isinstance(one.result, Decomposition)]
    if factors:
        return [Sentence(asks, f"{factors[-1].summary().splitlines()[-1]}.")]
    return [Sentence(asks, "Not measured: fedscope explain RUN says it.")]


def describe_recorded(run: Run) -> Sentence:
    """Of which rounds the clients were kept, because that bounds what can be asked."""
    rounds = readable(run)
    whole = [one.number for one in rounds if one.has_clients]
    some = [one.number for one in rounds if one.has_sample]
    sketched = [one.number for one in rounds if one.has_sketch]
    parts = [f"all clients' models of {_rounds(whole)}"] if whole else []
    parts += [f"some clients' models of {_rounds(some)}"] if some else []
    parts += [f"sketches of {_rounds(sketched)}"] if sketched else []
    text = f"{_join_words(parts)}." if parts else "no clients' models; what needs them cannot be asked."
    return Sentence("What was kept?", text[0].upper() + text[1:])


def _rounds(numbers: list[int]) -> str:
    return f"round{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _join_words(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
