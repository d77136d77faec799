"""Text files as they are read: regular, of a size that their kind has, in UTF-8; JSON or TOML where they should be."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from .errors import FedscopeError
from .opening import regular
from .recording import spoken_size

#: bytes that no file of the kind ever has: settings and ``run.json``; a result's tables and what is said of them
SETTINGS, RESULT = 2**24, 2**30


def read_text(path: Path, what: str, remedy: str, most: int = SETTINGS, errors: str = "strict") -> str:
    """A file's text.

    Args:
        what: for the sentence: "a run's configuration".
        remedy: what its reader can do when it is damaged: "restore it from a copy".
        most: bytes that it may have; more are refused before they are read.
        errors: ``replace`` where what is not UTF-8 may stay in, marked.

    Raises:
        FedscopeError: no regular file, too long, not UTF-8.
        OSError: missing, or not to be read.
    """
    regular(path, what)
    size = path.stat().st_size
    if size > most:
        raise FedscopeError(f"{path} has {spoken_size(size)}, but {what} has at most {spoken_size(most)}; {remedy}")
    try:
        return path.read_bytes().decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise FedscopeError(f"{path} is damaged: byte {error.start} is not UTF-8; {remedy}") from None


def read_json(path: Path, what: str, remedy: str, most: int = SETTINGS) -> Any:
    """What a JSON file holds. Raises as :func:`read_text`, and FedscopeError for what is no JSON."""
    try:
        return json.loads(read_text(path, what, remedy, most))
    except ValueError as error:
        raise FedscopeError(f"{path} is not JSON ({_first_line(error)}); {remedy}") from None
    except RecursionError:
        raise FedscopeError(f"{path} is damaged: its JSON is nested too deep; {remedy}") from None


def read_toml(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """What a TOML file holds. Raises as :func:`read_text`, and FedscopeError for what is no TOML."""
    try:
        return tomllib.loads(read_text(path, what, remedy).replace("\r\n", "\n"))
    except ValueError as error:  # also numbers of more digits than Python reads
        raise FedscopeError(f"{path} is not TOML: {_first_line(error)}; {remedy}") from None
    except RecursionError:
        raise FedscopeError(f"{path} is damaged: its TOML is nested too deep; {remedy}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
