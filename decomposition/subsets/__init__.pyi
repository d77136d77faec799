from .averages import average_subsets as average_subsets
from .averages import choose as choose
from .averages import round_subsets as round_subsets
from .averages import spread_sizes as spread_sizes
from .result import RoundSubsets as RoundSubsets
from .result import SizeRow as SizeRow
from .result import Subsets as Subsets
