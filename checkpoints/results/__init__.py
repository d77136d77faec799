"""What a question answers: a result that saves, loads, draws and tells itself, as tables or as arrays."""

from .arrays import ArrayResult, along, padded
from .claims import claimed
from .collection import Collection
from .kept import Kept
from .result import Result, plain
from .tables import Table, TableResult, number, truth

__all__ = [
    "ArrayResult",
    "Collection",
    "Kept",
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
