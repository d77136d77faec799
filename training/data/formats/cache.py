"""Data sets whose files are decoded once: their bytes in the user's cache, mapped into memory from then on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ....checkpoints import FedscopeError, expand_home, explain_read_errors, format_size
from ....checkpoints.io.warn_user import warn_user
from ....evaluation.tasks import Task
from ....evaluation.uint8_images import Uint8Images
from ..dataset import SPLITS, Dataset, Groups, Known
from ..standardize import standardize

#: the folder of decoded data sets, where the environment names one, or ``off``; else ``~/.cache/fedscope``
VARIABLE = "FEDSCOPE_CACHE"
ABOUT = "about.json"
#: in ``about.json``, the checksum of all else in it
SEAL = "about_xxh3_64"
#: of what stands in a folder; another one is decoded anew
VERSION = 2
#: of sets that were decoded otherwise before: images of 16 bits were made white
VERSIONS = {"folder": 3}
#: seconds after which what an interrupted decoding left is swept
STALE = 86_400

#: makes an array of bytes for a split's samples, given ``x_train`` or ``x_test`` and a shape
Room = Callable[[str, tuple[int, ...]], np.ndarray]
#: the same of one split, given a shape
SplitRoom = Callable[[tuple[int, ...]], np.ndarray]
Decoded = tuple[Mapping[str, np.ndarray], Mapping[str, Groups]]


def decoded_once(
    name: str, folder: Path, files: Sequence[Path], decode: Callable[[Room], Decoded], task: Task
) -> Dataset:
    """Return the data set ``name:folder``: from the cache where it is there, else decoded and put there.

    Images are bytes in a file that is mapped into memory, so they are held once however many processes read them, and
    a set may be larger than memory; tokens are bytes there, too, and whole numbers in memory. What is kept is checked
    by XXH3 before it is used, and so is what is said of it. Where the cache cannot be written, or is damaged, or the
    files have changed, the set is decoded and a warning says so: a cache is never a reason to fail.

    Args:
        files: what is decoded; other sizes or times of these are another data set.
        decode: the four arrays, ``classes`` where they do not show it, and the groups. Given a :data:`Room`, in which
            samples may be put as they are decoded.

    Raises:
        FedscopeError: what ``decode`` and :func:`~fedscope.training.data.standardize.standardize` refuse.
    """
    shown, state, place = f"{name}:{folder}", _state(files), _place(name, folder)

    def made(arrays: Mapping[str, np.ndarray], groups: Mapping[str, Groups], known: Known | None = None) -> Dataset:
        return standardize(shown, str(folder), arrays, task=task, groups=groups, known=known)

    if place is not None and (place / ABOUT).exists():
        try:
            return made(*_read(place, name, state))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warn_user(f"{place}: {error}; decoding {shown} again")
    with _workplace(shown, place) as work:
        arrays, groups = decode(work.room)
        data = made(arrays, groups)
        if place is None:
            return data
        try:
            work.write(name, data, arrays, state)
            work.put(place)
            return made(*_read(place, name, state)) if isinstance(data.x_train, Uint8Images) else data
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            warn_user(
                f"{shown} could not be kept decoded in {place.parent} ({reason or error}), so each command decodes it; "
                f"make room, or set {VARIABLE} to another folder, or to off"
            )
            return data


def _place(name: str, folder: Path) -> Path | None:
    """Return the set's folder in the cache; None where there is to be no cache."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off":
        return None
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "fedscope"
        root = expand_home(chosen) if chosen else base.expanduser()
    except RuntimeError:  # there is no home
        return None
    return root / f"{name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"


def _state(files: Iterable[Path]) -> str:
    """Identify these files, and their state: their names, sizes and times."""
    said = hashlib.sha256()
    for path in files:
        with explain_read_errors(path, "a file"):
            about = path.stat()
        said.update(os.fsencode(path) + f" {about.st_size} {about.st_mtime_ns}\n".encode())
    return said.hexdigest()


def in_memory(shape: tuple[int, ...]) -> np.ndarray:
    """An array of bytes in memory of its own."""
    return np.empty(shape, np.uint8)


def put_together(
    room: SplitRoom, sample: tuple[int, ...], counts: Sequence[int], parts: Iterable[np.ndarray]
) -> np.ndarray:
    """Parts [n_i, ...] below each other, each put where it stays before the next one is made.

    Args:
        sample: the shape of a sample.
        counts: n_i of each part.

    Raises:
        FedscopeError: a part of another number of samples than was counted.

    >>> put_together(in_memory, (2,), (1, 2), (np.full((n, 2), n, np.uint8) for n in (1, 2))).tolist()
    [[1, 1], [2, 2], [2, 2]]
    """
    made, at = room((sum(counts), *sample)), 0
    for count, part in zip(counts, parts, strict=True):
        if len(part) != count:
            raise FedscopeError(
                f"a file had {count} samples and now has {len(part)}: it changes while it is read; try again"
            )
        made[at : at + count] = part
        at += count
    return made


