"""Models at rest: run directories, addresses, layouts, files."""

from .addresses import Address, Model, load_model, parse_address
from .archives import npz_names, read_npz, refuse_oversize
from .durable import WriterLock, write_durably
from .errors import FedscopeError, FedscopeWarning, nearest, spoken_size
from .files import read_file, write_file
from .layout import Entry, Layout
from .metrics import COLUMNS
from .netcdf import Variable, read_netcdf, write_netcdf
from .opening import expanded, reading, regular
from .partition import Partition
from .pieces import Columns, Piece, read_columns, read_pieces
from .recording import Policy, size_on_disk
from .results.result import versions
from .results.store import Partial
from .round_writing import RoundRecord, write_round
from .rounds import Round
from .run_folders import find_run_folders, find_runs, refuse_occupied, size_of
from .runs import Run, recorded_clients, rounds_with_clients
from .weights import Weights, mean, stack, weighted_mean
from .writer import RunWriter

__all__ = [
    "COLUMNS",
    "Address",
    "Columns",
    "Entry",
    "FedscopeError",
    "FedscopeWarning",
    "Layout",
    "Model",
    "Partial",
    "Partition",
    "Piece",
    "Policy",
    "Round",
    "RoundRecord",
    "Run",
    "RunWriter",
    "Variable",
    "Weights",
    "WriterLock",
    "expanded",
    "find_run_folders",
    "find_runs",
    "load_model",
    "mean",
    "nearest",
    "npz_names",
    "parse_address",
    "read_columns",
    "read_file",
    "read_netcdf",
    "read_npz",
    "read_pieces",
    "reading",
    "recorded_clients",
    "refuse_occupied",
    "refuse_oversize",
    "regular",
    "rounds_with_clients",
    "size_of",
    "size_on_disk",
    "spoken_size",
    "stack",
    "versions",
    "weighted_mean",
    "write_durably",
    "write_file",
    "write_netcdf",
    "write_round",
]
