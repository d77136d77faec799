"""The partition of the samples among clients: ``partition.h5``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError
from ..io.hdf5 import attribute, check_version, open_hdf5, write_hdf5
from ..io.hdf5_validation import read_array, refuse_links
from ..rounds.run_identity import NAME, read_identity, refuse_other_run

FORMAT, VERSION = "fedscope-partition", 1
_RESTORE = "restore it from a copy"


@dataclass(frozen=True, eq=False)
class Partition:
    """The split of the training samples over N clients.

    Attributes:
        clients: each client's indices into the train split, int64.
        test: each client's own test part, or None where clients keep none.
        label_counts: [N, classes] int64, of ``clients``; samples whose label a criterion ignores are in none.
    """

    clients: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...] | None
    label_counts: np.ndarray

    def counts_of(self, client_ids: np.ndarray) -> np.ndarray:
        """Return the label counts of clients, [C, classes].

        Raises:
            FedscopeError: a client that it does not have.
        """
        if len(other := client_ids[(client_ids < 0) | (client_ids >= len(self.clients))]):
            raise FedscopeError(
                f"client {other[0]} is not in the partition, which has clients 0 to {len(self.clients) - 1}: take the "
                "partition of the same run"
            )
        counts: np.ndarray = self.label_counts[client_ids]
        return counts

    def save(self, path: Path | str, identity: str = "") -> None:
        """Write ``offsets [N+1], indices [n], label_counts`` and if there are any ``test_offsets, test_indices``, and
        ``ignored_counts [N]``, of samples without a class.

        Args:
            identity: of the run, where it has one.
        """
        with write_hdf5(path) as file:
            file.attrs["format"], file.attrs["version"] = FORMAT, VERSION
            if identity:
                file.attrs[NAME] = identity
            _write_ragged(file, "", self.clients)
            if self.test is not None:
                _write_ragged(file, "test_", self.test)
            file["label_counts"] = counts = np.asarray(self.label_counts, dtype=np.int64)
            sizes = np.array([len(part) for part in self.clients], np.int64)
            if counts.shape[1] > 1 and len(counts) == len(sizes) and (counts.sum(axis=1) < sizes).any():
                file["ignored_counts"] = sizes - counts.sum(axis=1)

    @classmethod
    def load(cls, path: Path | str, identity: str | None = None) -> Partition:
        """Read what :meth:`save` wrote; a file of another program needs the data sets only. The arrays cannot be
        written to: a run keeps them for all who ask.

        Args:
            identity: of the run that wrote it; None where that is not known.

        Raises:
            FedscopeError: missing, truncated, foreign or newer; of another run; offsets, indices and counts that do not
                fit together.
        """
        path = Path(path)
        with open_hdf5(path, None, VERSION, "a run's partition") as file:
            refuse_links(path, file)
            if "offsets" not in file or "indices" not in file:
                raise FedscopeError(f"{path} is not a run's partition: it has no offsets and indices")
            version = attribute(file, "version")
            check_version(path, VERSION if version is None else version, VERSION)
            if identity is not None:
                refuse_other_run(path, read_identity(file) or "", identity)
            clients = _read_ragged(path, file, "")
            test = _read_ragged(path, file, "test_") if "test_offsets" in file else None
            counts = read_array(path, file, "label_counts", "iu", 2)
            ignored = read_array(path, file, "ignored_counts", "iu", 1) if "ignored_counts" in file else None
        if test is not None and len(test) != len(clients):
            raise _damage_error(path, f"it has {len(clients)} clients, but {len(test)} test parts")
        sizes = np.array([len(part) for part in clients], dtype=np.int64)
        ignored = np.zeros_like(sizes) if ignored is None else ignored.astype(np.int64)
        fits = len(counts) == len(ignored) == len(clients) and (counts >= 0).all() and (ignored >= 0).all()
        if not fits or (counts.sum(axis=1) + ignored != sizes).any():
            raise _damage_error(path, "its label_counts are not those of its clients' samples")
        return cls(clients, test, _fixed(counts))

    def refuse_other(self, path: Path, clients: int | None, classes: int | None, samples: int | None) -> None:
        """Refuse a partition that is not of a run with so many clients, classes and training samples.

        Args:
            path: for the sentence.
            clients, classes, samples: what ``run.json`` says; None where it does not.

        Raises:
            FedscopeError: another number of clients or classes; a sample that there is not.
        """
        for words, found, said in (
            ("clients", len(self.clients), clients),
            ("classes", self.label_counts.shape[1], classes),
        ):
            if said is not None and found != said:
                raise FedscopeError(
                    f"{path} has {found} {words}, but run.json says {said}; it belongs to another run: {_RESTORE}"
                )
        last = max((int(part.max()) for part in self.clients if len(part)), default=-1)
        if samples is not None and last >= samples:
            raise FedscopeError(
                f"{path} gives a client sample {last}, but run.json says that there are {samples} training samples; "
                f"it belongs to another run: {_RESTORE}"
            )


def _write_ragged(file: Any, prefix: str, parts: Sequence[np.ndarray]) -> None:
    file[f"{prefix}offsets"] = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    file[f"{prefix}indices"] = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _read_ragged(path: Path, file: Any, prefix: str) -> tuple[np.ndarray, ...]:
    offsets, indices = (read_array(path, file, f"{prefix}{name}", "iu", 1) for name in ("offsets", "indices"))
    offsets, indices = offsets.astype(np.int64), _fixed(indices)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(indices) or (np.diff(offsets) < 0).any():
        raise _damage_error(path, f"its {prefix}offsets do not divide its {len(indices)} {prefix}indices")
    if len(indices) and indices.min() < 0:
        raise _damage_error(path, f"its {prefix}indices hold {indices.min()}, which is not a sample")
    return tuple(indices[a:b] for a, b in pairwise(offsets))


def _fixed(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers in 64 bits that cannot be written to, and parts of them neither."""
    made = numbers.astype(np.int64)
    made.flags.writeable = False
    return made


def _damage_error(path: Path, what: str) -> FedscopeError:
    return FedscopeError(f"{path} is damaged: {what}; {_RESTORE}")
