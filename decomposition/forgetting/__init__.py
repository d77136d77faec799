"""What local training gains on a client's own data and loses on the others', by client and class."""

from .counting import count_answers, round_answers
from .records import Answers
from .result import Forgetting, mean_over_clients

__all__ = [
    "Answers",
    "Forgetting",
    "count_answers",
    "mean_over_clients",
    "round_answers",
]
