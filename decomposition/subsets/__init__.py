"""How many models an average needs: averages of subsets of a round's clients."""

from .averages import average_subsets, round_subsets
from .choosing import choose, spread_sizes
from .result import RoundSubsets, SizeRow, Subsets

__all__ = [
    "RoundSubsets",
    "SizeRow",
    "Subsets",
    "average_subsets",
    "choose",
    "round_subsets",
    "spread_sizes",
]
