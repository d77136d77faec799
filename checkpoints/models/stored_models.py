"""Models that stay in their files until they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from .files import read_file
from .weights import Weights


class StoredModels(Mapping[str, Weights]):
    """Models in files, by their names; each is read when it is asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, name: str) -> Weights:
        return read_file(self._files[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
