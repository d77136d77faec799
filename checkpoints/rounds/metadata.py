"""Metadata of a round: who took part, with what weight, what was measured, which models there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from ..io.errors import list_few
from ..io.hdf5 import attribute
from ..io.hdf5_validation import ValidatedFile
from ..io.untrusted import fits_float
from .metrics import from_json
from .reader import RoundFile
from .run_identity import NAME, read_identity, refuse_other_run
from .writer import MIXING, OWN_STARTS, SAMPLED, SAMPLED_IDS, SAMPLED_STARTS, STALENESS, STARTS

#: the kinds of numbers of each column, and the type it is read as
COLUMNS: dict[str, tuple[str, type]] = {
    "client_ids": ("iu", np.int64),
    "client_samples": ("iu", np.int64),
    "client_steps": ("iu", np.int64),
    "client_loss": ("f", np.float64),
    "weights": ("f", np.float64),
    STALENESS: ("iu", np.int64),
}
# a round has some twenty numbers
_LONGEST = 2**20


@dataclass(frozen=True, eq=False)
class RoundMetadata:
    """The metadata of a round: its file without models.

    Attributes:
        columns: by name, [C] each; None where a program left one out.
        metrics: numbers by name.
        has_mean: whether the state of the average over rounds holds the clients' mean.
        client_states: the names of what clients keep.
        all_client_test_error: [N], where it was measured.
        sampled_ids: [m] int64, whose models there are where there are not those of all; None elsewhere.
        own_starts: whether the clients started from models of their own.
        mixing: [C, C] float64, rows sum to 1; None where it was not given.
    """

    columns: dict[str, np.ndarray | None]
    metrics: dict[str, float | int | None]
    has_mean: bool
    client_states: tuple[str, ...]
    all_client_test_error: np.ndarray | None
    sampled_ids: np.ndarray | None
    own_starts: bool = False
    mixing: np.ndarray | None = None


def read_names(file: RoundFile, number: int, identity: str | None = None) -> frozenset[str]:
    """List the names in a round's file; nothing of it is read.

    Args:
        identity: of the run that wrote it; None where that is not known.

    Raises:
        FedscopeError: damaged; another round's file, or another run's.
    """
    there = frozenset(file.names(""))
    _refuse_another_round(file, number)
    _refuse_another_run(file, identity)
    return there


def read_metadata(file: RoundFile, number: int, population: int | None, identity: str | None = None) -> RoundMetadata:
    """Read and check a round's metadata.

    Args:
        number: of the round, as the file's name says.
        population: N, where the run says it.
        identity: as of :func:`read_names`.

    Raises:
        FedscopeError: damaged; another round's file, or another run's.
    """
    there = read_names(file, number, identity)
    columns = {name: _column(file, name) if name in there else None for name in COLUMNS}
    refuse_columns(file.validated, columns, population)
    states = file.names("state") if "state" in there else []
    return RoundMetadata(
        columns=columns,
        metrics=_metrics(file),
        has_mean="average" in states and "clients_mean" in file.names("state/average"),
        client_states=tuple(file.names("client_state")) if "client_state" in there else (),
        all_client_test_error=_errors(file, population) if "all_client_test_error" in there else None,
        sampled_ids=_sampled_ids(file, columns["client_ids"]) if {SAMPLED, SAMPLED_IDS} & there else None,
        own_starts=attribute(file.file, "version") == OWN_STARTS or bool({STARTS, SAMPLED_STARTS, MIXING} & there),
        mixing=_mixing(file, columns["client_ids"]) if MIXING in there else None,
    )


def _column(file: RoundFile, name: str) -> np.ndarray:
    kinds, dtype = COLUMNS[name]
    column = file.array(name, kinds)
    if column.ndim != 1:
        raise file.validated.damaged(f"{name} has shape {column.shape}, not one number a client")
    if column.dtype.kind == "u" and len(column) and column.max() > np.iinfo(np.int64).max:
        raise file.validated.damaged(f"{name} has {column.max()}, which is too large")
    return np.asarray(column, dtype=dtype)


def _errors(file: RoundFile, population: int | None) -> np.ndarray:
    errors = file.array("all_client_test_error", "f")
    if errors.ndim != 1 or len(errors) != (len(errors) if population is None else population):
        of = "" if population is None else f" of {population}"
        raise file.validated.damaged(f"all_client_test_error has shape {errors.shape}, not one number a client{of}")
    return np.asarray(errors, np.float64)


def _sampled_ids(file: RoundFile, client_ids: np.ndarray | None) -> np.ndarray:
    """Read the ids of the clients whose models were recorded, where not all were: ascending, of clients that took
    part."""
    ids = np.asarray(file.array(SAMPLED_IDS, "iu"))
    known = set() if client_ids is None else set(client_ids.tolist())
    if ids.ndim != 1 or not len(ids) or (ids[1:] <= ids[:-1]).any() or not known.issuperset(ids.tolist()):
        raise file.validated.damaged(
            f"{SAMPLED_IDS} are not ascending numbers of clients that took part ({list_few(ids.ravel(), 6)})"
        )
    return ids.astype(np.int64)


def _mixing(file: RoundFile, client_ids: np.ndarray | None) -> np.ndarray:
    """Read the matrix that makes the next starts of the round's clients: a row a node, of finite weights, sum 1."""
    matrix, count = np.asarray(file.array(MIXING, "f"), np.float64), 0 if client_ids is None else len(client_ids)
    if matrix.shape != (count, count):
        raise file.validated.damaged(f"{MIXING} has shape {matrix.shape}, not [{count}, {count}], a row a client")
    sums = matrix.sum(axis=1)
    if not (np.isfinite(matrix).all() and (abs(sums - 1) <= 1e-5).all()):
        worst = sums[np.argmax(np.where(np.isfinite(sums), abs(sums - 1), np.inf))]
        raise file.validated.damaged(f"the rows of {MIXING} sum to 1, but here one sums to {worst:g}")
    return matrix


