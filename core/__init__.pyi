# how questions are asked, and their results read (core/analysis)
from .analysis.execution import Execution as Execution
from .analysis.stored_results import load as load

# stored models, and what records them (checkpoints)
from .checkpoints import FedscopeError as FedscopeError
from .checkpoints import Layout as Layout
from .checkpoints import Model as Model
from .checkpoints import Round as Round
from .checkpoints import Run as Run
from .checkpoints import load_model as load_model
from .checkpoints.recorder.blazefl.recording import record_blazefl as record_blazefl
from .checkpoints.recorder.flower.recording import partition_mod as partition_mod
from .checkpoints.recorder.flower.recording import record as record
from .checkpoints.recorder.nvflare.recording import record_nvflare as record_nvflare
from .checkpoints.recorder.pfl.recording import record_pfl as record_pfl
from .checkpoints.recorder.recorder import Recorder as Recorder

# analyses of clients and their mean (decomposition)
from .decomposition import Decomposition as Decomposition
from .decomposition import LayerDecomposition as LayerDecomposition
from .decomposition import Synergy as Synergy
from .decomposition import decompose_loss as decompose_loss
from .decomposition import decompose_round as decompose_round
from .decomposition.adapters.analysis import adapters as adapters
from .decomposition.adapters.result import AdapterMeans as AdapterMeans
from .decomposition.cka.analysis import cka as cka
from .decomposition.cka.model_result import ModelCKA as ModelCKA
from .decomposition.cka.result import ClientCKA as ClientCKA
from .decomposition.client_data.analysis import data as data
from .decomposition.client_data.result import ClientData as ClientData
from .decomposition.consensus.analysis import consensus as consensus
from .decomposition.consensus.result import Consensus as Consensus
from .decomposition.dispersion.analysis import disperse as disperse
from .decomposition.dispersion.result import Dispersion as Dispersion
from .decomposition.embedding.analysis import embed as embed
from .decomposition.embedding.result import Embedding as Embedding
from .decomposition.explanation.analysis import explain as explain
from .decomposition.explanation.result import Explanation as Explanation
from .decomposition.factors.analysis import decompose as decompose
from .decomposition.forgetting.analysis import forgetting as forgetting
from .decomposition.forgetting.result import Forgetting as Forgetting
from .decomposition.matrix.analysis import matrix as matrix
from .decomposition.matrix.result import Matrix as Matrix
from .decomposition.parameters.analysis import parameters as parameters
from .decomposition.parameters.result import ParameterMap as ParameterMap
from .decomposition.parameters.result import Parameters as Parameters
from .decomposition.predictors.analysis import predictors as predictors
from .decomposition.predictors.result import Predictors as Predictors
from .decomposition.reaggregation.analysis import reaggregate as reaggregate
from .decomposition.reaggregation.result import Reaggregation as Reaggregation
from .decomposition.subsets.analysis import subsets as subsets
from .decomposition.subsets.result import Subsets as Subsets
from .decomposition.synergy.analysis import synergy as synergy
from .decomposition.theory.analysis import theory as theory
from .decomposition.theory.result import Theory as Theory
from .decomposition.updates.analysis import updates as updates
from .decomposition.updates.layer_result import LayerUpdates as LayerUpdates
from .decomposition.updates.result import Updates as Updates
from .decomposition.windows.analysis import wima as wima
from .decomposition.windows.checkpoint_result import CheckpointWindows as CheckpointWindows
from .decomposition.windows.result import WindowMeans as WindowMeans

# tasks, samples and losses of many models (core/evaluation)
from .evaluation.evaluator import Evaluator as Evaluator
from .evaluation.samples import Samples as Samples
from .evaluation.standard_tasks import Classification as Classification
from .evaluation.standard_tasks import Regression as Regression
from .evaluation.standard_tasks import Sequences as Sequences
from .evaluation.tasks import Task as Task

# losses in weight space (landscape)
from .landscape import Alignment as Alignment
from .landscape import Connectivity as Connectivity
from .landscape import LayerLine as LayerLine
from .landscape import LayerRounds as LayerRounds
from .landscape import Line as Line
from .landscape import Plane as Plane
from .landscape import Planes as Planes
from .landscape import Sharpness as Sharpness
from .landscape import along_trajectory as along_trajectory
from .landscape import near_clients as near_clients
from .landscape import on_same_axes as on_same_axes
from .landscape import random_directions as random_directions
from .landscape import survey as survey
from .landscape import through_models as through_models
from .landscape.alignment.analysis import align as align
from .landscape.curvature.analysis import sharpness as sharpness
from .landscape.interchange.import_models import import_models as import_models
from .landscape.lines.analysis import line as line
from .landscape.planes.analysis import plane as plane

# the drawing kit (core/plotting)
from .plotting.user_style import style as style

# one page on runs (core/reporting)
from .reporting.report import Report as Report
from .reporting.report import report as report

# training, its curves, tables and trackers (training)
from .training import Comparison as Comparison
from .training import Config as Config
from .training import Curves as Curves
from .training import Recipe as Recipe
from .training import Sweep as Sweep
from .training import download as download
from .training import recipe as recipe
from .training import recipe_names as recipe_names
from .training import resume as resume
from .training import sweep as sweep
from .training import table as table
from .training import train as train
from .training.curves.analysis import curves as curves
from .training.loop.measure_outcome import MeasuredRun as MeasuredRun
from .training.loop.measure_run import measure as measure
from .training.trackers.export import Exported as Exported
from .training.trackers.export import export_metrics as export_metrics

__version__: str
