"""What a question answers: a result that saves, loads, draws and tells itself, as tables or as arrays."""

from .arrays import ArrayResult, along, padded
from .result import Collection, Result, plain
from .store import Claim, Kept, Partial, claimed
from .tables import Table, TableResult, number, truth

__all__ = [
    "ArrayResult",
    "Claim",
    "Collection",
    "Kept",
    "Partial",
    "Result",
    "Table",
    "TableResult",
    "along",
    "claimed",
    "number",
    "padded",
    "plain",
    "truth",
]
