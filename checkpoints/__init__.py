"""Models at rest: run directories, addresses, layouts, files."""

from .addresses import Address, Model, load_model, parse_address
from .columns import Columns, columns_of, read_columns
from .creating import refuse_occupied
from .durable import WriterLock, write_durably
from .errors import FedscopeError, FedscopeWarning, nearest
from .files import read_file, write_file
from .finding import find_run_folders, find_runs, size_of
from .foreign import expanded, reading, refuse_oversize
from .layout import Entry, Layout
from .metrics import COLUMNS
from .netcdf import Variable, read_netcdf, write_netcdf
from .npz import npz_names, read_npz
from .opening import regular
from .partition import Partition
from .pieces import Piece, read_pieces
from .progress import Partial
from .provenance import versions
from .recorded import recorded_clients, rounds_with_clients
from .recording import Policy, size_on_disk, spoken_size
from .round_files import RoundRecord, write_round
from .rounds import Round
from .runs import Run
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
    "columns_of",
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
