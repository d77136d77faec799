"""The first lines of a report: what the run is worth, what its loss is made of, whether averaging was good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoints import Round, Run, Weights, has_no_server, read_columns, weighted_mean
from ..checkpoints.io.errors import spans
from ..checkpoints.recorder.identify_server import Rule, ServerStep
from ..checkpoints.runs.measured_numbers import is_number
from ..decomposition.consensus.result import Consensus
from ..decomposition.explanation.dominant_factor import parts_of
from ..decomposition.explanation.intervals import Reading, above, finite, magnitude, read, size
from ..decomposition.explanation.result import Explanation
from ..decomposition.explanation.statements import Statement
from ..decomposition.explanation.wording import NAMES, capital, spell
from ..decomposition.factors.result import Decomposition, RunFactors
from ..decomposition.factors.rows import FACTORS_OF, RoundFactors, is_recorded
from ..training.curves.diverged import lost_in
from ..training.curves.measures import measure_of
from ..training.curves.result import Curves
from ..training.curves.run_curve import Curve
from ..training.loop.run_history import config_at, segments
from ..training.loop.verify_run import Soundness
from ..training.settings.registry import method_name
from .average_and_clients import find_comparison
from .clients import readable
from .discover import Beside
from .run_tasks import has_classes, has_error

#: how far a client's error may be above its model's before averaging is said to have helped, in deviations over clients
_CLEAR = 1.0
#: a mean that another program has made differs from ours by this share of its length, at most
_ROUNDING = 1e-4


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
        *outcome(run, results),
        *judge_average(run, results),
        *(describe_nodes(run, results) if has_no_server(run) else composition(run, results)),
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


def outcome(run: Run, results: Beside) -> list[Sentence]:
    """Return the error of the model that one would deploy; where nothing was measured round by round, that of the
    average of a round's clients, as a result has it."""
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
        if curve.stale_at(measure_of(name)) is not None:
            over += f"; those after round {last} of {int(curve.round[-1])} are missing or not finite"
        if (lost := lost_in(curve, measure_of(name))) is not None:
            over += f"; it {lost.words}"
        return [Sentence("How good is it?", f"The {which} model {spoken} {value} ({over}).")]
    lacks = "Nothing was measured on test data round by round (fedscope measure RUN does it)."
    if has_no_server(run):
        lacks = "There is no server whose model one would deploy."
    if (found := find_comparison(run, results)) is not None:
        lacks += f" By {found.source}, {found.words.partition(';')[0]}."
    return [Sentence("How good is it?", lacks)]


def judge_average(run: Run, results: Beside) -> list[Sentence]:
    """Compare the error of the average with that of what was averaged: as the table of metrics has it, where the
    server's model is the average; else as a result of the run has."""
    curve = Curves.of([run]).runs[0]
    own, clients, spread = (curve.column(name) for name in ("test_error", "client_error_mean", "client_error_std"))
    there = np.flatnonzero(np.isfinite(own) & np.isfinite(clients))
    asks = "Was averaging good?"
    if len(there):
        cohorts = curve.column("participants")[there]
        if (cohorts == 1).all() and not has_no_server(run):
            return [Sentence(asks, "Not known: one client took part in each round, so no clients were averaged.")]
        there = there[cohorts != 1]
    if not len(there):
        return [Sentence(asks, *_judge_by_results(run, results))]
    servers = servers_beyond_mean(run, curve, [int(curve.round[i]) for i in there])
    at = there[-1]
    gain, scatter = clients[at] - own[at], spread[at]
    beside = (
        f"{100 * own[at]:.1f} %; the clients have {100 * clients[at]:.1f} ± {100 * scatter:.1f} % (mean ± deviation"
        f"{_name_fewer(run, int(curve.round[at]))})"
    )
    server = servers[int(curve.round[at])]
    if server and find_comparison(run, results) is not None:
        return [Sentence(asks, *_judge_by_results(run, results))]
    if server:
        text = f"in round {curve.round[at]} the server's model ({server}) has an error of {beside}"
        return [Sentence(asks, f"Not known of the clients' mean, which fedscope subsets RUN measures: {text}.")]
    text = f"in round {curve.round[at]} the average of the clients has an error of {beside}."
    means = [i for i in there if not servers[int(curve.round[i])]]
    better = sum(bool(clients[i] > own[i]) for i in means)
    count = f" It was better than their mean in {better} of {len(means)} measured rounds."
    answer, tone = _judge(gain, scatter)
    return [Sentence(asks, f"{answer}: {text}{count}", tone)]


