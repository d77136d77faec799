"""What the loss of the averaged model is made of in a phase of training."""

from __future__ import annotations

from math import isfinite

from ..factors.records import RoundFactors
from .intervals import above, broken, finite, magnitude, read, size, zero
from .phases import Phase
from .records import Reading, Statement, Verdict
from .wording import (
    CANNOT,
    NAMES,
    capital,
    ends,
    in_rounds,
    is_local,
    listed,
    narrower,
    share,
    shown,
    splitting,
)

LATER = "After early training heterogeneous bias and O(Δ²), which adds to the loss, dominate it (5.3.5)."
EARLY = "What dominates is said of the rounds after early training, not of these."
AWAY = "Below 0, it takes away from the loss, which disagrees with the reading that O(Δ²) adds to it (5.3.2)."


def parts_of(one: RoundFactors) -> tuple[str, ...]:
    """The factors that are compared: without a split of the bias the whole of it; with replays no covariance, which is
    0 by construction."""
    biases = ("heter_bias", "train_bias", "bias_cross") if one.split else ("bias",)
    covariance = () if is_local([one]) else ("covariance",)
    return (*biases, "variance", *covariance, "locality")


def greatest_part(run: str, phase: Phase, split: str = "") -> Statement:
    """Early: supported where one factor's |value| is apart from every other one's in each round of the phase. Later:
    supported where in each round heterogeneous bias, or a locality above 0, is apart from all others but these two;
    contradicted where in each another factor, or a locality below 0, is apart from these. ``split`` is what was
    measured on."""
    early = phase.name == "early"
    what = "one factor" if early else "heterogeneous bias, or a locality above 0,"
    readings: list[Reading] = []
    firsts: dict[str, list[int]] = {}
    stands: set[bool] = set()
    away = False
    doubts: list[str] = []
    remedies: list[str] = []
    for one in phase.rounds:
        parts = [read(one, name) for name in parts_of(one)]
        readings += [*parts, read(one, "ensemble_loss"), read(one, "fma_loss")]
        without = [part for part in parts if not finite(part)]
        if without:
            names = listed([NAMES[part.name] for part in without])
            doubts.append(f"in round {one.round} there is no finite value of {names}")
            remedies = [CANNOT] if any(broken(part) for part in without) else remedies
            continue
        # Not the next in value: a smaller one may have the wider interval.
        first, *others = sorted(parts, key=size, reverse=True)
        firsts.setdefault(first.name, []).append(one.round)
        stands.add(expected(first))
        away = away or (first.name == "locality" and not expected(first))
        whole = early or not one.split
        rivals = others if whole else [other for other in others if expected(other) != expected(first)]
        near = [other for other in rivals if not above(magnitude(first), magnitude(other))]
        if near:
            both = f"{NAMES[first.name]} ({shown(first)}) and {NAMES[near[0].name]} ({shown(near[0])})"
            doubts.append(f"in round {one.round} {both} are not apart")
    several = len(firsts) > 1 if early else len(stands) > 1
    places = listed([f"{NAMES[name]} in {in_rounds(rounds)}" for name, rounds in firsts.items()]) if firsts else ""
    if several:
        doubts.insert(0, f"the greatest is {places}")
    verdict: Verdict = "undecided"
    decide = ""
    if not phase.rounds:
        sentence = "No round of this phase is decomposed."
        numbers = f"with a number from {phase.first} to {phase.last}" if phase.first < phase.last else str(phase.last)
        decide = f"Decompose {'one of them' if phase.first < phase.last else 'it'}: --rounds {numbers}."
    elif doubts:
        sentence = capital("; ".join(doubts)) + "."
        if several:
            remedies.append("Rounds between these would say where it changes.")
        decide = " ".join(remedies) or narrower(phase.rounds)
    else:
        name = next(iter(firsts))
        sentence = (
            f"{capital(NAMES[name])} is the greatest part{_throughout(phase)}: "
            f"{'; '.join(_made_of(one, name) for one in ends(phase.rounds))}."
            if len(firsts) == 1
            else f"The greatest part is {places}."
        )
        if name == "bias" and not early:
            decide = f"The bias is not split here, into own data and others'. {splitting(split, 'splits it')}"
        else:
            verdict = "supported" if early or True in stands else "contradicted"
    if away and not early:
        sentence += f" {AWAY}"
    return Statement(
        f"greatest-part/{phase.name}",
        run,
        f"{capital(phase.name)} ({phase.span}): {what} is the greatest part of the loss",
        EARLY if early else LATER,
        verdict,
        sentence,
        decide,
        tuple(readings),
    )


def expected(part: Reading) -> bool:
    """Whether the paper names it as dominating later: heterogeneous bias, or a locality that adds to the loss."""
    return part.name == "heter_bias" or (part.name == "locality" and (part.value or 0.0) > 0)


def _throughout(phase: Phase) -> str:
    numbers = [one.round for one in phase.rounds]
    return f" in {in_rounds(numbers)}" if len(numbers) > 1 else ""


def _made_of(one: RoundFactors, name: str) -> str:
    """`0.238 ± 0.003 of the ensemble's 0.238 (100 %) in round 60, where locality takes 0.184 ± 0.002 away again`."""
    value, ensemble, locality = read(one, name), read(one, "ensemble_loss"), read(one, "locality")
    assert value.value is not None, "only factors with a value are ranked"
    whole = ensemble.value
    beside = whole is not None and isfinite(whole) and whole > 0
    of = f" {'beside' if name == 'locality' else 'of'} the ensemble's {whole:.3g}" if beside else ""
    part = f" ({share(value.value, whole)})" if beside and whole is not None and name != "locality" else ""
    said = f"{shown(value)}{of}{part} in round {one.round}"
    if name == "locality":
        return said
    if above(zero(locality), locality):
        return f"{said}, where locality takes {shown(magnitude(locality))} away again"
    if above(locality, zero(locality)):
        return f"{said}, where locality adds {shown(locality)}"
    return f"{said}, where locality is {shown(locality)}"
