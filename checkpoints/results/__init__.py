"""What a question answers: a result that saves, loads, draws and tells itself, as tables or as arrays."""

from .arrays import ArrayResult as ArrayResult
from .arrays import along as along
from .arrays import padded as padded
from .result import Collection as Collection
from .result import Result as Result
from .result import plain as plain
from .shown import shown as shown
from .tables import Table as Table
from .tables import TableResult as TableResult
from .tables import number as number
from .tables import truth as truth
from .unfinished import Claim as Claim
from .unfinished import Kept as Kept
from .unfinished import Partial as Partial
from .unfinished import claimed as claimed