@contextmanager
def _workplace(shown: str, place: Path | None) -> Iterator[_Work]:
    """Make a new folder next to ``place``, where one can be made; it is removed afterwards."""
    folder = None
    if place is not None:
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            for left in place.parent.glob(f"{place.name}.*.tmp"):
                if time.time() - left.stat().st_mtime > STALE:
                    shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{place.name}.", suffix=".tmp", dir=place.parent))
    try:
        yield _Work(shown, folder)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class _Work:
    """The folder in which the data set ``shown`` is decoded and made ready; None is memory alone."""

    def __init__(self, shown: str, folder: Path | None) -> None:
        self._shown, self._folder = shown, folder
        self._rooms: dict[str, np.ndarray] = {}

    def room(self, which: str, shape: tuple[int, ...]) -> np.ndarray:
        """Room for images: in a file, where there is room for it, else in memory.

        Raises:
            FedscopeError: there is room for it in neither.
        """
        if self._folder is not None and hasattr(os, "posix_fallocate"):
            with suppress(OSError):
                path = self._folder / f"{which}.npy"
                mapped = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
                with path.open("r+b") as file:  # a full disk is an error here; later it would end the process
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
                self._rooms[which] = mapped
                return mapped
        try:
            if prod(shape) > _memory():
                raise MemoryError
            return in_memory(shape)
        except MemoryError:
            place = "no cache" if self._folder is None else f"no room in {self._folder.parent}"
            raise FedscopeError(
                f"{self._shown}: {which} takes {format_size(prod(shape))} decoded, which is more than the memory here, "
                f"and there is {place}; make room, or set {VARIABLE} to a folder that has it"
            ) from None

    def write(self, name: str, data: Dataset, arrays: Mapping[str, np.ndarray], state: str) -> None:
        """All that :func:`_read` reads."""
        if self._folder is None:
            raise OSError(EACCES, "it cannot be written to")
        for split in SPLITS:
            x = data.x_train if split == "train" else data.x_test
            stored = x.stored.numpy() if isinstance(x, Uint8Images) else arrays[f"x_{split}"]
            room = self._rooms.get(f"x_{split}")
            if room is None or not np.shares_memory(stored, room):
                (self._folder / f"x_{split}.npy").unlink(missing_ok=True)  # not below what is mapped of it
                np.save(self._folder / f"x_{split}.npy", stored)
            np.save(self._folder / f"y_{split}.npy", arrays[f"y_{split}"])
            for kind, groups in data.groups.items():
                np.save(self._folder / f"{kind}_{split}.npy", groups.train if split == "train" else groups.test)
        about = {
            "version": VERSIONS.get(name, VERSION),
            "files": state,
            "sha256": data.sha256,
            "means": data.means,
            "deviations": data.deviations,
            "classes": int(arrays["classes"]) if "classes" in arrays else None,
            "groups": {kind: groups.names for kind, groups in data.groups.items()},
            "xxh3_64": {path.name: _sum(path) for path in sorted(self._folder.glob("*.npy"))},
        }
        (self._folder / ABOUT).write_text(json.dumps({**about, SEAL: _seal(about)}), encoding="utf-8")

    def put(self, place: Path) -> None:
        """Make the finished folder the set's own; what is there goes."""
        assert self._folder is not None
        if place.exists():
            with suppress(OSError):
                place.rename(self._folder / "old")
        try:
            self._folder.rename(place)
        except OSError:
            if not (place / ABOUT).exists():  # else another command was faster
                raise
        shutil.rmtree(place / "old", ignore_errors=True)


def _memory() -> float:
    """Bytes of memory of this machine; infinite where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return inf


def _read(place: Path, name: str, state: str) -> tuple[dict[str, np.ndarray], dict[str, Groups], Known]:
    """Arrays, groups and what is known of them.

    Raises:
        ValueError: of another version, of other files, damaged.
    """
    about = _read_about(place / ABOUT, VERSIONS.get(name, VERSION))
    if about["files"] != state:
        raise ValueError("the files have changed since they were decoded")
    for file, expected in about["xxh3_64"].items():
        if _sum(place / file) != expected:
            raise ValueError(f"{file} is damaged")
    # copy on write: nothing is written, but torch warns of arrays that cannot be
    arrays = {f"x_{split}": np.load(place / f"x_{split}.npy", mmap_mode="c") for split in SPLITS}
    arrays |= {f"y_{split}": np.load(place / f"y_{split}.npy") for split in SPLITS}
    if about["classes"] is not None:
        arrays["classes"] = np.array(about["classes"])
    groups = {
        kind: Groups(tuple(names), *(np.load(place / f"{kind}_{split}.npy") for split in SPLITS))
        for kind, names in about["groups"].items()
    }
    return arrays, groups, Known(about["sha256"], tuple(about["means"]), tuple(about["deviations"]))


def _read_about(path: Path, version: int) -> dict[str, Any]:
    """What is said of the arrays: the numbers that standardise them, for example, which no array shows to be others.

    Raises:
        ValueError: of another version, damaged, or edited; of an earlier fedscope, which wrote no checksum of it.
    """
    try:
        about = json.loads(_there(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is damaged: its JSON is nested too deep") from None
    if not isinstance(about, dict):
        raise ValueError(f"{path.name} is damaged")
    if about["version"] != version:
        raise ValueError(f"is of version {about['version']}, this fedscope's is {version}")
    if SEAL in about and about.pop(SEAL) != _seal(about):  # earlier versions wrote none
        raise ValueError(f"{path.name} is damaged")
    return about


def _seal(about: Mapping[str, Any]) -> str:
    """Return the checksum of what is said of a set; the same of what was read back."""
    return xxhash.xxh3_64_hexdigest(json.dumps(about, sort_keys=True).encode())


def _there(path: Path) -> Path:
    """A file of the cache, which others may share: reading a named pipe would wait."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is no file")
    return path


def _sum(path: Path) -> str:
    said = xxhash.xxh3_64()
    with _there(path).open("rb") as file:
        while block := file.read(1 << 24):
            said.update(block)
    return said.hexdigest()
