"""What is said of the measured error beside heterogeneous bias and the distance of the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..factors.records import RoundFactors
from ..factors.result import RunFactors
from .intervals import broken, finite, read
from .phases import FEWEST, Phase
from .records import Reading, Statement, Verdict
from .relations import Relation, relate
from .wording import ends, narrower, not_finite, shown, splitting

# of a number, as it stands in a sentence
CALLED = {"heter_bias": "heterogeneous bias", "delta_max": "Δ"}


def errors_of(run: RunFactors) -> dict[int, Reading]:
    """By round the test error that was measured while training, of the model that is decomposed."""
    curve = next((one for one in run.curves if one.label == run.model), None)
    if curve is None:
        return {}
    return {t: Reading("test_error", t, e, e, e) for t, e in zip(curve.rounds, curve.error, strict=True)}


def bias_and_error_early(run: str, phase: Phase, errors: Mapping[int, Reading], split: str = "") -> Statement:
    """Supported where bias and error move against each other over the early rounds and the error is lower at their end;
    contradicted where they move together (:func:`.relations.relate`), or the error rises. ``split`` is what was
    measured on."""
    values = [read(one, "heter_bias") for one in phase.rounds]
    measured = [errors.get(one.round, Reading("test_error", one.round, None)) for one in phase.rounds]
    relation = relate(values, measured)
    known = [one.value for one in measured if one.value is not None]
    falls = len(known) > 1 and known[-1] < known[0]
    verdict: Verdict = "undecided"
    if relation.sign:
        verdict = "supported" if relation.sign < 0 and falls else "contradicted"
    return _statement(
        "bias-and-error/early",
        run,
        f"Early ({phase.span}), the test error falls while heterogeneous bias rises",
        "Early in training the error falls even where heterogeneous bias rises (5.3.1).",
        verdict,
        relation,
        (phase.rounds, values, measured, [phase]),
        split,
    )


def bias_and_error_later(run: str, later: Sequence[Phase], errors: Mapping[int, Reading], split: str = "") -> Statement:
    """Supported where bias and error move together over the rounds after early training, contradicted where they move
    against each other (:func:`.relations.relate`). ``split`` is what was measured on."""
    return _together(
        "bias-and-error/later",
        run,
        later,
        errors,
        "heter_bias",
        "heterogeneous bias and the test error move together",
        "After about round 40 of 400 bias and error move together: up and down with a learning rate that decays by "
        "0.01 a round, slightly up without decay (5.3.1).",
        split,
    )


def distance_and_error(run: str, later: Sequence[Phase], errors: Mapping[int, Reading], split: str = "") -> Statement:
    """Supported where Δ = max_k ||w_k - w_FMA|| and the test error move together over the rounds after early training,
    contradicted where they move against each other (:func:`.relations.relate`)."""
    return _together(
        "distance-and-error",
        run,
        later,
        errors,
        "delta_max",
        "the test error falls as Δ does",
        "The loss falls as Δ, the greatest distance of a client to the average, does; early they are not strongly "
        "related, later Δ is bounded (5.3.2).",
        split,
    )


def _together(
    claim: str,
    run: str,
    later: Sequence[Phase],
    errors: Mapping[int, Reading],
    factor: str,
    what: str,
    paper: str,
    split: str,
) -> Statement:
    rounds = [one for phase in later for one in phase.rounds]
    values = [read(one, factor) for one in rounds]
    measured = [errors.get(one.round, Reading("test_error", one.round, None)) for one in rounds]
    relation = relate(values, measured)
    verdict: Verdict = "supported" if relation.sign > 0 else "contradicted" if relation.sign < 0 else "undecided"
    span = f"rounds {later[0].first} to {later[-1].last}" if later else ""
    when = f"After early training ({span})" if later else "After early training"
    return _statement(claim, run, f"{when}, {what}", paper, verdict, relation, (rounds, values, measured, later), split)


def _statement(
    claim: str,
    run: str,
    title: str,
    paper: str,
    verdict: Verdict,
    relation: Relation,
    measured: tuple[Sequence[RoundFactors], Sequence[Reading], Sequence[Reading], Sequence[Phase]],
    split: str,
) -> Statement:
    rounds, values, errors, phases = measured
    name = CALLED["delta_max" if claim == "distance-and-error" else "heter_bias"]
    both = [(value, error) for value, error in zip(values, errors, strict=True) if finite(value) and finite(error)]
    tau = Reading("kendall_tau", None, relation.tau)
    return Statement(
        claim,
        run,
        title,
        paper,
        verdict,
        _sentence(name, relation, both),
        _decide(rounds, values, errors, relation, phases, split) if verdict == "undecided" else "",
        (*values, *errors, tau, Reading("p_value", None, relation.p)),
    )


def _sentence(name: str, relation: Relation, both: Sequence[tuple[Reading, Reading]]) -> str:
    if not both:
        return "No round has values of both."
    said = " and ".join(
        f"{shown(value)} beside an error of {100 * (error.value or 0.0):.3g} % in round {value.round}"
        for value, error in ends(both)
    )
    said = f"{name[0].upper()}{name[1:]} is {said}."
    if len(both) < 2:
        return said
    level = f", {relation.level} are not apart" if relation.level else ""
    said += (
        f" Of {relation.pairs} pair{'s' if relation.pairs > 1 else ''} of rounds, {relation.together} "
        f"{'has' if relation.together == 1 else 'have'} the greater error where {name} is greater, {relation.against} "
        f"where it is smaller{level}."
    )
    if relation.tau is None:
        return said
    return f"{said} Kendall's τ is {relation.tau:.2f} (p = {relation.p:.2g}, as if rounds were independent)."


def _decide(
    rounds: Sequence[RoundFactors],
    values: Sequence[Reading],
    errors: Sequence[Reading],
    relation: Relation,
    phases: Sequence[Phase],
    split: str,
) -> str:
    if not phases:
        return "A longer run would decide it."
    where, length = f"from {phases[0].first} to {phases[-1].last}", phases[-1].last - phases[0].first + 1
    if any(broken(one) for one in values):
        return not_finite(values)
    if rounds and not any(finite(one) for one in values):
        if any(one.split for one in rounds):
            return "More clients, each with data of its own, would decide it."
        return splitting(split, "splits the bias")
    if rounds and not any(finite(one) for one in errors):
        return "Test errors, measured while training, would decide it."
    if length < FEWEST:
        return f"A longer run would decide it; {FEWEST} rounds are needed here."
    if relation.rounds < FEWEST:
        return f"It has {relation.rounds} of the {FEWEST} rounds that it needs; more --rounds {where} would decide it."
    if relation.tau is None or relation.level > relation.pairs / 2:
        return narrower(rounds, values)
    if len(rounds) >= length:
        return "All of these rounds are decomposed; runs with other seeds may decide it."
    return f"More decomposed rounds {where} may decide it."
