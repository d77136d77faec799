"""What is said of the models that were recorded: clients, global, averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean

from ..factors.records import RoundFactors
from .comparing import Against, Comparison
from .intervals import above, finite, read, zero
from .records import Reading, Statement, Verdict
from .wording import ends, in_rounds, shown


def better_than_clients(run: str, compared: Sequence[Comparison], of: str = "") -> Statement | None:
    """The average of a round's clients against each of them on test data; None where that was not measured.

    Supported where its cross-entropy and its error are lower than every client's in each round, contradicted where in
    each round some client's cross-entropy or error is lower: by intervals of the differences that leave out 0, each at
    1 - 0.05 / C, so that those of the C clients hold together at 95 % (Bonferroni). `of` names the run that was
    measured, where `run` are several.
    """
    cases = [one for one in compared if one.model == "average" and one.others]
    if not cases:
        return None
    lower, higher, broken, readings = [], [], [], []
    for one in cases:
        loss = [gap(one, other, "loss") for other in one.others]
        error = [gap(one, other, "error") for other in one.others]
        if not all(finite(each) for each in (*loss, *error)):
            broken.append(one.round)
        elif all(above(zero(each), each) for each in (*loss, *error)):
            lower.append(one.round)
        elif any(above(each, zero(each)) for each in (*loss, *error)):
            higher.append(one.round)
        nearest = [max(found, key=lambda each: each.high or 0.0) for found in (loss, error)]
        readings += [
            Reading("test_loss", one.round, one.loss),
            Reading("test_error", one.round, one.error),
            *(replace(each, name=f"{each.name} (nearest)") for each in nearest),
        ]
    verdict: Verdict = "undecided"
    if len(lower) == len(cases):
        verdict = "supported"
    elif len(higher) == len(cases):
        verdict = "contradicted"
    said = "; ".join(_beside(one) for one in ends(cases))
    sentence = f"On {cases[-1].samples:,} test samples it has {said}."
    for words, numbers in (
        ("Both are lower than every client's, apart,", lower),
        ("Some client's cross-entropy or error is lower, apart,", higher),
        ("Losses are not finite", broken),
    ):
        sentence += f" {words} in {in_rounds(numbers)}." if numbers else ""
    decide = ""
    if verdict == "undecided":
        decide = (
            "Only rounds with finite losses can decide it."
            if broken
            else "Rounds between these would say where it changes."
            if lower and higher
            else "More test samples would make the intervals narrower."
        )
    return Statement(
        "better-than-clients",
        run,
        "On test data the average of the clients has a lower cross-entropy and a lower error than each of them",
        "On test data the mean of three clients has a lower loss and a lower error than each of the three (4.1).",
        verdict,
        f"Of the run {of} alone. {sentence}" if of else sentence,
        decide,
        tuple(readings),
    )


def _beside(one: Comparison) -> str:
    losses, errors = [other.loss for other in one.others], [100 * other.error for other in one.others]
    return (
        f"cross-entropy {one.loss:.3g} (its clients' {min(losses):.3g} at best, {fmean(losses):.3g} on average) and "
        f"error {100 * one.error:.3g} % ({min(errors):.3g} %, {fmean(errors):.3g} %) in round {one.round}"
    )


def gap(one: Comparison, other: Against, what: str) -> Reading:
    """A model's loss or error minus another's, with an interval over samples, the wider the more others there are."""
    value, stderr = getattr(other, f"{what}_gap"), getattr(other, f"{what}_stderr")
    half = _normal(len(one.others)) * stderr
    return Reading(f"test_{what}: {one.model} - {other.name}", one.round, value, value - half, value + half)


def _normal(intervals: int) -> float:
    """The quantile with which so many intervals hold together at 95 %."""
    from scipy.stats import norm

    return float(norm.ppf(1 - 0.025 / intervals))


def server_lowers(run: str, rounds: Sequence[RoundFactors]) -> Statement | None:
    """The recorded global model against the plain average; None where they are the same in every round."""
    steps = [value for one in rounds if finite(value := read(one, "server_step"))]
    if all(step.value == 0 for step in steps):
        return None
    of_global = [read(one, "global_loss") for one in rounds if finite(read(one, "server_step"))]
    said = "; ".join(f"{shown(step)} in round {step.round}" for step in ends(steps))
    exact = ", measured without draws, so exact on D" if all(step.half == 0 for step in steps) else ""
    return _signed(
        Statement(
            "server-step",
            run,
            "The server's step lowers the loss of the plain average",
            "Theorem 1 is of the plain average. FedNova, FedAdam, FedYogi and FedGMA are compared by accuracy alone "
            "(Table 1).",
            "undecided",
            f"Loss of the global model minus that of the plain average{exact}: {said}.",
            "",
            (*steps, *of_global),
        ),
        steps,
        "All of D, without --limit, would leave no error over samples.",
    )


def averaging_over_rounds(run: str, compared: Sequence[Comparison], of: str = "") -> Statement | None:
    """The average over rounds against the global model on test data, where both were recorded; else None."""
    cases = [one for one in compared if one.model == "averaged" and one.others]
    if not cases:
        return None
    losses = [gap(one, one.others[0], "loss") for one in cases]
    errors = [gap(one, one.others[0], "error") for one in cases]
    said = "; ".join(
        f"{one.loss:.3g} against the global model's {one.others[0].loss:.3g} (difference {shown(own)}, ± over "
        f"samples), error {100 * one.error:.3g} % against {100 * one.others[0].error:.3g} %, in round {one.round}"
        for one, own in ends(list(zip(cases, losses, strict=True)))
    )
    sentence = f"On {cases[-1].samples:,} test samples its cross-entropy is {said}."
    return _signed(
        Statement(
            "averaging-over-rounds",
            run,
            "On test data the average over rounds has a lower cross-entropy than the global model",
            "Between global models of different rounds the test loss is lower (Fig. 5b, c), and so it is between the "
            "FMA and the IMA model (Fig. 7c). Table 1 is another comparison: IMA, with restarts from the average and "
            "mild exploration, beats the same method without it.",
            "undecided",
            f"Of the run {of} alone. {sentence}" if of else sentence,
            "",
            (
                *(Reading("averaged_test_loss", one.round, one.loss) for one in cases),
                *(Reading("global_test_loss", one.round, one.others[0].loss) for one in cases),
                *losses,
                *errors,
            ),
        ),
        losses,
        "More test samples would make the intervals narrower.",
    )


def _signed(statement: Statement, changes: Sequence[Reading], narrow: str) -> Statement:
    """With the verdict: supported where every change is below 0, contradicted where every one is above. ``narrow``
    is what gives intervals that decide."""
    tests: dict[str, Callable[[Reading], bool]] = {
        "lower": lambda one: above(zero(one), one),
        "higher": lambda one: above(one, zero(one)),
    }
    held = {word: [one.round for one in changes if test(one)] for word, test in tests.items()}
    verdict: Verdict = "undecided"
    if len(held["lower"]) == len(changes):
        verdict = "supported"
    elif len(held["higher"]) == len(changes):
        verdict = "contradicted"
    counts = " and ".join(f"{word} in {len(numbers)}" for word, numbers in held.items())
    of = f"of {len(changes)} round{'s' if len(changes) > 1 else ''}"
    decide = ""
    if verdict == "undecided":
        known = all(one.value is not None and isfinite(one.value) for one in changes)
        mixed = bool(held["lower"]) and bool(held["higher"])
        decide = (
            "Only rounds with finite losses can decide it."
            if not known
            else "Runs with other seeds would say which way it goes on average."
            if mixed or all(one.half == 0 for one in changes)
            else narrow
        )
    return replace(
        statement,
        verdict=verdict,
        sentence=f"{statement.sentence} It is {counts} {of}.",
        decide=decide,
    )
