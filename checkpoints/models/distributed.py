"""Folders of ``torch.distributed.checkpoint``, read by one process as one model.

``.metadata`` is a pickle that says which tensors there are and in which parts of the ``.distcp`` files their pieces
lie. It is read without torch's classes: whatever it names becomes a record that does nothing, so no code of anybody's
is run. Each piece is a tensor that ``torch.save`` wrote.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.archives import read_torch_part
from ..io.errors import FedscopeError, format_size, list_few
from ..io.untrusted import explain_read_errors, regular

if TYPE_CHECKING:
    from torch import Tensor

METADATA, PIECES = ".metadata", ".distcp"
#: bytes that the list of a model's pieces may have
_MOST = 2**28
_WHAT = "the list of a distributed checkpoint"
# What torch's list is made of; other names are of code that somebody wants to have run.
_ROOTS = ("torch", "pathlib", "collections")
_DEEP = 32
_DTYPE = re.compile(r"b?float\d+(_\w+)?|u?int\d+|bool|complex\d+")


class Record:
    """An object of a class of torch's, of which only the state is kept."""

    state: Any = None
    arguments: tuple[Any, ...] = ()

    def __new__(cls, *arguments: Any) -> Record:
        """Keep what a pickle calls the class with."""
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def field(self, name: str) -> Any:
        """Return an attribute; None where there is none."""
        return self.state.get(name) if isinstance(self.state, dict) else None


@dataclass(frozen=True)
class _Piece:
    """A part of a tensor.

    Attributes:
        offsets, sizes: where in the tensor it lies.
        file: that holds it; start, length: bytes in it.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


@dataclass(frozen=True)
class _Stored:
    """A tensor of a checkpoint.

    Attributes:
        place: the keys under which it lies.
    """

    place: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[_Piece, ...]


def is_distributed(folder: Path) -> bool:
    """Check whether this is a folder of ``torch.distributed.checkpoint``."""
    return (folder / METADATA).is_file() and any(folder.glob(f"*{PIECES}"))


class DistributedFolder:
    """The tensors of a distributed checkpoint.

    Args:
        folder: that has ``.metadata``.

    Attributes:
        nested: by key what lies there; in place of each tensor one of the meta device, without numbers.

    Raises:
        FedscopeError: a list that is damaged, too long, or names code; files that are not there.
    """

    def __init__(self, folder: Path) -> None:
        import torch

        self.folder = folder
        self.nested: dict[str, Any] = {}
        self._stored: dict[int, _Stored] = {}
        self._kept: list[Tensor] = []
        for stored in _tensors(folder / METADATA):
            place = self.nested
            for key in stored.place[:-1]:
                inner = place.setdefault(key, {})
                place = inner if isinstance(inner, dict) else {}
            stand_in = torch.empty(stored.shape, dtype=getattr(torch, stored.dtype), device="meta")
            place[stored.place[-1]] = stand_in
            self._stored[id(stand_in)] = stored
            self._kept.append(stand_in)
        files = {piece.file for stored in self._stored.values() for piece in stored.pieces}
        missing = sorted(name for name in files if not (folder / name).is_file())
        if missing:
            one = len(missing) == 1
            raise FedscopeError(
                f"{folder}: of a model's {len(files)} parts {list_few(missing, 4)} {'is' if one else 'are'} not there; "
                f"copy {'it' if one else 'them'} again"
            )

    def read(self, chosen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Read the numbers of some of the tensors in :attr:`nested`, by other names.

        Raises:
            FedscopeError: pieces that are damaged, or are not the whole tensor.
        """
        return {name: self._read(name, self._stored[id(stand_in)]) for name, stand_in in chosen.items()}

    def _read(self, name: str, stored: _Stored) -> Tensor:
        import torch

        dtype = getattr(torch, stored.dtype)
        there = sum(piece.length for piece in stored.pieces)
        needed = prod(stored.shape) * dtype.itemsize
        if needed > there:
            raise FedscopeError(
                f"{self.folder}: {name} takes {format_size(needed)}, but its pieces have {format_size(there)}; copy "
                "the folder again"
            )
        whole = torch.empty(stored.shape, dtype=dtype)
        for piece in stored.pieces:
            path = self.folder / piece.file
            values = read_torch_part(path, piece.start, piece.length)
            if not isinstance(values, torch.Tensor) or tuple(values.shape) != piece.sizes or values.dtype != dtype:
                raise FedscopeError(
                    f"{path} has another tensor than {METADATA} says where {name} lies; copy the folder again"
                )
            whole[tuple(slice(a, a + n) for a, n in zip(piece.offsets, piece.sizes, strict=True))] = values
        return whole


