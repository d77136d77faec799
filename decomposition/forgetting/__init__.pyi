from .counting import count_answers as count_answers
from .counting import round_answers as round_answers
from .result import Answers as Answers
from .result import Forgetting as Forgetting
from .result import mean_over_clients as mean_over_clients
