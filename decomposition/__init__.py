"""Why a global model is good: the factors of its loss, which add up."""

# the question, and what it is asked of
from .drawing import draws_of_rounds, draws_of_runs, join, refuse_unequal_runs
from .draws import CohortDraws
from .factors import decompose_round, round_factors
from .losses import decompose_loss
from .membership import membership_labels, membership_train

# the answers
from .records import ClientRow, FactorRow, Loss, Outputs, RoundFactors
from .results import Decomposition, ErrorCurve, RunFactors

# where clients' parameters disagree, and which clients disagree alike
from .synergies import synergy
from .synergy_result import LayerSynergy, Synergy

__all__ = [
    "ClientRow",
    "CohortDraws",
    "Decomposition",
    "ErrorCurve",
    "FactorRow",
    "LayerSynergy",
    "Loss",
    "Outputs",
    "RoundFactors",
    "RunFactors",
    "Synergy",
    "decompose_loss",
    "decompose_round",
    "draws_of_rounds",
    "draws_of_runs",
    "join",
    "membership_labels",
    "membership_train",
    "refuse_unequal_runs",
    "round_factors",
    "synergy",
]
