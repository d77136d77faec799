"""What a figure of factors must say of itself: samples, draws, and what they cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Decomposition

LIMITS = {
    "local": "replays of local training from the recorded start, independent across clients, so the covariance is 0 by "
    "construction and what the start itself varies is not seen",
    "rounds": "the last rounds of one cohort; drift counts as variance and draws are dependent",
    "runs": "runs of one set-up with different seeds",
}


def notes(result: Decomposition) -> str:
    """A few sentences from the result alone."""
    rounds = [one for run in result.runs for one in run.rounds]
    what = " and ".join(sorted({one.outputs for one in rounds}))
    counts = " to ".join(f"{n:,}" for n in sorted({min(o.samples for o in rounds), max(o.samples for o in rounds)}))
    if all(one.population for one in rounds):
        samples = f"all {counts} samples of D"
    else:
        samples = f"a sample of {counts} from the {result.split} split; its own error is not in the bars"
    split = "" if result.split == "train" or not any(o.split for o in rounds) else " Own: label among the client's."
    source = LIMITS.get(result.draws.partition(":")[0], "")
    draws = f"Draws {result.draws}: {source}." if source else f"Draws {result.draws}."
    freedom = sorted({one.count - 1 for one in rounds if any(row.stderr_draws is not None for row in one.rows)})
    kind = "Unbiased estimates" if all(one.independent for one in rounds) else "Plug-in estimates"
    if freedom:
        degrees = " or ".join(map(str, freedom))
        bars = f"{kind}; bars 95 % over draws, t on {degrees} degrees of freedom."
    else:
        bars = f"{kind}; too few independent draws for bars."
    return f"Squared error of {what} on {samples}.{split} {draws} {bars}"