def servers_beyond_mean(run: Run, curve: Curve, numbers: Sequence[int]) -> dict[int, str]:
    """Name of each round the server whose ``global`` is another model than the mean of the round's clients; "" where it
    is their mean.

    Of a recorded loop that is what was found when it was recorded, of rounds whose files are gone, too. Where nobody
    looked, as in an import, the last of these rounds that is there is compared, and speaks for all.
    """
    if run.config is not None:
        parts = segments(run)
        methods = {t: method_name(next(config for last, config in parts if t <= last).server) for t in numbers}
        return {t: "" if method == "fma" else method for t, method in methods.items()}
    found: dict[int, str] = {}
    for i, t in enumerate(curve.round.tolist()):
        step = ServerStep.of_metrics({name: curve.column(name)[i] for name in ServerStep(Rule.MEAN).metrics()})
        if t in numbers and step is not None:
            found[t] = "" if step.rule is Rule.MEAN else str(step)
    if len(found) < len(numbers):
        there = [t for t in numbers if t in run.rounds]
        unknown = "" if there and _is_mean(run.round(there[-1])) else "what it does is not known"
        found |= {t: unknown for t in numbers if t not in found}
    return found


def _is_mean(round_: Round) -> bool:
    """Check whether ``global`` is the recorded mean of the round's clients, up to the rounding of float32."""
    if not round_.has_clients or "global" not in round_.models:
        return False
    recorded, apart, size = round_.read("global").parameters, 0.0, 0.0
    for block in read_columns(round_):
        made = weighted_mean(Weights(round_.layout, block.values, {}), round_.weights).parameters
        there = recorded[block.where].astype(np.float64)
        apart += float(np.square(there - made).sum())
        size += float(np.square(there).sum())
    return bool(apart <= _ROUNDING**2 * size)


def _name_fewer(run: Run, number: int) -> str:
    """Say on which test samples the clients of a round were measured, where the average was not on the same."""
    own, whole = (_find_samples(run, number, name) for name in ("client_error_mean", "test_error"))
    if own is None or own == whole:
        return ""
    if whole is None:
        return f"; the clients on {own[0]:,} test samples"
    if whole[1] is None and own[0] < whole[0]:  # drawn of all
        return f"; on {own[0]:,} of {whole[0]:,} test samples"
    if own[0] == whole[0]:
        return f"; on {own[0]:,} test samples each, not the same"
    return f"; the clients on {own[0]:,} test samples, the average on {whole[0]:,}"


def _find_samples(run: Run, number: int, column: str) -> tuple[int, int | None] | None:
    """On how many test samples a round's number was measured, and the seed that drew them, None of all: afterwards, as
    ``measured.json`` has it, or while it was trained. None where nobody says it."""
    for one in run.measured.measurements:
        if is_number(one.rows.get(number, {}).get(column)):
            count, seed = one.settings.get("samples"), one.settings.get("seed")
            return (count, seed) if isinstance(count, int) else None
    whole = run.info.get("data", {}).get("test")
    if run.config is None or not isinstance(whole, int):
        return None
    if column == "test_error":
        return whole, None
    trained = config_at(run, number).run
    count = min(trained.evaluate_clients, whole)
    return (count, None if count == whole else trained.seed) if count else None


def _judge(gain: float, scatter: float) -> tuple[str, str]:
    """Whether averaging has helped, by how far the clients' error is above the average's, and the tone of it."""
    if gain > _CLEAR * scatter:
        return "Yes", "good"
    if gain < -_CLEAR * scatter:
        return "No", "bad"
    return "Too close to say", "open"


def _judge_by_results(run: Run, results: Beside) -> tuple[str, str]:
    """Answer whether averaging was good from the results of a run, and the tone of it."""
    found = find_comparison(run, results)
    if found is not None:
        answer, tone = _judge(found.mean - found.average, found.deviation)
        return f"{answer}: {found.words}.", tone
    for result in (one.result for one in results.results):
        said = find_statements(run, result) if isinstance(result, Explanation) else []
        for one in (own for own in said if own.claim == "better-than-clients" and own.verdict != "undecided"):
            held = one.verdict == "supported"
            return f"{'Yes' if held else 'No'}: {one.title}: {one.verdict}. {one.sentence}", "good" if held else "bad"
    if has_no_server(run):
        return "Not known: the mean of the nodes was not measured (fedscope subsets RUN does it).", "open"
    asks = "measure RUN --clients" if has_error(run) else "subsets RUN"  # the table of metrics has no losses of clients
    return f"Not known: the clients' models were not measured (fedscope {asks} does it).", "open"


