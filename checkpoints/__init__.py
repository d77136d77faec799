"""Stored models: runs, rounds, addresses, layouts, files."""

from typing import TYPE_CHECKING

from ..old_paths import names_of
from .io.archives import npz_names as npz_names
from .io.archives import read_npz as read_npz
from .io.archives import refuse_oversize as refuse_oversize
from .io.atomic import WriterLock as WriterLock
from .io.atomic import write_durably as write_durably
from .io.background import Background as Background
from .io.errors import FedscopeError as FedscopeError
from .io.errors import FedscopeWarning as FedscopeWarning
from .io.errors import format_size as format_size
from .io.errors import nearest as nearest
from .io.untrusted import expand_home as expand_home
from .io.untrusted import explain_read_errors as explain_read_errors
from .io.untrusted import real_path as real_path
from .io.untrusted import regular as regular
from .models.files import read_file as read_file
from .models.weights import Layout as Layout
from .models.weights import TensorEntry as TensorEntry
from .models.weights import Weights as Weights
from .models.weights import mean as mean
from .models.weights import stack as stack
from .models.weights import weighted_mean as weighted_mean
from .rounds.columns import ColumnChunk as ColumnChunk
from .rounds.columns import Columns as Columns
from .rounds.columns import read_chunks as read_chunks
from .rounds.columns import read_columns as read_columns
from .rounds.disk_matrix import DiskMatrix as DiskMatrix
from .rounds.disk_matrix import RecordedMatrix as RecordedMatrix
from .rounds.disk_matrix import TemporaryMatrix as TemporaryMatrix
from .rounds.disk_matrix import as_array as as_array
from .rounds.disk_matrix import as_disk_matrix as as_disk_matrix
from .rounds.disk_matrix import recorded_matrix as recorded_matrix
from .rounds.metrics import COLUMNS as COLUMNS
from .rounds.retention import RetentionPolicy as RetentionPolicy
from .rounds.retention import StateSize as StateSize
from .rounds.retention import size_on_disk as size_on_disk
from .rounds.round import Round as Round
from .rounds.writer import RoundRecord as RoundRecord
from .rounds.writer import write_round as write_round
from .runs.addresses import Address as Address
from .runs.addresses import Model as Model
from .runs.addresses import load_model as load_model
from .runs.addresses import parse_address as parse_address
from .runs.folders import find_run_folders as find_run_folders
from .runs.folders import find_runs as find_runs
from .runs.folders import is_without_info as is_without_info
from .runs.folders import refuse_occupied as refuse_occupied
from .runs.folders import size_of as size_of
from .runs.model_files import write_file as write_file
from .runs.partition import Partition as Partition
from .runs.run import Run as Run
from .runs.run import has_no_server as has_no_server
from .runs.run import recorded_clients as recorded_clients
from .runs.run import refuse_own_starts as refuse_own_starts
from .runs.run import rounds_with_clients as rounds_with_clients
from .runs.writer import RunWriter as RunWriter

if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
