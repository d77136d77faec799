"""Models in motion: data, partitions, architectures, methods, and the round loop that plays and records them."""

from .branching import branch, branch_notes, branched_config
from .building import build_module, config_of, data_of, draw_cohort, learnt_by, load_data, model_settings, module_of
from .config import Config, merge, read_assignments, read_toml, recorded_tables
from .curves import Curve, Curves, curves, metrics_of
from .dataset import Dataset
from .engine import Engine, resolve_device
from .federation import Federation
from .lineage import config_at
from .measures import MEASURES, USUAL, measure_of
from .own_data import taken_data
from .own_task import given_task
from .presets import canonical_method, preset, presets
from .replays import Replayer
from .splitting import partition
from .trainer import resume, train

__all__ = [
    "MEASURES",
    "USUAL",
    "Config",
    "Curve",
    "Curves",
    "Dataset",
    "Engine",
    "Federation",
    "Replayer",
    "branch",
    "branch_notes",
    "branched_config",
    "build_module",
    "canonical_method",
    "config_at",
    "config_of",
    "curves",
    "data_of",
    "draw_cohort",
    "given_task",
    "learnt_by",
    "load_data",
    "measure_of",
    "merge",
    "metrics_of",
    "model_settings",
    "module_of",
    "partition",
    "preset",
    "presets",
    "read_assignments",
    "read_toml",
    "recorded_tables",
    "resolve_device",
    "resume",
    "taken_data",
    "train",
]
