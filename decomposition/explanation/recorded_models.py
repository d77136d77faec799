"""Statements on the models that were recorded: clients, global, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, isnan, nan
from statistics import fmean
from typing import TYPE_CHECKING

from ..factors.rows import RoundFactors
from .intervals import Reading, finite, order, quantile, read, size
from .statements import Evidence, Judgement, throughout
from .wording import CHANGES, capital, ends, in_rounds, list_words, narrower, spell

if TYPE_CHECKING:
    from .context_measures import Against, ModelComparison

# What is called small, of a measure from 0 to 1: ours.
HALF = 0.5
# Of a loss: what rounding an average's parameters once more changes.
ROUNDING = 1e-6
LOST = "Only rounds with finite losses can decide it."


def better_than_clients(evidence: Evidence) -> Judgement | None:
    """Judge the average of a round's clients against each of them on test data; None where that was not measured.

    Supported where its cross-entropy and its error are lower than every client's in each round, contradicted where in
    each round some client's cross-entropy or error is lower: by intervals of the differences that leave out 0, each at
    1 - 0.05 / C, so that those of the C clients hold together at 95 % (Bonferroni).
    """
    cases = [one for one in evidence.compared if one.model == "average" and one.others]
    if not cases:
        return None
    signs: dict[int, int | None] = {}
    readings: list[Reading] = []
    for one in cases:
        of_all = [[gap(one, other, what) for other in one.others] for what in ("loss", "error")]
        each = [difference for gaps in of_all for difference in gaps]
        greatest = max(map(order, each))
        lost = not all(finite(difference) for difference in each)
        signs[one.round] = None if lost else 1 if greatest < 0 else -1 if greatest > 0 else 0
        nearest = [max(gaps, key=_greatest) for gaps in of_all]
        readings += [
            Reading("test_loss", one.round, one.loss),
            Reading("test_error", one.round, one.error),
            *(replace(difference, name=f"{difference.name} (nearest)") for difference in nearest),
        ]
    sentence = f"On {cases[-1].samples:,} test samples it has {'; '.join(_against_words(one) for one in ends(cases))}."
    for words, sign in (
        ("Both are lower than every client's, apart,", 1),
        ("Some client's cross-entropy or error is lower, apart,", -1),
        ("Losses are not finite", None),
    ):
        numbers = [number for number, its in signs.items() if its == sign]
        sentence += f" {words} in {in_rounds(numbers)}." if numbers else ""
    decide = "More test samples would make the intervals narrower."
    if None in signs.values():
        decide = LOST
    elif {1, -1} <= set(signs.values()):
        decide = CHANGES
    return Judgement(throughout(list(signs.values())), evidence.measured(sentence), decide, readings)


def _against_words(one: ModelComparison) -> str:
    losses, errors = [other.loss for other in one.others], [100 * other.error for other in one.others]
    return (
        f"cross-entropy {one.loss:.3g} (its clients' {_least(losses):.3g} at best, {fmean(losses):.3g} on average) and "
        f"error {100 * one.error:.3g} % ({_least(errors):.3g} %, {fmean(errors):.3g} %) in round {one.round}"
    )


def _least(values: Sequence[float]) -> float:
    """The least of the numbers among values; NaN where there is none."""
    return min((value for value in values if not isnan(value)), default=nan)


def _greatest(difference: Reading) -> float:
    """What orders differences by their upper end; those that are not finite come last."""
    high = difference.high or 0.0
    return high if isfinite(high) else -inf


def gap(one: ModelComparison, other: Against, what: str) -> Reading:
    """A model's loss or error minus another's, with an interval over samples, so wide that those of all others hold
    together at 95 %. None where all samples have one and the same difference, but 0: these are too few."""
    from scipy.stats import norm

    value, stderr = getattr(other, f"{what}_gap"), getattr(other, f"{what}_stderr")
    if stderr == 0 and value != 0:
        return Reading(f"test_{what}: {one.model} - {other.name}", one.round, value)
    half = float(norm.ppf(1 - 0.025 / len(one.others))) * stderr
    return Reading(f"test_{what}: {one.model} - {other.name}", one.round, value, value - half, value + half)


def server_lowers(evidence: Evidence) -> Judgement | None:
    """Judge the recorded global model against the plain average; None where they are the same in every round, up to
    what another program's rounding of the average changes."""
    known = [one for one in evidence.rounds if finite(read(one, "server_step"))]
    steps = [read(one, "server_step") for one in known]
    losses = [read(one, "global_loss") for one in known]
    if all(size(step) <= ROUNDING * size(loss) for step, loss in zip(steps, losses, strict=True)):
        return None
    first_last = "; ".join(f"{spell(step)} in round {step.round}" for step in ends(steps))
    exact = ", measured without draws, so exact on D" if all(step.half == 0 for step in steps) else ""
    sentence = f"Loss of the global model minus that of the plain average{exact}: {first_last}."
    narrow = "All of D, without --limit, would leave no error over samples."
    if any(one.draws == "runs" for one in known):  # of which each has its own global model
        narrow = narrower(known, steps, replays=evidence.replays)
    return _format_signed(sentence, steps, narrow, (*steps, *losses))


