"""What is said of the models that were recorded: clients, global, averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

from ..records import ClientRow, RoundFactors
from .intervals import above, difference, finite, mean_of_clients, quantile, read, zero
from .records import Reading, Statement, Verdict
from .wording import ends, in_rounds, narrower, shown


def client_loss(one: RoundFactors, row: ClientRow) -> float | None:
    """A client's mean squared loss on all of D, mean over draws; None where it does not follow exactly.

    With n samples, n_k of them the client's own, and because mean_r ||y - f^r||^2 = ||y - mean_r f^r||^2 + mean_r
    ||f^r - mean_r f^r||^2,

        L_k = (n_k own + (n - n_k) others) / n + variance_k

    which needs n_k, known where the samples are all of D: then it is what the client trained with.
    """
    own, others = row.samples, one.samples - row.samples
    if not (one.population and one.split) or own > one.samples:
        return None
    parts = [(own, row.train_bias), (others, row.heter_bias)]
    if any(count and value is None for count, value in parts):
        return None
    return sum(count * value for count, value in parts if value is not None) / one.samples + row.variance


def client_floor(one: RoundFactors, row: ClientRow) -> float | None:
    """What a client's loss is at least, below every 95 % interval over draws that its variance allows; None where no
    interval exists.

    The losses of the single draws are not kept, so their scatter is bounded. With b = y - mean_r f^r, d^r = f^r -
    mean_r f^r, B = E||b||^2, v_r = E||d^r||^2 and V = mean_r v_r (`variance`), a draw's loss is L^r = B - 2 E<b, d^r> +
    v_r. Cauchy and Schwarz give |E<b, d^r>| <= sqrt(B v_r), and R numbers v_r >= 0 of mean V have a deviation of at
    most V sqrt(R - 1), so that

        sd_r(L^r) <= 2 sqrt(B V) + V sqrt(R - 1)

    and Student's interval of the mean is at most t_{R-1} sd / sqrt(R - 1) to each side.
    """
    loss = client_loss(one, row)
    if loss is None or one.count < 3 or not one.independent:
        return None
    beside = sqrt(one.count - 1)
    spread = 2 * sqrt(max(loss - row.variance, 0.0) * row.variance) + row.variance * beside
    return loss - quantile(one.count - 1) * spread / beside


def better_than_clients(run: str, rounds: Sequence[RoundFactors]) -> Statement | None:
    """The averaged model's loss against its clients', all on the same data; None where the clients' does not follow
    exactly from what was measured.

    A single client's loss is a mean over R draws and has no interval. Supported where the averaged model's interval
    lies below the least that any client's loss can be (:func:`client_floor`) in each round; contradicted where in some
    round it is above their mean, intervals apart.
    """
    cases = []
    for one in rounds:
        losses = [(row, client_loss(one, row)) for row in one.clients]
        known = [(row, loss) for row, loss in losses if loss is not None]
        if known and len(known) == len(losses):
            mean = mean_of_clients("client_loss", one, known)
            best = Reading("client_loss_least", one.round, min(loss for _, loss in known))
            floors = [least for row in one.clients if (least := client_floor(one, row)) is not None]
            floor = Reading("client_loss_floor", one.round, min(floors) if len(floors) == len(known) else None)
            cases.append((one, read(one, "fma_loss"), mean, best, floor))
    if not cases:
        return None
    lower = [one.round for one, averaged, _, best, _ in cases if above(_exact(best), _exact(averaged))]
    beaten = [one.round for one, averaged, _, _, floor in cases if above(_exact(floor), averaged)]
    higher = [one.round for one, averaged, mean, *_ in cases if above(averaged, mean)]
    verdict: Verdict = "contradicted" if higher else "supported" if len(beaten) == len(cases) else "undecided"
    said = "; ".join(
        f"{shown(averaged)} in round {one.round}, its clients' {shown(best)} at best and {shown(mean)} on average"
        for one, averaged, mean, best, _ in ends(cases)
    )
    worse = f" It is worse than their average in {in_rounds(higher)}." if higher else ""
    counted = (
        f"It is below every client's in {_where(lower, cases)}, and apart from all of them in {_where(beaten, cases)}."
    )
    return Statement(
        "better-than-clients",
        run,
        "The averaged model is better than each of its clients, on all clients' data",
        "The global model is better than the client models.",
        verdict,
        f"Its loss is {said} (the ± of an average is over clients). {counted}{worse} A single client's loss has no "
        "interval: it is a mean over R draws, and apart means by all the scatter that its variance allows. (For "
        "averaged outputs a lower loss than the clients' average is arithmetic; for averaged weights it is not.)",
        narrower(rounds, [one for _, *numbers in cases for one in numbers]) if verdict == "undecided" else "",
        tuple(number for _, *numbers in cases for number in numbers),
    )


def _exact(one: Reading) -> Reading:
    """Its value alone, to compare with."""
    return replace(one, low=one.value, high=one.value)


def _where(numbers: Sequence[int], cases: Sequence[object]) -> str:
    if not numbers:
        return "no round"
    return in_rounds(numbers) if len(numbers) < len(cases) or len(numbers) == 1 else "every round"


def server_lowers(run: str, rounds: Sequence[RoundFactors]) -> Statement | None:
    """The recorded global model against the plain average; None where they are the same in every round."""
    steps = [value for one in rounds if finite(value := read(one, "server_step"))]
    if all(step.value == 0 for step in steps):
        return None
    of_global = [read(one, "global_loss") for one in rounds if finite(read(one, "server_step"))]
    said = "; ".join(f"{shown(step)} in round {step.round}" for step in ends(steps))
    return _signed(
        Statement(
            "server-step",
            run,
            "The server's step lowers the loss of the plain average",
            "The paper averages plainly; what other servers add is not its question.",
            "undecided",
            f"Loss of the global model minus that of the plain average: {said}.",
            "",
            (*steps, *of_global),
        ),
        steps,
        rounds,
    )


def averaging_over_rounds(run: str, rounds: Sequence[RoundFactors]) -> Statement | None:
    """The average over rounds against the global model, where both were recorded; else None."""
    pairs = [(read(one, "averaged_loss"), read(one, "global_loss")) for one in rounds]
    known = [pair for pair in pairs if finite(pair[0]) and finite(pair[1])]
    if not known:
        return None
    gains = [replace(difference(*pair), name="averaged_minus_global") for pair in known]
    said = " and ".join(
        f"{shown(averaged)} against the global model's {shown(of_global)} in round {averaged.round}"
        for averaged, of_global in ends(known)
    )
    return _signed(
        Statement(
            "averaging-over-rounds",
            run,
            "The average over rounds has a lower loss than the global model",
            "Late in training, averaging global models over rounds (IMA) lowers the loss.",
            "undecided",
            f"Its loss is {said}.",
            "",
            (*(number for pair in known for number in pair), *gains),
        ),
        gains,
        rounds,
    )


def _signed(statement: Statement, changes: Sequence[Reading], rounds: Sequence[RoundFactors]) -> Statement:
    """With the verdict: supported where every change is below 0, contradicted where every one is above."""
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
    exact = " Measured without draws, so exact on D." if all(one.half == 0 for one in changes) else ""
    mixed = bool(held["lower"]) and bool(held["higher"])
    decide = ""
    if verdict == "undecided":
        decide = (
            "Runs with other seeds would say which way it goes on average."
            if mixed or all(one.half == 0 for one in changes)
            else "All of D, without --limit, would leave no error over samples."
        )
    return replace(
        statement,
        verdict=verdict,
        sentence=f"{statement.sentence} It is {counts} {of}.{exact}",
        decide=decide,
    )
