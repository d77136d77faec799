"""What a decomposition says in sentences: which factor dominates in which phase, and where the data do not decide."""

# what is measured on test data
from .comparing import Against, Comparison, compare_models

# the question
from .engine import explain
from .measuring import RoundSimilarity, RoundTests, outputs_similarity, round_tests

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
    "RoundSimilarity",
    "RoundTests",
    "Statement",
    "Verdict",
    "compare_models",
    "explain",
    "last_early",
    "outputs_similarity",
    "round_tests",
    "spread_rounds",
]
