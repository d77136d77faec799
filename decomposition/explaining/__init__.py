"""What a decomposition says in sentences: which factor dominates in which phase, and where the data do not decide."""

# what is measured on test data
from .comparing import Against, Comparison, compare_models

# the question
from .engine import explain
from .measuring import RoundMeasures, measure_round

# which rounds to ask about, and which of them are early
from .phases import last_early, spread_rounds

# the answer
from .records import Reading, Statement, Verdict
from .result import Explanation

__all__ = [
    "Against",
    "Comparison",
    "Explanation",
    "Reading",
    "RoundMeasures",
    "Statement",
    "Verdict",
    "compare_models",
    "explain",
    "last_early",
    "measure_round",
    "spread_rounds",
]