def _tensors(path: Path) -> list[_Stored]:
    """Read the list of a checkpoint.

    Raises:
        FedscopeError: as :class:`DistributedFolder`.
    """
    size = regular(path, _WHAT).stat().st_size
    if size > _MOST:
        raise FedscopeError(
            f"{path} has {format_size(size)}, but {_WHAT} has at most {format_size(_MOST)}; copy it again"
        )
    with explain_read_errors(path, _WHAT):
        root = _Unpickler(path).load()
        tensors, lies = root.field("state_dict_metadata"), root.field("storage_data")
        keys = root.field("planner_data")
        pieces: dict[tuple[str, tuple[int, ...]], tuple[str, int, int]] = {}
        for index, info in lies.items():
            at = _numbers(index.field("offset")) if index.field("offset") is not None else ()
            if info.field("transform_descriptors"):
                raise FedscopeError(f"{path.parent} is compressed; save it without extensions of torch's writer")
            pieces[index.field("fqn"), at] = (
                info.field("relative_path"),
                int(info.field("offset")),
                int(info.field("length")),
            )
        return [
            _stored(path, name, held, pieces, keys.get(name) if isinstance(keys, dict) else None)
            for name, held in tensors.items()
            if held.field("properties") is not None
        ]


def _stored(
    path: Path, name: str, held: Record, pieces: Mapping[tuple[str, tuple[int, ...]], tuple[str, int, int]], keys: Any
) -> _Stored:
    """Describe a tensor, once its pieces make it up."""
    shape = _numbers(held.field("size"))
    properties = held.field("properties").state
    dtype = properties.get("dtype") if isinstance(properties, dict) else properties[0]
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise FedscopeError(f"{path}: {name} has a type of numbers that is not read ({dtype}); save it as float32")
    made = []
    for chunk in held.field("chunks"):
        offsets, sizes = _numbers(chunk.field("offsets")), _numbers(chunk.field("sizes"))
        file, start, length = pieces[name, offsets]
        if file != Path(file).name or not file.endswith(PIECES):
            raise FedscopeError(f"{path} names {file!r}, which is not a file beside it; copy or save it again")
        inside = len(offsets) == len(sizes) == len(shape)
        if not inside or any(a + n > whole for a, n, whole in zip(offsets, sizes, shape, strict=True)):
            raise FedscopeError(f"{path} has a piece of {name} that lies outside of it; copy or save it again")
        made.append(_Piece(offsets, sizes, file, start, length))
    if sum(prod(piece.sizes) for piece in made) != prod(shape) or len({piece.offsets for piece in made}) != len(made):
        raise FedscopeError(f"{path}: the pieces of {name} do not make it up; copy or save the folder again")
    place = tuple(map(str, keys)) if isinstance(keys, tuple) and 0 < len(keys) < _DEEP else (name,)
    return _Stored(place, shape, dtype, tuple(made))


def _numbers(size: Any) -> tuple[int, ...]:
    """Return the numbers of what stands for a ``torch.Size``."""
    given = size.arguments[0] if isinstance(size, Record) else size
    if not all(type(n) is int and 0 <= n < 2**48 for n in given):
        raise ValueError("no size")
    return tuple(given)


# in Python: torch's own way, and the faster one, takes memory for whatever number a file says
class _Unpickler(pickle._Unpickler):
    """Reads a pickle into records."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.BytesIO(path.read_bytes()))
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Stand in for what a file names; nothing is imported."""
        if module.partition(".")[0] not in _ROOTS:
            raise FedscopeError(
                f"{self._path} is a pickle that would run code ({module}.{name}), and a checkpoint must never run "
                "code; save the model again where it came from"
            )
        if module == "collections":
            return dict
        return name if module == "torch" and name.islower() else Record  # float32 and other types by name
