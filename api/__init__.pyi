# models at rest
from .asking.loop_over_rounds import Work as Work
from .checkpoints import FedscopeError as FedscopeError
from .checkpoints import Layout as Layout
from .checkpoints import Model as Model
from .checkpoints import Round as Round
from .checkpoints import Run as Run
from .checkpoints import load_model as load_model
from .checkpoints.recorder.flower import partition_mod as partition_mod
from .checkpoints.recorder.flower import record as record
from .checkpoints.recorder.recorder import Recorder as Recorder
from .decomposition import Decomposition as Decomposition
from .decomposition import Synergy as Synergy
from .decomposition import decompose_loss as decompose_loss
from .decomposition import decompose_round as decompose_round
from .decomposition.cka.model_result import ModelCKA as ModelCKA
from .decomposition.cka.result import ClientCKA as ClientCKA
from .decomposition.client_data.result import ClientData as ClientData
from .decomposition.dispersion.result import Dispersion as Dispersion
from .decomposition.embedding.result import Embedding as Embedding
from .decomposition.explanation.result import Explanation as Explanation
from .decomposition.forgetting.result import Forgetting as Forgetting
from .decomposition.parameters.result import ParameterMap as ParameterMap
from .decomposition.parameters.result import Parameters as Parameters
from .decomposition.subsets.result import Subsets as Subsets
from .decomposition.theory.result import Theory as Theory
from .decomposition.updates.result import Updates as Updates

# losses in weight space
from .landscape import Classification as Classification
from .landscape import Evaluator as Evaluator
from .landscape import Line as Line
from .landscape import Plane as Plane
from .landscape import Planes as Planes
from .landscape import Regression as Regression
from .landscape import Samples as Samples
from .landscape import Sequences as Sequences
from .landscape import Sharpness as Sharpness
from .landscape import Task as Task
from .landscape import along_trajectory as along_trajectory
from .landscape import near_clients as near_clients
from .landscape import random_directions as random_directions
from .landscape import survey as survey
from .landscape import through_models as through_models

# the questions of the command line, a function each
from .questions.cka import cka as cka
from .questions.curves import curves as curves
from .questions.data import data as data
from .questions.decompose import decompose as decompose
from .questions.disperse import disperse as disperse
from .questions.embed import embed as embed
from .questions.explain import explain as explain
from .questions.forgetting import forgetting as forgetting
from .questions.import_models import import_models as import_models
from .questions.line import line as line
from .questions.parameters import parameters as parameters
from .questions.plane import plane as plane
from .questions.reaggregate import reaggregate as reaggregate
from .questions.sharpness import sharpness as sharpness
from .questions.subsets import subsets as subsets
from .questions.synergy import synergy as synergy
from .questions.theory import theory as theory
from .questions.updates import updates as updates
from .questions.wima import wima as wima

# what they say together
from .reporting.report import Report as Report
from .reporting.report import report as report

# models in motion
from .training import Comparison as Comparison
from .training import Curves as Curves
from .training import Recipe as Recipe
from .training import Sweep as Sweep
from .training import download as download
from .training import recipe as recipe
from .training import recipe_names as recipe_names
from .training import sweep as sweep
from .training import table as table
from .training import train as train
from .training.windows.result import WindowMeans as WindowMeans

__version__: str