def find_statements(run: Run, page: Explanation) -> list[Statement]:
    """Return the statements of a page on one of its runs; all of them where none is on it alone."""
    own = [one for one in page.statements if one.run == run.name]
    return own or list(page.statements)


def composition(run: Run, results: Beside) -> list[Sentence]:
    """Return the first claim of a page on the factors, and how many of its claims hold; else which factor of a
    decomposition is the greatest part."""
    asks = "What dominates the loss?"
    explained = [one.result for one in results.results if isinstance(one.result, Explanation)]
    if explained:
        page = explained[-1]
        about = find_statements(run, page)
        said = [one for one in about if one.claim.startswith("greatest-part")] or about
        counts = {word: sum(one.verdict == word for one in page.statements) for word in ("supported", "contradicted")}
        counts["undecided"] = len(page.statements) - sum(counts.values())
        held = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
        one = said[-1]
        errors = _name_errors(one.sentence, [it for part in page.decomposition.runs for it in part.rounds])
        return [
            Sentence(asks, f"{one.title}: {one.sentence}{errors} ({len(page.statements)} statements below: {held}.)")
        ]
    factors = [one.result for one in results.results if isinstance(one.result, Decomposition)]
    own = [part for one in factors for part in one.runs if part.run == run.name and part.rounds]
    if own:
        return [Sentence(asks, describe_greatest_part(own[-1]))]
    return [Sentence(asks, f"Not measured: fedscope {'explain' if has_classes(run) else 'decompose'} RUN says it.")]


def describe_nodes(run: Run, results: Beside) -> list[Sentence]:
    """Say of a run without a server how far its nodes are apart, in place of factors, which are of one start."""
    asks = "How far are the nodes apart?"
    found = [one.result.only(run.name) for one in results.results if isinstance(one.result, Consensus)]
    if rounds := [one for one in found if one.rounds]:
        return [Sentence(asks, f"{capital(rounds[-1].summary().removeprefix(f'{run.name}, '))}.")]
    return [Sentence(asks, "Not measured: fedscope consensus RUN says it.")]


def describe_greatest_part(factors: RunFactors) -> str:
    """Say in a sentence which factor of the last decomposed round is the greatest part of the loss, and the next one;
    where their intervals are not apart, that they are not."""
    one = factors.rounds[-1]
    names = parts_of(one) if one.loss == "squared" else FACTORS_OF[one.loss][:2]
    parts = sorted(filter(finite, (read(one, name) for name in names)), key=size, reverse=True)
    loss = read(one, "fma_loss")
    of = f" The average of the clients has a loss of {spell(loss)}." if finite(loss) else ""
    which = "" if factors.model == "global" else f" ({factors.model})"
    if not parts:
        return f"Not known: in round {one.round}{which} no factor of the loss has a finite value.{of}" + _name_errors(
            of, [one]
        )
    first, *others = parts
    near = [other for other in others if not above(magnitude(first), magnitude(other))]
    if near and first.low is not None:
        said = (
            f"In round {one.round}{which} {_name_part(first)} and {_name_part(near[0])} are the greatest parts of the "
            f"loss, and not apart.{of}"
        )
    else:
        then = f"; next is {_name_part(others[0])}" if others else ""
        said = f"{capital(_name_part(first))} is the greatest part of the loss in round {one.round}{which}{then}.{of}"
    return said + _name_errors(said, [one])


def _name_errors(sentence: str, rounds: Sequence[RoundFactors]) -> str:
    """Say what the ± of sentences on factors is, behind them; nothing where they have none, or say it themselves."""
    if " ± " not in sentence or "± over" in sentence or "± is over" in sentence:
        return ""
    over = "samples" if is_recorded(rounds) else "draws"
    if over == "draws" and not all(one.population for one in rounds):
        over = "draws and samples"
    return f" ± is half a 95 % interval over {over}."


def _name_part(one: Reading) -> str:
    """A factor with its value; one below 0 takes away from the loss."""
    away = ", which takes it away" if one.value is not None and one.value < 0 else ""
    return f"{NAMES[one.name]} ({spell(one)}{away})"


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
