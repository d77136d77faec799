"""Why a global model is good: the factors of its loss, which add up."""

# the question, and what it is asked of
from .draws import CohortDraws
from .factors import decompose_round
from .membership import membership_labels, membership_train

# the answers
from .records import ClientRow, FactorRow, Outputs, RoundFactors
from .results import Decomposition, ErrorCurve, RunFactors

__all__ = [
    "ClientRow",
    "CohortDraws",
    "Decomposition",
    "ErrorCurve",
    "FactorRow",
    "Outputs",
    "RoundFactors",
    "RunFactors",
    "decompose_round",
    "membership_labels",
    "membership_train",
]
