"""What an interrupted analysis had computed, so that the same command goes on from there."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from .errors import FedscopeWarning
from .opening import regular


class Partial:
    """An append-only store of finished parts, one JSON line each; the first line says which question they answer.

    A torn last line (a kill while writing) is left out; a store of another question (``fingerprint``) starts afresh,
    with a warning. Without a path parts are kept as long as the object.

    Attributes:
        done: finished parts by key.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Partial(Path(folder, "plane.partial"), {"grid": 51}) as store:
    ...         store.add("7", [0.5, 0.1])
    ...     Partial(Path(folder, "plane.partial"), {"grid": 51}).done
    {'7': [0.5, 0.1]}
    """

    def __init__(self, path: Path | str | None, fingerprint: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self._head = json.dumps(fingerprint, sort_keys=True)
        self._file: TextIO | None = None
        self.done: dict[str, Any] = {}
        self._whole = self._read()

    def _read(self) -> int:
        """Take over the finished parts; returns how many bytes of the file are good."""
        if self.path is None:
            return 0
        try:
            content = regular(self.path, "the store of an interrupted analysis").read_bytes()
        except FileNotFoundError:
            return 0
        good = 0
        for i, line in enumerate(content.splitlines(keepends=True)):
            try:
                part = json.loads(line)
            except (ValueError, RecursionError):
                break
            if i and not (isinstance(part, dict) and isinstance(part.get("key"), str) and "value" in part):
                break
            if not line.endswith(b"\n"):
                break
            if i == 0 and json.dumps(part, sort_keys=True) != self._head:
                warnings.warn(
                    f"{self.path} was left by an analysis with other settings, models or versions, so this one begins "
                    "anew",
                    FedscopeWarning,
                    stacklevel=2,
                )
                break
            if i:
                self.done[part["key"]] = part["value"]
            good += len(line)
        return good

    def add(self, key: str, value: Any) -> None:
        """Keep one finished part (what JSON holds, NaN and infinities too)."""
        line = json.dumps({"key": key, "value": value}) + "\n"
        if self.path is None:  # the same numbers as from a file
            self.done[key] = json.loads(line)["value"]
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
            self._file.truncate(self._whole)
            if not self._whole:
                self._file.write(self._head + "\n")
        self._file.write(line)
        self._file.flush()
        self.done[key] = value

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file is not None:
            self._whole = self._file.tell()
            self._file.close()
            self._file = None

    def finish(self) -> None:
        """Remove the file: the result is safe elsewhere."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self._whole = 0

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
