"""The claims, and from a decomposition to what it says of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ..factors.result import Decomposition
from .dominant_factor import differs_most, greatest_part
from .error_against_bias import bias_and_error_early, together
from .phases import last_early, phases
from .recorded_models import averaging_over_rounds, better_than_clients, outputs_differ, server_lowers
from .result import Explanation
from .single_factors import covariance_is_small, locality_adds, own_data, variance_and_clients
from .statements import Evidence, PaperClaim
from .text_page import notes_on
from .wording import label

if TYPE_CHECKING:
    from .context_measures import ModelComparison, Similarity

_LATER = "heterogeneous bias, or a locality above 0, is the greatest part of the loss"
_DOMINATES = "After early training heterogeneous bias and O(Δ²) dominate the loss (5.3.5)."

# Of a run, in the order of the page: id, what is judged, what the paper says of it, and the function that judges.
CLAIMS = (
    PaperClaim(
        "greatest-part/early",
        "{when}: one factor is the greatest part of the loss",
        "What dominates is said of the rounds after early training, not of these.",
        partial(greatest_part, name="early"),
    ),
    PaperClaim("greatest-part/middle", f"{{when}}: {_LATER}", _DOMINATES, partial(greatest_part, name="middle")),
    PaperClaim("greatest-part/late", f"{{when}}: {_LATER}", _DOMINATES, partial(greatest_part, name="late")),
    PaperClaim(
        "own-data",
        "Throughout, most clients' error on their own data is below a tenth of that on others'",
        "Training bias stays almost zero throughout training (5.3.5), because local steps suffice to fit the local "
        "data (5.3.1).",
        own_data,
    ),
    PaperClaim(
        "bias-and-error/early",
        "Early ({span}), the test error falls while heterogeneous bias rises",
        "Early in training the error falls even where heterogeneous bias rises (5.3.1).",
        bias_and_error_early,
    ),
    PaperClaim(
        "bias-and-error/later",
        "After early training{span}, heterogeneous bias and the test error move together",
        "After about round 40 of 400 bias and error move together: up and down with a learning rate that decays by "
        "0.01 a round, slightly up without decay (5.3.1).",
        partial(together, factor="heter_bias"),
    ),
    PaperClaim(
        "distance-and-error",
        "After early training{span}, the test error falls as Δ does",
        "The loss falls as Δ, the greatest distance of a client to the average, does; early they are not strongly "
        "related, later Δ is bounded (5.3.2).",
        partial(together, factor="delta_max"),
    ),
    PaperClaim(
        "variance-and-clients",
        "The weighted sum of the clients' variances is lower for all of them than for one",
        "The weighted sum of variances can be lowered to some extent by averaging many clients (5.3.3, 5.3.5).",
        variance_and_clients,
    ),
    PaperClaim(
        "covariance-is-small",
        "Covariance is small beside {bias} (below a tenth)",
        "The covariance is too small to matter (5.3.4, 5.3.5).",
        covariance_is_small,
    ),
    PaperClaim(
        "locality-adds",
        "{when} locality adds to the loss",
        "Theorem 1 has a term O(Δ²), Δ the greatest distance of a client to the average. It is read as adding to "
        "the loss, which falls as Δ does (5.3.2). Nothing is said of a sign.",
        locality_adds,
    ),
    PaperClaim(
        "better-than-clients",
        "On test data the average of the clients has a lower cross-entropy and a lower error than each of them",
        "On test data the mean of three clients has a lower loss and a lower error than each of the three (4.1).",
        better_than_clients,
    ),
    PaperClaim(
        "server-step",
        "The server's step lowers the loss of the plain average",
        "Theorem 1 is of the plain average. FedNova, FedAdam, FedYogi and FedGMA are compared by accuracy (Table 1), "
        "all but FedNova by rounds to an accuracy (Table 2), and all by loss and error on lines (Fig. 7c).",
        server_lowers,
    ),
    PaperClaim(
        "averaging-over-rounds",
        "On test data the average over rounds has a lower cross-entropy than the global model",
        "Between global models of different rounds the test loss is lower (Fig. 5b). Beside a global model IMA's is "
        "in the flat centre (Fig. 5c). On the line between IMA's and FMA's, IMA's is at almost the lowest point and "
        "FMA's on the wall (Fig. 7c; 6.2, 7.3.3). Table 1 is another comparison: IMA, with restarts from the average "
        "and mild exploration, beats the same method without it.",
        averaging_over_rounds,
    ),
    PaperClaim(
        "outputs-differ",
        "The clients' outputs have little in common (mean CKA below one half, our threshold)",
        "CKA of outputs is the measure of the covariance: it is small under heterogeneity, most of all without a "
        "decaying learning rate (5.3.4).",
        outputs_differ,
    ),
)
# Of two runs.
BETWEEN = PaperClaim(
    "differs-most",
    "Between {a} and {b}, one factor differs more than every other{where}",
    "Figures 2 to 4 compare a learning rate that decays by 0.01 a round with one that does not decay.",
    differs_most,
)


def paper_says(claim: str, otherwise: str) -> str:
    """The paper's words on a claim, by its id; ``otherwise`` where there is no such claim.

    >>> paper_says("covariance-is-small", "")
    'The covariance is too small to matter (5.3.4, 5.3.5).'
    """
    return next((one.paper for one in (*CLAIMS, BETWEEN) if one.id == claim), otherwise)


def explain(
    result: Decomposition,
    *,
    lengths: Mapping[str, int] | None = None,
    early: int | None = None,
    similarity: Mapping[str, Sequence[Similarity]] | None = None,
    compared: Mapping[str, Sequence[ModelComparison]] | None = None,
    stand_ins: Mapping[str, str] | None = None,
    unknown_owners: Container[str] = (),
) -> Explanation:
    """Judge every claim on each run of a decomposition, and between runs.

    A verdict needs intervals that are apart: `supported` and `contradicted` are never said where those of the numbers
    compared overlap or do not exist; then it is `undecided`, with what would decide it. Which claims there are is in
    `CLAIMS`, and when each is supported or contradicted in the function that judges it.

    Args:
        result: of the squared error.
        lengths: rounds of each run, which its phases are parts of; by default up to the last one decomposed.
        early: the last early round; by default a tenth of the run's rounds, at least 5 and at most a third.
        similarity: for runs of which it was measured, (round, mean over pairs of clients, standard error or
            None, number of minibatches).
        compared: for runs of which they were tested, the average of a round's clients against each of them, and the
            average over rounds against the global model (:func:`.measuring.compare_models`).
        stand_ins: for runs that are draws of each other, `fma+s1+s2`, the one that similarity and tests are of.
        unknown_owners: runs that do not say which client holds which samples.

    Raises:
        FedscopeError: another loss; a run without rounds, or without one after the early ones.

    >>> from fedscope.decomposition import FactorRow, RoundFactors, RunFactors
    >>> def round_of(number, bias):
    ...     rows = (FactorRow("heter_bias", "unbiased", bias, stderr_draws=0.01),)
    ...     return RoundFactors(number, "local:4", 4, True, "probabilities", 100, 10, True, True, rows, ())
    >>> run = RunFactors("ima", "global", (round_of(1, 0.8), round_of(60, 0.2)))
    >>> covariance = explain(Decomposition((run,), "train", "local:4")).of("covariance-is-small")
    >>> covariance.verdict, covariance.decide
    ('undecided', '--draws runs, with runs that differ in their seed, measures it.')

    Source: Zhou et al., Section 5.3, of which 5.3.5 is the summary, says what is called "Paper:", of its own runs; the
    verdicts are ours.
    """
    if result.loss != "squared":
        raise FedscopeError(
            f"the decomposition is of the {result.loss} loss, but only factors of the squared error are explained; "
            "decompose that"
        )
    for run in result.runs:
        if not run.rounds:
            raise FedscopeError(f"{run.run} has no decomposed round, so there is nothing to explain; decompose some")
    ends = {run.run: max((lengths or {}).get(run.run, 0), *(one.round for one in run.rounds)) for run in result.runs}
    firsts = {run.run: last_early(ends[run.run], early) for run in result.runs}
    known = [
        Evidence(
            run,
            phases(run.rounds, ends[run.run], early),
            "" if run.run in unknown_owners else result.split,
            (similarity or {}).get(run.run),
            (compared or {}).get(run.run, ()),
            (stand_ins or {}).get(run.run, ""),
        )
        for run in result.runs
    ]
    judged = [claim.judged(label(evidence.run), evidence) for evidence in known for claim in CLAIMS]
    first = result.runs[0]
    judged += [BETWEEN.judged(f"{label(first)}, {label(other)}", first, other) for other in result.runs[1:]]
    statements = tuple(statement for statement in judged if statement is not None)
    return Explanation(result, statements, tuple(notes_on(result, known, statements, early)), firsts)
