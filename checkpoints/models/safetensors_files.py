"""``.safetensors`` opened tensor by tensor: mapped into memory, or where a file system cannot do that, read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..io.untrusted import regular

if TYPE_CHECKING:
    from torch import Tensor

#: bytes of a header at most, as the format has it
_HEADER = 100_000_000


class OpenedTensors(Protocol):
    """The tensors of one file."""

    def names(self) -> Sequence[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Tensor: ...


@contextmanager
def open_safetensors(path: Path) -> Iterator[OpenedTensors]:
    """Open a file, of which no numbers are read before a tensor is asked for.

    Network mounts, FUSE and 9p may have no shared maps of memory (``ENODEV``). What safetensors says then has no error
    number, and so whatever the system says is answered by reading the bytes: what is missing or forbidden is so again.

    Raises:
        SafetensorError: truncated, or none.
        OSError: as of any file.
    """
    from safetensors import safe_open

    try:
        # torch's tensors, because numpy has no bfloat16
        mapped = safe_open(regular(path), framework="pt", device="cpu")
    except OSError:
        yield _Read(path)
        return
    with mapped as opened:
        yield _Mapped(opened)


class _Mapped:
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def names(self) -> Sequence[str]:
        return list(self._opened.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._opened.get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        found: Tensor = self._opened.get_tensor(name)
        return found


class _Read:
    """What the header says, and once a tensor is asked for the whole file."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError

        self._path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_HEADER, path.stat().st_size - 8):
                raise SafetensorError("its header is longer than the file or than a header may be")
            try:
                held = json.loads(file.read(length))
                self._shapes = {
                    name: tuple(map(int, of["shape"])) for name, of in held.items() if name != "__metadata__"
                }
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
                raise SafetensorError(f"its header is none: {type(error).__name__}") from error

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        from safetensors.torch import load

        return load(self._path.read_bytes())  # it compares the places of all tensors with the bytes

    def names(self) -> Sequence[str]:
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]
