from .diagnosis import Criteria as Criteria
from .diagnosis import synergy as synergy
from .result import LayerSynergy as LayerSynergy
from .result import Synergy as Synergy
