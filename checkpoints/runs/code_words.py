"""The options that name a run's own code again: no command line that goes on with a run is whole without them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..io.errors import FedscopeError
from ..io.untrusted import read_json

#: names of what no module holds: arrays, and code of a program or a notebook
_UNNAMED = ("python:", "__main__:")


def code_words(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return ``--code KIND=NAME`` for all own code of a run; nothing of what only the program has that trained it.

    Args:
        info: what ``run.json`` says.

    >>> code_words({"code": [{"kind": "server", "name": "mine:FedX"}, {"kind": "model", "name": "__main__:Net"}]})
    ('--code', 'server=mine:FedX')
    """
    words: list[str] = []
    for entry in info.get("code") or ():
        kind, name = entry.get("kind"), str(entry.get("name"))
        if ":" in name and not name.startswith(_UNNAMED) and f"{kind}={name}" not in words:
            words += ("--code", f"{kind}={name}")
    return tuple(words)


def code_words_at(path: Path) -> tuple[str, ...]:
    """Return them of the run in a folder; nothing where no run can be read there."""
    try:
        return code_words(read_json(path / "run.json", "a run's run.json", ""))
    except (FedscopeError, OSError):
        return ()
