"""All that is wrong with a round's file, not only the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..io import checksums
from ..io.errors import FedscopeError
from ..io.hdf5_validation import DamagedError
from .metadata import read_metadata, read_names, read_sketch, read_whole_sketch
from .models import open_entry, read_client_state, read_state
from .reader import OtherLayoutError, RoundFile, open_round
from .round import Round
from .run_identity import read_identity
from .writer import CLIENTS, MODELS, SAMPLED, SAMPLED_STARTS, STARTS


@dataclass(frozen=True)
class RoundCheck:
    """The outcome of a file's check.

    Attributes:
        checksums: how many were compared; None of a file that was written without.
        faults: what is wrong, a clause each.
        identity: of the run that the file says it is of; "" where it says none.
    """

    checksums: int | None
    faults: tuple[str, ...]
    identity: str = ""


def check_round(round_: Round) -> RoundCheck:
    """Compare all of a round's file with its checksums, and what it holds with the run's layout; a row at a time.

    What this process has verified before is read and compared again.
    """
    faults: list[str] = []
    compared: int | None = None
    identity = ""
    try:
        with open_round(round_.path, round_.layout, anew=True) as file:
            identity = read_identity(file.file) or ""
            if file.has_table:
                compared = 0
                for path, place in file.table.places.items():
                    if "@" not in path:
                        compared += _compare(file, path, file.table.records["client"][place], faults)
            attributes = _walk(file, round_, faults)
            compared = None if compared is None else compared + attributes
    except FedscopeError as error:
        faults.append(_clause(error))
    return RoundCheck(compared, tuple(dict.fromkeys(faults)), identity)


def _compare(file: RoundFile, path: str, clients: np.ndarray, faults: list[str]) -> int:
    """Compare one dataset, or each of its rows, and return how many checksums that were."""
    try:
        stored = file.validated.dataset(path, "biufc")
        if clients[0] == checksums.NONE:
            file.array(path)
        else:
            file.ids = clients.tolist()  # as they were written, whatever has become of client_ids
            if stored.shape[:1] != clients.shape:
                raise file.validated.damaged(f"{path} has shape {stored.shape}, but {len(clients)} rows were written")
            for place in range(len(clients)):
                try:
                    file.rows(path, [place])
                except FedscopeError as error:
                    faults.append(_clause(error))
    except (FedscopeError, OSError, RuntimeError, ValueError, KeyError) as error:
        faults.append(_clause(error))
    return len(clients)


def _walk(file: RoundFile, round_: Round, faults: list[str]) -> int:
    """Look at all that the file says of itself as its readers do, and return how many checksums attributes had."""
    try:
        there = read_names(file, round_.number, round_.identity)
        metadata = read_metadata(file, round_.number, round_.population, round_.identity)
    except FedscopeError as error:
        faults.append(_clause(error))
        return 0
    ids = metadata.columns["client_ids"]
    cohort: Sequence[int] | np.ndarray = () if ids is None else ids
    sampled: Sequence[int] | np.ndarray = () if metadata.sampled_ids is None else metadata.sampled_ids
    rows = {CLIENTS: cohort, STARTS: cohort, SAMPLED: sampled, SAMPLED_STARTS: sampled}
    for group in (*MODELS, *rows):
        file.ids = rows.get(group, ())
        if group not in there:
            continue
        try:
            file.refuse_unlisted(group)
        except FedscopeError as error:
            faults.append(_clause(error))
            continue
        for entry in file.layout.entries:
            try:
                open_entry(file, group, entry, stacked=group in rows)
            except FedscopeError as error:
                faults.append(_clause(error))
    file.ids = cohort
    try:
        if "sketch" in there:
            read_sketch(file, len(file.ids))
            for name in MODELS:
                if f"{name}_sketch" in there:
                    read_whole_sketch(file, name)
        read_state(file)
        for name in metadata.client_states:
            read_client_state(file, name, range(len(file.ids))[:1])
    except FedscopeError as error:
        faults.append(_clause(error))
    return sum("@" in path for path in file.table.places) if file.has_table else 0


def _clause(error: Exception) -> str:
    return error.what if isinstance(error, DamagedError | OtherLayoutError) else str(error)
