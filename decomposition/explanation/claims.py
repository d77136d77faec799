"""The claims, each with the function that judges it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...old_paths import names_of
from .dominant_factor import differs_most, greatest_part
from .error_against_bias import bias_and_error_early, together
from .recorded_models import averaging_over_rounds, better_than_clients, outputs_differ, server_lowers
from .single_factors import covariance_is_small, locality_adds, own_data, variance_and_clients
from .statements import PaperClaim

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
    """Return the paper's words on a claim, by its id; ``otherwise`` where there is no such claim.

    >>> paper_says("covariance-is-small", "")
    'The covariance is too small to matter (5.3.4, 5.3.5).'
    """
    return next((one.paper for one in (*CLAIMS, BETWEEN) if one.id == claim), otherwise)


# what stood here before
if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
