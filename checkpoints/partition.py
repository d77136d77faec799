"""Which client holds which samples: ``partition.h5``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FedscopeError
from .hdf5 import check_version, reading, writing

FORMAT, VERSION = "fedscope-partition", 1


@dataclass(frozen=True, eq=False)
class Partition:
    """The split of the training samples over N clients.

    Attributes:
        clients: each client's indices into the train split, int64.
        test: each client's own test part, or None where clients keep none.
        label_counts: [N, classes] int64, of ``clients``.
    """

    clients: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...] | None
    label_counts: np.ndarray

    def save(self, path: Path | str) -> None:
        """Write ``offsets [N+1], indices [n], label_counts`` and if there are any ``test_offsets, test_indices``."""
        with writing(path) as file:
            file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
            _write_ragged(file, "", self.clients)
            if self.test is not None:
                _write_ragged(file, "test_", self.test)
            file["label_counts"] = np.asarray(self.label_counts, dtype=np.int64)

    @classmethod
    def load(cls, path: Path | str) -> Partition:
        """Read what :meth:`save` wrote; a file of another program needs the data sets only.

        Raises:
            FedscopeError: missing, truncated, foreign or newer.
        """
        path = Path(path)
        with reading(path, None, VERSION, "a run's partition") as file:
            if "offsets" not in file or "indices" not in file:
                raise FedscopeError(f"{path} is not a run's partition: it has no offsets and indices")
            check_version(path, file.attrs.get("version", VERSION), VERSION)
            clients = _read_ragged(file, "")
            test = _read_ragged(file, "test_") if "test_offsets" in file else None
            return cls(clients, test, np.asarray(file["label_counts"][()], dtype=np.int64))


def _write_ragged(file: Any, prefix: str, parts: Sequence[np.ndarray]) -> None:
    file[f"{prefix}offsets"] = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    file[f"{prefix}indices"] = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _read_ragged(file: Any, prefix: str) -> tuple[np.ndarray, ...]:
    offsets, indices = file[f"{prefix}offsets"][()], np.asarray(file[f"{prefix}indices"][()], dtype=np.int64)
    return tuple(indices[a:b] for a, b in pairwise(offsets))
