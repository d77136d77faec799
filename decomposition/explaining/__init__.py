"""What a decomposition says in sentences: which factor dominates in which phase, and where the data do not decide."""

# the question
from .engine import explain

# which rounds to ask about
from .phases import spread_rounds

# the answer
from .records import Reading, Statement, Verdict
from .result import Explanation

__all__ = ["Explanation", "Reading", "Statement", "Verdict", "explain", "spread_rounds"]
