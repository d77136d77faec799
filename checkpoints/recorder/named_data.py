"""What a recorded run says of its data: their name, and of a file where it lies and what was in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FedscopeError
from ..io.untrusted import expanded, real_path
from ..runs.info import sha256_of

_FILE = "npz:"


def named_data(name: str) -> dict[str, str]:
    """The ``data`` of ``run.json``; of an ``npz:PATH`` that is there the absolute path, and ``file_sha256``.

    >>> named_data("digits"), named_data("npz:nowhere.npz")
    ({'name': 'digits'}, {'name': 'npz:nowhere.npz'})
    """
    path = path_of(name)
    if path is None or not path.is_file():
        return {"name": name}
    return {"name": f"{_FILE}{real_path(path)}", "file_sha256": sha256_of(path)}


def refuse_changed(run: Path, data: Mapping[str, Any]) -> None:
    """Make sure that the file that a recorded run names is still the one that was there; where it is gone, reading it
    will say so.

    Raises:
        FedscopeError: it is another.
    """
    recorded, path = data.get("file_sha256"), path_of(data.get("name", ""))
    if recorded is None or path is None or not path.is_file():
        return
    found = sha256_of(path)
    if found != recorded:
        raise FedscopeError(
            f"{run}: {path} has changed since the run was recorded (sha256 {found[:12]}..., the run saw "
            f"{recorded[:12]}...); restore it, or give --data {_FILE}{path} to measure on what it is now"
        )


def path_of(name: str) -> Path | None:
    """Where the file of ``npz:PATH`` lies; None of other names."""
    return expanded(name.removeprefix(_FILE)) if name.startswith(_FILE) else None