def averaging_over_rounds(evidence: Evidence) -> Judgement | None:
    """Judge the average over rounds against the global model on test data, where both were recorded; else None."""
    cases = [one for one in evidence.compared if one.model == "averaged" and one.others]
    if not cases:
        return None
    losses, errors = ([gap(one, one.others[0], what) for one in cases] for what in ("loss", "error"))
    first_last = "; ".join(
        f"{one.loss:.3g} against the global model's {one.others[0].loss:.3g} (difference {spell(loss)}, ± over "
        f"samples), error {100 * one.error:.3g} % against {100 * one.others[0].error:.3g} %, in round {one.round}"
        for one, loss in ends(list(zip(cases, losses, strict=True)))
    )
    sentence = f"On {cases[-1].samples:,} test samples its cross-entropy is {first_last}."
    readings = (
        *(Reading("averaged_test_loss", one.round, one.loss) for one in cases),
        *(Reading("global_test_loss", one.round, one.others[0].loss) for one in cases),
        *(*losses, *errors),
    )
    narrow = "More test samples would make the intervals narrower."
    return _format_signed(evidence.measured(sentence), losses, narrow, readings)


def _format_signed(sentence: str, changes: Sequence[Reading], narrow: str, readings: Sequence[Reading]) -> Judgement:
    """Supported where every change is below 0, contradicted where every one is above. ``narrow`` is what gives
    intervals that decide."""
    signs = [-order(one) for one in changes]
    counts = f"lower in {signs.count(1)} and higher in {signs.count(-1)}"
    decide = narrow
    if not all(one.value is not None and isfinite(one.value) for one in changes):
        decide = LOST
    elif {1, -1} <= set(signs) or all(one.half == 0 for one in changes):
        decide = "Runs with other seeds would say which way it goes on average."
    sentence = f"{sentence} It is {counts} of {len(changes)} round{'s' if len(changes) > 1 else ''}."
    return Judgement(throughout(signs), sentence, decide, readings)


def outputs_differ(evidence: Evidence) -> Judgement | None:
    """Judge whether the clients' mean similarity (CKA) is below one half in every round, contradicted where it is above
    in every one: 95 % by t on B - 1 degrees of freedom of the jackknife over B minibatches; None where it was not
    measured."""
    if evidence.similarity is None:
        return None
    values = []
    for number, mean, error, batches in sorted(evidence.similarity):
        half = None if error is None else quantile(batches - 1) * error
        interval = (None, None) if half is None else (mean - half, mean + half)
        values.append(Reading("similarity", number, mean, *interval))
    middle = Reading("one half", None, HALF, HALF, HALF)
    signs = [order(middle, value) for value in values]
    if values:
        first_last = list_words([f"{spell(value)} in round {value.round}" for value in ends(values)])
        sentence = f"Their mean CKA is {first_last}."
        for sign, words in ((1, "below"), (-1, "above")):
            numbers = [value.round for value, its in zip(values, signs, strict=True) if its == sign and value.round]
            sentence += f" It is {words} one half in {in_rounds(numbers)}." if numbers else ""
        if any(value.half is not None for value in values):
            sentence += " Here ± is over minibatches of samples, of the recorded clients alone."
        decide = CHANGES if {1, -1} <= set(signs) else "More samples would make the intervals narrower."
    else:
        sentence, decide = "It has a value in no round.", _another(evidence.rounds)
    return Judgement(throughout(signs), evidence.measured(sentence), decide, values)


def _another(rounds: Sequence[RoundFactors]) -> str:
    """Say what would decide it, where no decomposed round has a value."""
    alone = [one.round for one in rounds if len(one.clients) == 1]
    if len(alone) == len(rounds):
        return f"{capital(in_rounds(alone))} had one client; rounds with two clients or more would decide it."
    return "Rounds would decide it whose outputs are finite and not the same for all samples."
