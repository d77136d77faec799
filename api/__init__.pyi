# models at rest
from .checkpoints import FedscopeError as FedscopeError
from .checkpoints import Layout as Layout
from .checkpoints import Round as Round
from .checkpoints import Run as Run
from .checkpoints import load_model as load_model

# why a global model is good, and where its clients disagree
from .decomposition import Decomposition as Decomposition
from .decomposition import Synergy as Synergy
from .decomposition import decompose_loss as decompose_loss
from .decomposition import decompose_round as decompose_round
from .decomposition import synergy as synergy

# losses in weight space
from .landscape import Classification as Classification
from .landscape import Evaluator as Evaluator
from .landscape import Line as Line
from .landscape import Plane as Plane
from .landscape import Regression as Regression
from .landscape import Samples as Samples
from .landscape import Sequences as Sequences
from .landscape import Sharpness as Sharpness
from .landscape import Task as Task
from .landscape import along_trajectory as along_trajectory
from .landscape import line as line
from .landscape import near_clients as near_clients
from .landscape import plane as plane
from .landscape import random_directions as random_directions
from .landscape import sharpness as sharpness
from .landscape import survey as survey
from .landscape import through_models as through_models

# models in motion
from .training import train as train

__version__: str
