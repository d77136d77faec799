"""The greatest factor: of the loss in a phase of training, and of the difference between two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from ...checkpoints.io.errors import spans
from ..factors.fixed import is_replayed
from ..factors.rows import RoundFactors, is_recorded
from .intervals import Reading, above, broken, clients_differ, finite, magnitude, order, read, size, subtract
from .phases import Phase
from .statements import Evidence, Judgement, Statement, Verdict
from .wording import (
    CANNOT,
    CHANGES,
    NAMES,
    capital,
    ends,
    in_rounds,
    label,
    list_words,
    narrower,
    share,
    spell,
    split_hint,
    too_few_before,
)

AWAY = "Below 0, it takes away from the loss, which disagrees with the reading that O(Δ²) adds to it (5.3.2)."
SEEDS = " One run each says nothing about other seeds."


def parts_of(one: RoundFactors) -> tuple[str, ...]:
    """Return the factors that are compared: without a split of the bias the whole of it; with replays no covariance,
    which is 0 by construction; of the recorded models alone neither variance nor covariance."""
    biases = ("heter_bias", "train_bias", "bias_cross") if one.split else ("bias",)
    if is_recorded([one]):
        return (*biases, "locality")
    covariance = () if is_replayed([one]) else ("covariance",)
    return (*biases, "variance", *covariance, "locality")


def greatest_part(evidence: Evidence, name: str) -> Judgement | None:
    """Judge the greatest part of a phase; None where the run has no such phase.

    Early: supported where one factor's |value| is apart from every other one's in each round of the phase. Later:
    supported where in each round heterogeneous bias, or a locality above 0, is apart from all others but these two;
    contradicted where in each another factor, or a locality below 0, is apart from these.
    """
    phase = evidence.phase(name)
    if phase is None:
        return None
    early = name == "early"
    readings: list[Reading] = []
    firsts: dict[str, list[int]] = {}
    stands: set[bool] = set()
    away = False
    doubts: list[str] = []
    remedies: list[str] = []
    for one in phase.rounds:
        parts = [read(one, factor) for factor in parts_of(one)]
        readings += [*parts, read(one, "ensemble_loss"), read(one, "fma_loss")]
        without = [part for part in parts if not finite(part)]
        if without:
            names = list_words([NAMES[part.name] for part in without])
            doubts.append(f"in round {one.round} there is no finite value of {names}")
            remedies = [CANNOT] if any(broken(part) for part in without) else remedies
            continue
        # Not the next in value: a smaller one may have the wider interval.
        first, *others = sorted(parts, key=size, reverse=True)
        firsts.setdefault(first.name, []).append(one.round)
        stands.add(is_expected(first))
        away = away or (first.name == "locality" and not is_expected(first))
        whole = early or not one.split
        rivals = others if whole else [other for other in others if is_expected(other) != is_expected(first)]
        near = [other for other in rivals if not above(magnitude(first), magnitude(other))]
        if near:
            both = f"{NAMES[first.name]} ({spell(first)}) and {NAMES[near[0].name]} ({spell(near[0])})"
            doubts.append(f"in round {one.round} {both} are not apart")
    several = len(firsts) > 1 if early else len(stands) > 1
    places = list_words([f"{NAMES[factor]} in {in_rounds(rounds)}" for factor, rounds in firsts.items()] or [""])
    if several:
        doubts.insert(0, f"the greatest is {places}")
        remedies.append(CHANGES)
    verdict: Verdict = "undecided"
    decide = ""
    if not phase.rounds:
        sentence = "No round of this phase is decomposed."
        decide = _missing_rounds(evidence, phase)
    elif doubts:
        sentence = capital("; ".join(doubts)) + "."
        decide = " ".join(remedies) or narrower(phase.rounds, replays=evidence.replays)
    elif len(firsts) > 1:
        sentence = f"The greatest part is {places}."
    else:
        (factor,) = firsts
        when = f" in {in_rounds(firsts[factor])}" if len(firsts[factor]) > 1 else ""
        made_of = "; ".join(_made_of(one, factor) for one in ends(phase.rounds))
        sentence = f"{capital(NAMES[factor])} is the greatest part{when}: {made_of}."
    if phase.rounds and not doubts:
        # of an unsplit bias nothing is told, early or later: without draws it is all of the ensemble by definition
        if "bias" in firsts:
            decide = f"The bias is not split here, into own data and others'. {split_hint(evidence.split, 'splits it')}"
        else:
            verdict = "supported" if early or True in stands else "contradicted"
    if away and not early:
        sentence += f" {AWAY}"
    when = f"{phase.name.capitalize()} ({phase.span})" if len(evidence.phases) > 1 else "In the only round"
    return Judgement(verdict, sentence, decide, readings, {"when": when})


def _missing_rounds(evidence: Evidence, phase: Phase) -> str:
    """Say how a phase comes to a decomposed round: of a run that goes on its rounds may not be there yet, and of others
    the clients may not be there.

    The run is named beside them, because ``RUN@2`` goes with no other rounds.
    """
    last, kept = evidence.there(phase), evidence.kept_in([phase])
    if last < phase.first:
        so_far = "1 round" if evidence.recorded == 1 else f"{evidence.recorded} rounds"
        return f"The run has {so_far} so far; a longer one would decide it."
    if not kept and (undrawn := evidence.undrawn_in([phase])):
        return f"{capital(too_few_before(undrawn, evidence.rounds))}."
    if not kept:
        return "No round of it has its clients recorded; a run that keeps them there would decide it."
    if len(kept) == 1:
        return f"Decompose {'it' if phase.first == last else 'the one with its clients'}: RUN --rounds {kept[0]}."
    if len(kept) == last - phase.first + 1:
        return f"Decompose one of them: RUN --rounds with a number from {phase.first} to {last}."
    return f"Decompose one of those with their clients: RUN --rounds with a number of {spans(kept)}."


def is_expected(part: Reading) -> bool:
    """Tell whether the paper names it as dominating later: heterogeneous bias, or a locality that adds to the loss."""
    return part.name == "heter_bias" or (part.name == "locality" and (part.value or 0.0) > 0)


def _made_of(one: RoundFactors, name: str) -> str:
    """`0.238 ± 0.003 of the ensemble's 0.238 (100 %) in round 60, where locality takes 0.184 ± 0.002 away again`."""
    value, ensemble, locality = read(one, name), read(one, "ensemble_loss"), read(one, "locality")
    assert value.value is not None, "only factors with a value are ranked"
    whole = ensemble.value
    beside = whole is not None and isfinite(whole) and whole > 0
    of = f" {'beside' if name == 'locality' else 'of'} the ensemble's {whole:.3g}" if beside else ""
    part = f" ({share(value.value, whole)})" if beside and whole is not None and name != "locality" else ""
    told = f"{spell(value)}{of}{part} in round {one.round}"
    if name == "locality":
        return told
    does = {-1: f"takes {spell(magnitude(locality))} away again", 1: f"adds {spell(locality)}"}
    return f"{told}, where locality {does.get(order(locality), f'is {spell(locality)}')}"


def differs_most(one: Evidence, other: Evidence) -> Judgement:
    """Between runs in the last round that both have: supported where the greatest difference of a factor is apart from
    every other one's and from 0, and the round has the same clients in both; else the clients alone may make the
    difference.

    Intervals of differences are sums of both: replays of runs with one seed meet the same batch orders, so that the
    runs are not independent, and quadrature would not hold.
    """
    a, b = one.run, other.run
    names_of = label(a), label(b)
    words = dict(zip("ab", names_of, strict=True)) | {"where": ""}
    common = {of.round for of in a.rounds} & {of.round for of in b.rounds}
    if not common:
        sentence, decide = "They have no decomposed round in common.", "The same --rounds for both would decide it."
        return Judgement("undecided", sentence, decide, (), words)
    words["where"] = f" in round {max(common)}"
    both = [next(of for of in run.rounds if of.round == max(common)) for run in (a, b)]
    factors = [factor for factor in parts_of(both[0]) if factor in parts_of(both[1])]
    gaps = [subtract(*(read(of, factor) for of in both)) for factor in factors]
    losses = [read(of, "fma_loss") for of in both]
    readings = [replace(gap, name=f"{gap.name}: {' - '.join(names_of)}") for gap in gaps]
    readings += [replace(loss, name=f"fma_loss: {name}") for loss, name in zip(losses, names_of, strict=True)]
    verdict, sentence = _greatest_gap(gaps)
    of_both = " and ".join(f"{spell(loss)} ({name})" for loss, name in zip(losses, names_of, strict=True))
    sentence = (
        f"The averaged model's loss is {of_both}; differences are {' minus '.join(names_of)}. {sentence}"
        f"{'' if both[0].draws == 'runs' else SEEDS}"
    )
    values = [read(of, factor) for of in both for factor in factors]
    decide = narrower(both, values, replays=one.replays and other.replays)
    if all(gap.value == 0 for gap in gaps):
        decide = "A later round may differ: the runs have the same history up to here."
    elif clients_differ(both):
        verdict = "undecided"
        sentence += " The round has different clients in them."
        decide = "Runs with the same clients in this round would decide it."
    return Judgement(verdict, sentence, decide, readings, words)


def with_names(one: Statement, a: str, b: str, names: Mapping[str, str]) -> Statement:
    """Return the statement of :func:`differs_most` on the runs ``a`` and ``b`` with other names for them, each where it
    was written: a name may be a word that stands elsewhere, too.

    Args:
        names: by the old ones.
    """
    new_a, new_b = names[a], names[b]
    sentence = one.sentence.replace(f" ({a}) and ", f" ({new_a}) and ", 1)
    sentence = sentence.replace(
        f" ({b}); differences are {a} minus {b}. ", f" ({new_b}); differences are {new_a} minus {new_b}. ", 1
    )
    readings = []
    for reading in one.readings:
        factor, colon, of = reading.name.partition(": ")
        of = f"{new_a} - {new_b}" if of == f"{a} - {b}" else names.get(of, of)
        readings.append(replace(reading, name=f"{factor}{colon}{of}"))
    title = one.title.replace(f"Between {a} and {b}, ", f"Between {new_a} and {new_b}, ", 1)
    return replace(one, run=f"{new_a}, {new_b}", title=title, sentence=sentence, readings=tuple(readings))


def _greatest_gap(gaps: list[Reading]) -> tuple[Verdict, str]:
    if not all(finite(gap) for gap in gaps):
        return "undecided", "Some factor has no finite value in one of them."
    if all(gap.value == 0 for gap in gaps):
        return "undecided", "All factors are the same, to the last digit."
    first, *others = sorted(gaps, key=size, reverse=True)
    told = " and ".join(f"{NAMES[gap.name]} {spell(gap)}" for gap in [first, *others[:1]])
    clear = [gap for gap in gaps if order(magnitude(gap)) > 0]
    if first in clear and all(above(magnitude(first), magnitude(other)) for other in others):
        return "supported", f"{capital(NAMES[first.name])} differs most; the greatest differences are {told}."
    count = len(clear)
    beyond = "none is" if not count else f"{count} of {len(gaps)} {'is' if count == 1 else 'are'}"
    return (
        "undecided",
        f"The greatest differences are {told}; {beyond} apart from 0, and the first not from the others.",
    )
