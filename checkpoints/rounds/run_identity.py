"""The identity of a run, which is made when it begins and stands in each of its files."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..io.errors import FedscopeError
from ..io.hdf5 import attribute
from ..io.hdf5_validation import DamagedError

#: of the key in ``run.json``, and of the attribute of HDF5 files
NAME = "identity"
#: letters that a sentence shows of one
SHOWN = 12
_LENGTH = 32


def derive_identity(told: Any) -> str:
    """Derive an identity from what is told, as JSON: the same settings, data and code have the same, so that a run that
    is trained again can stand in for the first.

    >>> derive_identity({"seed": 0}) == derive_identity({"seed": 0}) != derive_identity({"seed": 1})
    True
    """
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def draw_identity() -> str:
    """Draw an identity that no other run has: of rounds from another program nothing tells beforehand what they are."""
    return uuid.uuid4().hex


def identity_of_round(info: Mapping[str, Any], number: int) -> str:
    """Find the identity that a round of a run bears: of a branch's history that of the run that made it.

    Args:
        info: ``run.json``.

    >>> info = {"identity": "b", "branch": {"identities": [[2, "a"]]}}
    >>> identity_of_round(info, 2), identity_of_round(info, 3), identity_of_round({}, 3)
    ('a', 'b', '')
    """
    for last, identity in info.get("branch", {}).get("identities", ()):
        if number <= last:
            return str(identity)
    return str(info.get(NAME, ""))


def identities_upto(info: Mapping[str, Any], number: int) -> list[list[Any]]:
    """List what :func:`identity_of_round` gives for rounds 1 to ``number``, as a branch's ``run.json`` has it: [last
    round, identity], ascending."""
    found: list[list[Any]] = []
    for last, identity in info.get("branch", {}).get("identities", ()):
        if last >= number:
            break
        found.append([last, identity])
    return [*found, [number, identity_of_round(info, number)]]


def shared_rounds(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Find the last round up to which two runs have all rounds from one training, as two branches of a run have, or a
    run and its branch; 0 where there is none. Runs that do not branch share none: of copies the files tell.

    Args:
        one, other: ``run.json`` of each.

    >>> trunk = {"identity": "a"}
    >>> four, two = ({"identity": name, "branch": {"identities": [[n, "a"]]}} for name, n in (("b", 4), ("c", 2)))
    >>> shared_rounds(four, two), shared_rounds(trunk, four), shared_rounds(trunk, {"identity": "d"})
    (2, 4, 0)
    """
    shared = 0
    for last in sorted({last for info in (one, other) for last in _ends(info)}):
        maker = _maker(one, last)
        if not maker or maker != _maker(other, last):
            break
        shared = last
    return shared


def _ends(info: Mapping[str, Any]) -> list[int]:
    """List the last rounds that a branch has from each run."""
    branch = info.get("branch", {})
    return [int(last) for last, _ in branch.get("identities", ())] or ([int(branch["round"])] if branch else [])


def _maker(info: Mapping[str, Any], number: int) -> str:
    """Return what tells the run that made a round: its identity, or of an earlier fedscope's when it was made."""
    branch = info.get("branch", {})
    return identity_of_round(info, number) or str(
        (branch if number <= branch.get("round", 0) else info).get("created") or ""
    )


def read_identity(file: Any) -> str | None:
    """Read the identity in an open HDF5 file; "" where there is none, None where it is no text of an identity."""
    value = attribute(file, NAME)
    if value is None:
        return ""
    return value if isinstance(value, str) and len(value) <= 2 * _LENGTH and value.isalnum() else None


class OtherRunError(DamagedError):
    """A file that was written for another run.

    Args:
        path: of the file.
        found: its identity; expected: what ``run.json`` says of the file.
    """

    def __init__(self, path: Path, found: str, expected: str) -> None:
        own = f"its own is {expected[:SHOWN]}" if expected else "it says none of its own"
        says = f"identity {found[:SHOWN]}" if found else "no identity"
        what = f"it says {says}, and of the run in this folder {own} (run.json)"
        FedscopeError.__init__(self, f"{path} is of another run: {what}; restore the file from a copy of this run")
        self.path, self.what = path, f"it is of another run: {what}; restore it from a copy of this run"


def refuse_other_run(path: Path, found: str, expected: str) -> None:
    """Refuse a file that was written for another run.

    Args:
        found: its identity, "" of a file without: an earlier fedscope or another program wrote it. It passes in a run
            that has none either; in one that has, each file bears it.
        expected: what ``run.json`` says of the file.

    Raises:
        OtherRunError: names the file and both.
    """
    if found != expected:
        raise OtherRunError(path, found, expected)
