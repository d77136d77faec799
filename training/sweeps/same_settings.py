"""Whether a run's settings are those of a plan, although a run says some of them otherwise.

It has whole paths, and what its machine, its data and other packages add as it begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, expand_home, real_path
from ...checkpoints.models.files import file_and_key
from ..data.same_data import is_fixed_by_name

#: what a run settles by the machine that it is trained on, whatever the plan says
_OF_MACHINE = (("run", "device"), ("run", "engine"))
_TASK, _PLAIN = ("model", "task"), "classification"


def is_same_setting(
    place: tuple[str, str], recorded: Any, meant: Any, directory: Path | None = None, data: str = ""
) -> bool:
    """Check whether a run has a setting as a plan means it.

    Args:
        place: its section and key; directory: that relative paths of the plan begin at, by default this process's.
        data: the plan's ``data.name``, which decides what is learnt where the plan does not say it.

    >>> is_same_setting(("data", "name"), "npz:/data/a.npz", "npz:a.npz", Path("/data"))
    True
    >>> is_same_setting(("data", "name"), "npz:/data/b.npz", "npz:a.npz", Path("/data"))
    False
    """
    if recorded == meant or place in _OF_MACHINE:
        return True
    if place == _TASK:
        return bool((recorded or _PLAIN) == (meant or _task_of(data)))
    if not (isinstance(recorded, str) and isinstance(meant, str)):
        return False
    if place == ("data", "name"):
        return _is_same_data(recorded, meant, directory)
    if place == ("model", "weights"):
        (one, of_one), (other, of_other) = file_and_key(recorded), file_and_key(meant)
        return of_one == of_other and _is_same_file(one, other, directory)
    return place == ("data", "partition") and _is_same_partition(recorded, meant)


def _task_of(data: str) -> str:
    """Name what is learnt where nothing but the data says it; loads torch."""
    from ..tasks import task_of_data

    return task_of_data(data).name


def _is_same_data(recorded: str, meant: str, directory: Path | None) -> bool:
    """Check whether a run's data are those that a plan names: a set that its name fixes, or one file."""
    (kind, _, one), (other_kind, _, other) = recorded.partition(":"), meant.partition(":")
    if kind != other_kind:
        return False
    if is_fixed_by_name(meant):  # wherever its files lie
        return True
    if kind not in ("npz", "folder", "text"):  # code of the user's own
        return False
    if kind == "text":  # FILE@FOLDER
        (one, _, by_one), (other, _, by_other) = one.rpartition("@"), other.rpartition("@")
        if not _is_same_file(by_one, by_other, directory):
            return False
    return _is_same_file(one, other, directory)


def _is_same_file(recorded: str, meant: str, directory: Path | None) -> bool:
    """Check whether a run's whole path is that of the file which a plan names.

    Files of one name are taken for one that has moved, unless both are there and are two.
    """
    try:
        here, there = real_path((directory or Path()) / expand_home(meant)), Path(recorded)
        if here == there or here == real_path(there):
            return True
        if here.name != there.name:
            return False
        return not (here.exists() and there.exists()) or here.samefile(there)
    except (OSError, FedscopeError):  # a name that no file has
        return False


def _is_same_partition(recorded: str, meant: str) -> bool:
    """Check whether a run's partition is the plan's with the values that only another package knows."""
    from ..data.split import parse_partition

    try:
        return parse_partition(meant).is_settled_as(parse_partition(recorded))
    except FedscopeError:  # a name that there is not
        return False
