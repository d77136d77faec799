"""Ways to spoil a file, each drawn from a seeded generator: any file first, then those that know its format."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .drawing import Draw
from .spoiling_archives import NPZ, TORCH, safe_header
from .spoiling_hdf5 import HDF5
from .spoiling_text import TEXT


def flip(path: Path, draw: Draw) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(int(draw.integers(1, 4))):
        data[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
    path.write_bytes(data)


def truncate(path: Path, draw: Draw) -> None:
    os.truncate(path, int(draw.integers(path.stat().st_size)))


def zero(path: Path, draw: Draw) -> None:
    data = bytearray(path.read_bytes())
    size = min(len(data), int(draw.integers(16, 4096)))
    start = int(draw.integers(len(data) - size + 1))
    data[start : start + size] = bytes(size)
    path.write_bytes(data)


def noise(path: Path, draw: Draw) -> None:
    path.write_bytes(draw.bytes(path.stat().st_size))


def empty(path: Path, draw: Draw) -> None:
    path.write_bytes(b"")


def longer(path: Path, draw: Draw) -> None:
    path.write_bytes(path.read_bytes() + draw.bytes(1000))


def missing(path: Path, draw: Draw) -> None:
    path.unlink()


def folder(path: Path, draw: Draw) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path, draw: Draw) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to("/dev/zero" if draw.random() < 0.7 else "/dev/null")


def plug(path: Path, draw: Draw) -> None:
    path.unlink()
    with suppress(PermissionError):  # elsewhere than on Linux only the administrator may: it is missing then
        os.mknod(path, stat.S_IFSOCK | 0o600)


def circle(path: Path, draw: Draw) -> None:
    path.unlink()
    path.symlink_to(path.name)


def another(path: Path, draw: Draw) -> None:
    """A file of the same ending that belongs elsewhere in the case's own folder; others are at work beside it."""
    whole = next(folder for folder in path.parents if (folder / "runs").is_dir())
    near = sorted(p for p in whole.rglob(f"*{path.suffix}") if p != path and p.is_file())
    path.write_bytes(near[int(draw.integers(len(near)))].read_bytes() if near else b"another")


def sibling(path: Path, draw: Draw) -> None:
    """The file of the same place in a run of the same shape; elsewhere as :func:`another`."""
    whole = next(folder for folder in path.parents if (folder / "runs").is_dir())
    own = whole / "siblings" / path.relative_to(whole / "runs") if path.is_relative_to(whole / "runs") else None
    if own is None or not own.is_file():
        another(path, draw)
    else:
        path.write_bytes(own.read_bytes())


ANY = (flip, flip, flip, truncate, truncate, zero, zero, noise, empty, longer, missing)
STRANGE = (folder, pipe, device, plug, circle, another, sibling, sibling)

BY_SUFFIX: dict[str, tuple[Callable[[Path, Draw], None], ...]] = {
    ".h5": HDF5,
    ".nc": HDF5,
    ".json": TEXT,
    ".toml": TEXT,
    ".csv": TEXT,
    ".npz": NPZ,
    ".pt": TORCH,
    ".safetensors": (safe_header, safe_header),
}


def ways(path: Path) -> tuple[Callable[[Path, Draw], None], ...]:
    """The ways to spoil a file of this ending: half of them know its format."""
    own = BY_SUFFIX[path.suffix]
    return (*own, *own, *ANY, *STRANGE)
