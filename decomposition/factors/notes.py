"""Notes of a figure of factors: samples, draws, and what they cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoints.io.errors import list_few
from ...plotting.style import describe_accepted, describe_statistics, literal
from .fixed import fixed_factors, has_full_batches, is_replayed
from .rows import is_recorded

if TYPE_CHECKING:
    from .result import Decomposition
    from .rows import RoundFactors

# What is decomposed, what f̂ and the variance are.
OTHER_LOSSES = {
    "cross-entropy": (
        "cross-entropy (nats)",
        "the normalised geometric mean of the p-weighted clients and draws; variance: their mean KL divergence from it",
    ),
    "zero-one": (
        "0-1 loss",
        "the class that most of the p-weighted clients and draws predict; variance: other predictions where f̂ is right "
        "minus right ones where it is wrong",
    ),
}


def notes(result: Decomposition, panels: Sequence[str] = ()) -> str:
    """A few sentences from the result alone; of some panels what concerns these."""
    rounds = [one for run in result.runs for one in run.rounds]
    if panels and not {"factors", "clients"} & set(panels):
        curves = _curves(result) if "error" in panels else ""
        if "distance" not in panels:
            return curves
        draws = _draws(result.draws, rounds, squared=False)
        said = f"Draws {literal(result.draws)}: {draws}. Distances are means over draws; {_bars(rounds)}."
        return f"{said} {curves}".strip()
    parts = [_loss(result.loss, rounds, _samples(result, rounds))]
    if result.split != "train" and any(one.split for one in rounds):
        parts.append("Own: label among the client's.")
    if any(run.model == "averaged" for run in result.runs):
        parts.append("Averaged: the average over rounds, whose clients are those of all rounds in it.")
    if words := describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", ""))):
        parts.append(f"{words[0].upper()}{words[1:]}.")
    if describe_accepted(result.attrs):
        parts.append("Data accepted: unlike what was recorded.")
    draws = _draws(result.draws, rounds, squared=result.loss == "squared")
    unbiased = all(one.independent for one in rounds) and result.loss == "squared"
    kind = "Unbiased estimates" if unbiased else "Plug-in estimates"
    said = f"Draws {literal(result.draws)}: {draws}.{_single(rounds)}"
    curves = _curves(result) if not panels or "error" in panels else ""
    return " ".join(filter(None, [*parts, said, f"{kind}; {_bars(rounds)}.", curves]))


def _curves(result: Decomposition) -> str:
    """Say whose the measured test errors are, where several runs are decomposed together."""
    several = result.draws == "runs" and any(run.curves for run in result.runs)
    return "Test errors: means over the runs, where all were measured." if several else ""


def _samples(result: Decomposition, rounds: Sequence[RoundFactors]) -> str:
    counts = " to ".join(f"{n:,}" for n in sorted({min(o.samples for o in rounds), max(o.samples for o in rounds)}))
    if result.attrs.get("on") == "cohort":
        several = ", another D each round" if len({one.round for one in rounds}) > 1 else ""
        whole = all(one.population for one in rounds)
        drawn, bars = ("all", "") if whole else ("a sample of", "; its own error is not in the bars")
        return f"{drawn} {counts} samples of the cohort's own data{several}{bars}"
    if all(one.population for one in rounds):
        return f"all {counts} samples of D"
    own = "" if is_recorded(rounds) else "; its own error is not in the bars"
    return f"a sample of {counts} from the {literal(result.split)} split{own}"


def _loss(loss: str, rounds: Sequence[RoundFactors], samples: str) -> str:
    if loss in OTHER_LOSSES:
        name, centre = OTHER_LOSSES[loss]
        return (
            f"Bias + variance = the clients' mean {name} on {samples}. Bias: loss of f̂, {centre}, differences between "
            "clients included. Remainder: loss of the plain average minus this mean; below 0, averaging weights "
            "beats the clients."
        )
    outputs = " and ".join(sorted({literal(one.outputs) for one in rounds}))
    return f"Squared error of {outputs} on {samples}."


def _draws(draws: str, rounds: Sequence[RoundFactors], *, squared: bool) -> str:
    """Describe the source of the draws, and what it hides."""
    count = " or ".join(map(str, sorted({one.count for one in rounds})))
    match draws.partition(":")[0]:
        case "local":
            covariance = "the covariance is 0 by construction (not drawn) and " if squared else ""
            return (
                "replays of local training from the recorded start, independent across clients, so "
                f"{covariance}how the start itself varies is not seen{_full_batches(rounds)}"
            )
        case "rounds":
            return "the last rounds of one cohort; drift counts as variance and draws are dependent"
        case "runs":
            covariance = ", and the covariance is estimated" if squared else ""
            return f"{count} runs that differ in their seed: the unconditional expectation{covariance}"
        case "none":
            scatter = ", so how other trainings would scatter is not seen and counts as bias" if squared else ""
            return f"the recorded models alone{scatter}"
    return f"{count} of every client"


def _full_batches(rounds: Sequence[RoundFactors]) -> str:
    """Say that replays are all alike, and what follows."""
    alike = [str(one.round) for one in rounds if has_full_batches(one)]
    if not alike:
        return ""
    where = "" if len(alike) == len(rounds) else f" in round{'s' if len(alike) > 1 else ''} {list_few(alike, 6)}"
    # seen of the variance alone: a rate that moves nothing does it, too
    return (
        f"; replays are alike{where}, as where clients take full batches: the variance is 0 (not drawn), without bars"
    )


def _single(rounds: Sequence[RoundFactors]) -> str:
    """Describe what is 0 because the average of one client is the client."""
    names = [name for name in ("covariance", "locality", "remainder") if name in fixed_factors(rounds)]
    if is_replayed(rounds) and "covariance" in names:
        names.remove("covariance")
    return f" One client is its own average: {' and '.join(names)} 0 by construction, not drawn." if names else ""


def _bars(rounds: Sequence[RoundFactors]) -> str:
    if is_recorded(rounds):
        known = any(row.stderr_samples is not None for one in rounds for row in one.rows)
        return "bars 95\N{NO-BREAK SPACE}% over samples" if known else "no bars, because nothing is drawn"
    if all(has_full_batches(one) for one in rounds):
        return "no bars over draws that are alike"
    freedom = sorted({one.count - 1 for one in rounds if any(row.stderr_draws is not None for row in one.rows)})
    if freedom:
        return f"bars 95\N{NO-BREAK SPACE}% over draws, t on {' or '.join(map(str, freedom))} degrees of freedom"
    independent = all(one.independent for one in rounds)
    return "too few independent draws for bars" if independent else "dependent draws have no bars"
