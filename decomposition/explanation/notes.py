"""What a page must say of itself: which rounds, samples and draws, what an interval is, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..factors.result import Decomposition
from .biases import SMALL
from .cohorts import clients_differ
from .comparing import Comparison
from .intervals import all_alike, broken, finite, read
from .models import averaging_over_rounds, better_than_clients, server_lowers
from .phases import phases
from .wording import alike, in_rounds, label, listed

# What each source of draws cannot show.
DRAWS = {
    "local": " are replays of local training from the recorded start, independent across clients: the covariance is 0 "
    "by construction, and what the start itself varies is not seen",
    "rounds": " are the last rounds of one cohort: drift counts as variance",
    "runs": " are runs that differ in their seed; what is measured without draws, similarity, test losses and test "
    "errors are of the first of them",
}


def notes_on(
    result: Decomposition,
    lengths: Mapping[str, int],
    early: int | None = None,
    compared: Mapping[str, Sequence[Comparison]] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Sentences; `lengths` are the rounds of each run, `early` the last early round if it was given, `compared` what
    was measured on test data, `stand_ins` the first of runs that are draws of each other."""
    return tuple(_notes(result, lengths, early, compared or {}, stand_ins or {}))


def _notes(
    result: Decomposition,
    lengths: Mapping[str, int],
    early: int | None,
    compared: Mapping[str, Sequence[Comparison]],
    stand_ins: Mapping[str, str],
) -> Iterator[str]:
    rounds = [one for run in result.runs for one in run.rounds]
    for run in result.runs:
        parts = listed([f"{phase.name} is {phase.span}" for phase in phases(run.rounds, lengths[run.run], early)])
        done = in_rounds([one.round for one in run.rounds])
        yield f"{label(run)}: decomposed {done}; {parts}."
    usual = "with a tenth of the rounds, at least 5 and at most a third (--early sets it)"
    yield (
        f"Early training ends {'as given by --early' if early else usual}; in the paper it ends near round 40 of 400. "
        "Halving what follows is our choice."
    )
    what = " and ".join(sorted({one.outputs for one in rounds}))
    counts = " to ".join(f"{n:,}" for n in sorted({min(o.samples for o in rounds), max(o.samples for o in rounds)}))
    whole = all(one.population for one in rounds)
    samples = f"all {counts} samples of D" if whole else f"a sample of {counts} from the {result.split} split"
    yield f"The loss is the squared error of {what}, summed over classes, mean over {samples}."
    kind = result.draws.partition(":")[0]
    first = f" ({', '.join(stand_ins.values())})" if stand_ins else ""
    yield f"Draws {result.draws}{DRAWS.get(kind, '')}{first}."
    counted = sorted({one.count for one in rounds})
    if any(all_alike(one) for one in rounds):
        yield f"{alike(rounds)} What needs one is undecided."
    elif all(one.independent and one.count > 2 for one in rounds):
        degrees = " or ".join(str(count - 1) for count in counted)
        over = "" if whole else ", with the error over samples added in quadrature"
        yield (
            f"± is half a 95 % interval over draws (t on {degrees} degrees of freedom){over}, unless its sentence says "
            "otherwise. A verdict needs intervals that do not touch; among many intervals some miss."
        )
    elif not all(one.independent for one in rounds):
        yield "The draws depend on each other, so no interval over draws exists, and what needs one is undecided."
    else:
        yield f"With R = {counted[0]} draws no interval over draws exists, and what needs one is undecided."
    yield f"Small means below {SMALL:g} of what it is compared with; that is our threshold, not the paper's."
    for run in result.runs:
        name = label(run)
        if clients_differ(run.rounds):
            yield (
                f"{name}: the clients differ between rounds. Intervals are over draws of the same clients; other "
                "clients would give other numbers."
            )
        steps = [read(one, "server_step") for one in run.rounds]
        if numbers := [one.round for one in steps if broken(one) and one.round is not None]:
            yield f"{name}: what the server's step changes is not finite in {in_rounds(numbers)}."
        known = [step for step in steps if finite(step)]
        if known and server_lowers(name, run.rounds) is None:
            yield f"{name}: the server's step is 0 in every round, so its global model is the plain average."
        tested = compared.get(run.run, ())
        if better_than_clients(name, tested) is None:
            yield f"{name}: no model was measured on test data, so clients are not compared with their average."
        elif averaging_over_rounds(name, tested) is None:
            yield f"{name}: no average over rounds was recorded beside the global model in these rounds."
    seeds = "one partition" if kind == "runs" else "one seed and one partition"
    which = "All of this is of" if len(result.runs) == 1 else "Each run is of"
    yield f"{which} {seeds}: the intervals say nothing about others."
