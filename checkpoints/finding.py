"""The runs below a folder, and how much room one takes; no round is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .creating import FILES
from .errors import FedscopeError
from .runs import KEPT_NAME, Run

T = TypeVar("T")

#: how far below a linked folder runs are looked for: a link may lead to a whole disk
LINKED_DEPTH = 2


def find_runs(folder: Path | str) -> list[Run]:
    """All runs in a folder and below it, by path; hidden folders and what only looks like a run are left out.

    Links are followed, two folders deep. A run that is reached twice is listed once, by its own path rather than by a
    link's.
    """
    return sorted(_walk(Path(folder), _opened), key=lambda run: run.path)


def find_run_folders(folder: Path | str) -> list[Path]:
    """The folders of :func:`find_runs`, and of runs whose ``run.json`` is damaged, beside which rounds still lie."""
    return sorted(_walk(Path(folder), _kept))


def _opened(folder: Path) -> Run | None:
    with suppress(FedscopeError):  # something else of that name, below which there may be runs
        return Run.open(folder)
    return None


def _kept(folder: Path) -> Path | None:
    return folder if (folder / "rounds").is_dir() or _opened(folder) is not None else None


def _walk(top: Path, take: Callable[[Path], T | None]) -> list[T]:
    found: list[T] = []
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[Path, int | None]] = [(top, None)]  # and how deep to go where it was linked
    while waiting:  # what is no link first, then what lies behind links, then behind the links there
        links: list[tuple[Path, int | None]] = []
        for start, depth in waiting:
            found += _below(start, depth, take, seen, links)
        waiting = sorted(links, key=lambda link: link[0])
    return found


def _below(
    folder: Path,
    depth: int | None,
    take: Callable[[Path], T | None],
    seen: set[tuple[int, int]],
    links: list[tuple[Path, int | None]],
) -> Iterator[T]:
    try:
        about = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # not ours to read, or gone
        return
    if (about.st_dev, about.st_ino) in seen:
        return
    seen.add((about.st_dev, about.st_ino))
    if any(entry.name == "run.json" for entry in entries) and (run := take(folder)) is not None:
        yield run
        return
    for entry in entries:
        if entry.name.startswith(".") or depth == 0:
            continue
        if entry.is_symlink():
            if entry.is_dir():
                links.append((folder / entry.name, LINKED_DEPTH if depth is None else depth - 1))
        elif entry.is_dir():
            yield from _below(folder / entry.name, None if depth is None else depth - 1, take, seen, links)


def size_of(run: Run) -> int:
    """Bytes of what was recorded: the files of a run and of its rounds, without figures and results of analyses."""
    files = [run.path / name for name in FILES]
    return sum(map(_size, files)) + _sizes(run.path / "rounds") + _sizes(run.path / KEPT_NAME)


def _sizes(folder: Path) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(_sizes(Path(entry.path)) if entry.is_dir() else _size(entry) for entry in entries)
    except OSError:
        return 0


def _size(file: Path | os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except OSError:  # it was never there, or a writer has just moved it
        return 0
