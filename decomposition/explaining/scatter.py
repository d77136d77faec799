"""What is said of variance and covariance."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import RoundFactors
from .biases import SMALL
from .intervals import above, all_alike, finite, magnitude, read, size
from .records import Statement, Verdict
from .wording import NAMES, capital, in_rounds, is_local, listed, narrower, share, shown


def scatter_is_small(run: str, rounds: Sequence[RoundFactors]) -> Statement:
    """Variance, and covariance where it is measured, below a tenth of heterogeneous bias in every round; of the whole
    bias where nothing splits it."""
    names = ("variance",) if is_local(rounds) else ("variance", "covariance")
    beside = "heter_bias" if all(one.split for one in rounds) else "bias"
    both = [(read(one, name), read(one, beside)) for name in names for one in rounds]
    known = [(part, bias) for part, bias in both if finite(part) and finite(bias)]
    large = [part for part, bias in known if above(magnitude(part), magnitude(bias), SMALL)]
    small = [part for part, bias in known if above(magnitude(bias), magnitude(part), 1 / SMALL)]
    verdict: Verdict = "contradicted" if large else "supported" if known and len(small) == len(both) else "undecided"
    said = []
    for name in names:
        own = [(part, bias) for part, bias in known if part.name == name]
        if not own:
            said.append(f"{capital(name)} has no finite value beside a finite bias.")
            continue
        part, bias = max(own, key=lambda pair: size(pair[0]) / size(pair[1]) if size(pair[1]) else float("inf"))
        most = f"{share(size(part), size(bias))} of it" if bias.value else "more than it"
        said.append(f"{capital(name)} is at most {most}: {shown(part)} beside {shown(bias)} in round {part.round}.")
    if len(known) < len(both):
        said.append(f"There is a value in {len(known)} of {len(both)} cases.")
    if large:
        for name in names:
            numbers = [part.round for part in large if part.name == name and part.round is not None]
            said += [f"{capital(name)} is more than a tenth in {in_rounds(numbers)}."] if numbers else []
    if is_local(rounds):
        said.append("The covariance is 0 by construction, because the draws are replays; it is no finding.")
    elif any(one.draws.partition(":")[0] == "runs" for one in rounds):
        said.append("The draws are runs, so the covariance is measured.")
    if known and all(all_alike(one) for one in rounds):
        said.append("A variance of 0 up to rounding comes of full batches: every replay is the same model.")
    return Statement(
        "scatter-is-small",
        run,
        f"{capital(listed(names))} {'is' if len(names) == 1 else 'are'} small beside {NAMES[beside]} (below a tenth)",
        "Variance and covariance are small.",
        verdict,
        " ".join(said),
        narrower(rounds, [number for pair in both for number in pair]) if verdict == "undecided" else "",
        tuple(number for pair in both for number in pair),
    )
