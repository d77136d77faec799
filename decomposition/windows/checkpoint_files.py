"""Checkpoints of one training in a folder of files: which there are, in which order, and their numbers [C, P]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64

from ...checkpoints import FedscopeError, Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.models.files import SUFFIXES, files_of_model, is_model_folder
from ...checkpoints.models.folders import PART, model_in, model_names
from ...checkpoints.recorder.match_files import natural

if TYPE_CHECKING:
    from ...training.inputs.models import ResolvedModels


@dataclass(frozen=True)
class CheckpointFolder:
    """The checkpoints of a folder, the newest last.

    Attributes:
        path: of the folder.
        names: of the files in it, or of the folders that hold one model each.
        beside: files that are left out, because the folder's checkpoints are folders.
    """

    path: Path
    names: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @property
    def addresses(self) -> list[str]:
        """The checkpoints as a user names them."""
        return [str(self.path / name) for name in self.names]

    def states(self) -> list[str]:
        """Return what tells the files from others of their names: of each its bytes and when it was written.

        Raises:
            FedscopeError: parts of a model that are not there.
        """
        found = []
        for name in self.names:
            for file in files_of_model(self.path / name):
                about = file.stat()
                written = datetime.fromtimestamp(about.st_mtime_ns // 1000 / 1e6, UTC).isoformat()
                found.append(f"{file.relative_to(self.path)} ({about.st_size} bytes, written {written})")
        return found


def is_checkpoint_folder(path: Path) -> bool:
    """Check whether a folder is no run and holds models, as files or in folders of their own."""
    if not path.is_dir() or (path / "run.json").exists():
        return False
    return bool(model_names(path, SUFFIXES) or _model_folders(path)) or is_model_folder(path)


def find_checkpoints(path: Path) -> CheckpointFolder:
    """Find the checkpoints of a folder: its model files; or its folders of one model, where it has two or more of them.

    Raises:
        FedscopeError: there is none, or only one.
    """
    folders, files = _model_folders(path), model_names(path, SUFFIXES)
    names = folders if len(folders) > 1 else files or folders
    if not names:
        names = sorted((entry.name for entry in path.iterdir() if not entry.name.startswith(".")), key=natural)
        holds = f"; it holds {list_few(names, 4)}" if names else "; it is empty"
        raise FedscopeError(
            f"{path} holds no checkpoint: no model's file ({', '.join(SUFFIXES)}), and no folders of a model{holds}; "
            "give another folder, or RUN@ROUND"
        )
    if names is files and (one := _single(path, files)):
        raise FedscopeError(
            f"{path} holds one checkpoint ({one}), so there is nothing to average; give a folder of several"
        )
    if len(names) == 1:
        raise FedscopeError(
            f"{path} holds one checkpoint ({names[0]}), so there is nothing to average; give a folder of several"
        )
    beside = tuple(sorted(files, key=natural)) if names is folders else ()
    return CheckpointFolder(path, tuple(sorted(names, key=natural)), beside)


def _model_folders(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if not entry.name.startswith(".") and is_model_folder(entry)]


def _single(path: Path, files: Sequence[str]) -> str:
    """The one model that several files of a folder are: its index, or its parts; "" where they are several."""
    if len(files) < 2 or (found := model_in(path, SUFFIXES)) is None:
        return ""
    parts = [name for name in files if PART.fullmatch(name)]
    if found == path:
        return f"{len(files)} parts of one model"
    return f"{found.name}, of {len(parts)} parts" if found.name not in files else ""


class RowDigests:
    """The XXH3 of each checkpoint's parameters, 64 bits, made as their columns are read.

    >>> import numpy as np
    >>> whole, parts = RowDigests(1), RowDigests(1)
    >>> whole.add(np.float32([[1, 2, 3]]))
    >>> parts.add(np.float32([[1]])), parts.add(np.float32([[2, 3]]))
    (None, None)
    >>> whole.texts() == parts.texts()
    True
    """

    def __init__(self, count: int) -> None:
        self._sums = [xxh3_64() for _ in range(count)]

    def add(self, values: np.ndarray) -> None:
        """Take the next columns of all checkpoints, [C, n]."""
        for running, row in zip(self._sums, values, strict=True):
            running.update(row)

    def texts(self) -> list[str]:
        """Return the digests of all that was added."""
        return [running.hexdigest() for running in self._sums]


def copies_in(names: Sequence[str], sums: Sequence[str], buffers: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Return the names of checkpoints that are the same model, in a list of each such model.

    Args:
        sums: of their parameters, as :class:`RowDigests` has them; buffers: of all, [C, ...].

    >>> copies_in(["epoch=0", "epoch=1", "last"], ["a", "b", "b"], {"count": np.array([0, 1, 1])})
    [['epoch=1', 'last']]
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for k, (name, own) in enumerate(zip(names, sums, strict=True)):
        beside = (xxh3_64(np.ascontiguousarray(values[k]).tobytes()).hexdigest() for values in buffers.values())
        found.setdefault((own, *beside), []).append(name)
    return [same for same in found.values() if len(same) > 1]


def read_checkpoints(
    resolved: ResolvedModels, folder: CheckpointFolder, progress: Callable[[int, int], None] | None = None
) -> Weights:
    """Open all checkpoints of a folder, [C, P].

    Where all are ``.safetensors`` with the network's own names and types, only their buffers are read here, and their
    parameters are read when they are asked for, from where they lie. Else each file is read as a whole, once; up to
    half a GB of models are then held in memory, and more lie in a file without a name in the folder for temporary
    files.

    Args:
        resolved: the network that they are read into.
        progress: called with (files done, of).

    Raises:
        FedscopeError: a file that is none, or of another network; no room.
    """
    from ...checkpoints.models.expected import ExpectedModel
    from ...checkpoints.rounds.file_rows import rows_of_files
    from ...training.inputs.models import read_into_same
    from .checkpoint_means import room_for

    direct = rows_of_files(folder.addresses, ExpectedModel.of(resolved.module))
    if direct is not None:
        return direct
    layout = resolved.models[0].weights.layout
    rows = room_for(len(folder.names), layout.size, layout.dtype, "checkpoints")
    buffers: dict[str, list[np.ndarray]] = {entry.name: [] for entry in layout.buffers}
    for k, model in enumerate(read_into_same(resolved, folder.addresses)):
        rows[k] = model.weights.parameters
        for name, values in model.weights.buffers.items():
            buffers[name].append(values)
        if progress is not None:
            progress(k + 1, len(folder.names))
    return Weights(layout, rows, {name: np.stack(own) for name, own in buffers.items()})
