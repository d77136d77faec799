"""What a question answers: a result that saves, loads, draws and tells itself, as tables or as arrays."""

from .arrays import ArrayResult as ArrayResult
from .arrays import along as along
from .arrays import pad_cohorts as pad_cohorts
from .base import Collection as Collection
from .base import Result as Result
from .base import plain as plain
from .resume import ResultLock as ResultLock
from .resume import ResumeStore as ResumeStore
from .resume import Serializable as Serializable
from .resume import lock_result as lock_result
from .shown import make_visible as make_visible
from .tables import Table as Table
from .tables import TableResult as TableResult
from .tables import number as number
from .tables import truth as truth
