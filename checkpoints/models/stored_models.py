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


class RenamedModels(Mapping[str, Weights]):
    """Models by other names; each is read when it is asked for.

    >>> list(RenamedModels({"fma": None, "repaired": None}, {"fma": "FedAvg"}))
    ['FedAvg', 'repaired']
    """

    def __init__(self, models: Mapping[str, Weights], names: Mapping[str, str]) -> None:
        self._models, self._was = models, {names.get(name, name): name for name in models}

    def __getitem__(self, name: str) -> Weights:
        return self._models[self._was[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._was)

    def __len__(self) -> int:
        return len(self._was)
