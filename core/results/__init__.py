"""Results of analyses, which save, load, draw and describe themselves, as tables or as arrays."""

from .arrays import ArrayResult as ArrayResult
from .arrays import along as along
from .arrays import pad_cohorts as pad_cohorts
from .base import Result as Result
from .base import plain as plain
from .collection import Collection as Collection
from .deviation import deviation_over as deviation_over
from .resume import ResultLock as ResultLock
from .resume import ResumeStore as ResumeStore
from .resume import Serializable as Serializable
from .resume import lock_result as lock_result
from .tables import Table as Table
from .tables import TableResult as TableResult
from .tables import columns_of as columns_of
from .tables import group_rows as group_rows
from .tables import number as number
from .tables import optional_bool as optional_bool
from .tables import optional_int as optional_int
from .tables import truth as truth
from .visible_result import make_visible as make_visible
