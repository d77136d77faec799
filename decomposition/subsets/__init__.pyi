from .averages import average_subsets as average_subsets
from .averages import round_subsets as round_subsets
from .choosing import choose as choose
from .choosing import spread_sizes as spread_sizes
from .result import RoundSubsets as RoundSubsets
from .result import SizeRow as SizeRow
from .result import Subsets as Subsets