def read_sketch(file: RoundFile, clients: int) -> np.ndarray:
    """Read the sketches of a cohort's updates, [C, k].

    Raises:
        FedscopeError: damaged; of another number of clients.
    """
    sketches = np.asarray(file.array("sketch", "f"))
    if sketches.ndim != 2 or len(sketches) != clients or not sketches.shape[1]:
        raise file.validated.damaged(f"sketch has shape {sketches.shape}, not [{clients}, k], a row a client")
    return sketches


def read_whole_sketch(file: RoundFile, name: str) -> np.ndarray:
    """Read the sketch of one of a round's single models, [k].

    Raises:
        FedscopeError: damaged; of another size than those of the clients.
    """
    values = np.asarray(file.array(f"{name}_sketch", "f"))
    k = file.validated.dataset("sketch", "f").shape[1:]
    if values.shape != k:
        raise file.validated.damaged(f"{name}_sketch has shape {values.shape}, not {k} as the clients' sketches")
    return values


def _refuse_another_round(file: RoundFile, number: int) -> None:
    if not h5py.h5a.exists(file.file.id, b"round"):
        if file.has_table:
            raise file.validated.damaged("it lacks its number")
        return
    found = attribute(file.file, "round")
    if not isinstance(found, int) or isinstance(found, bool):
        raise file.validated.damaged("its number is none")
    if found != number:
        raise file.validated.damaged(f"it holds round {found}, though its name says {number}")
    file.verify_attribute("@round", np.array(found, np.int64))


def _refuse_another_run(file: RoundFile, expected: str | None) -> None:
    found = read_identity(file.file)
    if found is None:
        raise file.validated.damaged("its identity is not a text of letters")
    if found:
        file.verify_attribute(f"@{NAME}", found)
    elif file.has_table and f"@{NAME}" in file.table.places:
        raise file.validated.damaged("it does not say any more of which run it is")
    if expected is not None:
        refuse_other_run(file.path, found, expected)


def _metrics(file: RoundFile) -> dict[str, float | int | None]:
    if not h5py.h5a.exists(file.file.id, b"metrics"):
        if file.has_table:
            raise file.validated.damaged("it lacks its metrics")
        return {}
    text: Any = ""
    if h5py.h5a.open(file.file.id, b"metrics").get_storage_size() <= _LONGEST:
        text = attribute(file.file, "metrics")
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise file.validated.damaged("its metrics are not a text of numbers")
    file.verify_attribute("@metrics", text)
    try:
        metrics = from_json(text)
    except (ValueError, AttributeError, RecursionError):
        raise file.validated.damaged(f"its metrics are not a JSON object ({text:.40})") from None
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise file.validated.damaged(f"its metrics say {str(value)[:40]!r} for {name}, which is not a number")
        if isinstance(value, int) and not fits_float(value):
            raise file.validated.damaged(f"its metrics say a number of {len(str(value))} digits for {name}")
    return metrics


def refuse_columns(file: ValidatedFile, columns: dict[str, np.ndarray | None], population: int | None) -> None:
    """Refuse columns of a cohort that contradict each other or themselves.

    Args:
        population: N, where it is known: ids are below it.

    Raises:
        FedscopeError: lengths that differ; ids that are not ascending, or of no client of the run; counts below 0; p
            that is not finite, negative, or does not sum to 1.
    """
    sizes = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(sizes.values())) > 1:
        raise file.damaged(f"its columns have different lengths ({list_few(f'{k} {n}' for k, n in sizes.items())})")
    ids, p = columns["client_ids"], columns["weights"]
    if ids is not None and len(ids):
        if (ids[1:] <= ids[:-1]).any():
            raise file.damaged(f"client_ids are not ascending ({list_few(ids)})")
        if ids[0] < 0 or (population is not None and ids[-1] >= population):
            bound = "" if population is None else f", of clients 0 to {population - 1}"
            raise file.damaged(f"client_ids goes from {ids[0]} to {ids[-1]}{bound}")
    for name in ("client_samples", "client_steps", STALENESS):
        column = columns.get(name)
        if column is not None and (column < 0).any():
            raise file.damaged(f"{name} has {column.min()}, which counts nothing")
    # the sum of C numbers between 0 and 1, each rounded, be it in float32
    if p is not None and len(p) and not (np.isfinite(p).all() and p.min() >= 0 and abs(p.sum() - 1) <= 1e-5):
        raise file.damaged(f"weights are p, none negative and their sum 1, but here they sum to {p.sum():g}")
