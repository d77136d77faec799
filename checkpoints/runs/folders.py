"""Folders of runs: a new one, made so that it is a run only when all of it is there and never in the way of something
else; those below a folder, and how much room one takes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..io.atomic import LOCK_NAME, LOCK_NAMES, WriterLock, sweep_temporaries, sync, write_durably
from ..io.code_words import code_words_at
from ..io.errors import FedscopeError, list_few
from ..io.safe_write import refuse_linked
from ..io.shell_words import command_line
from ..io.untrusted import lost_link, read_json, real_path
from ..models.weights import Layout
from ..rounds.metrics import write_table
from . import measured_numbers
from .info import FORMAT, VERSION, seal
from .partition import Partition
from .run import KEPT_NAME, KEPT_PARTS, Run, kept_path, kept_rounds, visible_rounds

#: what lies in a run's folder beside its rounds
FILES = (
    *("run.json", "config.toml", "partition.h5", "recorded-data.npz", "metrics.csv", "recorded-error.json"),
    measured_numbers.NAME,
)
#: the folder of the sources of code that is not fedscope's, as texts
CODE = "code"
#: what ``run.json`` is called while its run is replaced: it says whose the folder is if that ends halfway
REPLACED = ".run.json.replaced.tmp"
#: of a run.json, a clause
LOST = "is not there, and the rounds are no run without it; restore it from a copy"
#: how far below a linked folder runs are looked for: a link may lead to a whole disk
LINKED_DEPTH = 2

T = TypeVar("T")


#: how another run, or a folder that holds something else, is answered on the command line
REPLACE, ELSEWHERE = "give --force to replace it, or another --out", "give another --out"


def lock_for_new_run(path: Path, *, force: bool, replace: str = REPLACE, elsewhere: str = ELSEWHERE) -> WriterLock:
    """Make a folder that a new run may take, and lock it.

    Raises:
        FedscopeError: something is in the way (remedy: --force for a run, another --out for all else); another writer.
    """
    refuse_occupied(path, force, replace, elsewhere)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = lost_link(path) or f"cannot be made ({error.strerror})"
        raise FedscopeError(f"{path} {why}; give another --out") from error
    lock = WriterLock(path)
    try:
        refuse_occupied(path, force, replace, elsewhere)  # again: now nobody else can fill it
        refuse_linked_parts(path)
    except BaseException:
        lock.release()
        raise
    return lock


def refuse_linked_parts(path: Path) -> None:
    """Refuse to write a run whose folders are links: rounds of another run would go with them.

    Raises:
        FedscopeError: names the first.
    """
    kept = path / KEPT_NAME
    refuse_linked(path / "rounds", path / CODE, kept, *(kept / part for part in KEPT_PARTS))


def create_run(
    path: Path,
    info: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    partition: Partition | None,
    *,
    force: bool,
    keep: Callable[[Path], None] | None = None,
) -> WriterLock:
    """Make a run's folder, ``run.json`` last, and return its lock; see :func:`fill_run`. Raises as
    :func:`lock_for_new_run`."""
    Layout.from_json(info["layout"])
    lock = lock_for_new_run(path, force=force)
    try:
        fill_run(path, info, config, partition, keep)
    except BaseException:
        lock.release()
        raise
    return lock


def fill_run(
    path: Path,
    info: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    partition: Partition | None,
    keep: Callable[[Path], None] | None = None,
) -> None:
    """Make a run of a folder whose lock the caller holds; a run that was there goes.

    Args:
        keep: writes the other files, which ``run.json`` seals.
    """
    remove_run(path)
    (path / "rounds").mkdir(exist_ok=True)
    if config is not None:
        _write_config(path / "config.toml", config)
    if partition is not None:
        partition.save(path / "partition.h5", info.get("identity", ""))
    if keep is not None:
        keep(path)
    write_table(path / "metrics.csv", (), info.get("identity", ""))
    with write_durably(path / "run.json") as temporary:
        head = {"format": FORMAT, "version": VERSION}
        said = seal(path, {**head, **info, **head})
        temporary.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    (path / REPLACED).unlink(missing_ok=True)
    sync(path.parent)


def refuse_occupied(path: Path, force: bool, replace: str = REPLACE, elsewhere: str = ELSEWHERE) -> None:
    """Refuse a place where something is that a new run may not replace.

    Free are: nothing, an empty folder, and what an interrupted creation left (a lock, no ``run.json``, no round).
    With ``force`` also a run of fedscope, and what is left of one that was being replaced, beside whose files others
    may lie, which stay; never anything else.

    Args:
        replace, elsewhere: the remedies, in the caller's words.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise FedscopeError(f"{path} exists and is a file; {elsewhere}")
    names = {entry.name for entry in path.iterdir() if not (entry.name.startswith(".") and entry.name.endswith(".tmp"))}
    if _is_run(path / "run.json"):
        ours, rounds = True, visible_rounds(path)
        holds = f"holds a run with {_count(rounds)}" if rounds else "holds a run"
    elif {LOCK_NAME, "rounds"} <= names and _is_damaged(path / "run.json"):
        ours, rounds = True, visible_rounds(path)
        holds = f"holds {_count(rounds)} of a run whose run.json is damaged"
    else:
        others = names - ({*LOCK_NAMES, "rounds", KEPT_NAME, CODE, *FILES} - {"run.json"})
        ours, rounds = (LOCK_NAME in names and not others) or _is_run(path / REPLACED), visible_rounds(path)
        holds = f"holds {_count(rounds)} of a run that has lost its run.json"
        if ours and others and not rounds:
            holds = f"holds {list_few(sorted(others), 3)} beside what is left of a run that was being replaced"
        elif ours and not rounds:
            return
        if not ours and {LOCK_NAME, "rounds"} <= names and "run.json" not in names:
            raise FedscopeError(
                f"{path} exists and holds {list_few(sorted(others), 3)} beside what is left of a run without run.json; "
                f"move {'that' if len(others) == 1 else 'these'} elsewhere, or {elsewhere}"
            )
    if not ours:
        raise FedscopeError(f"{path} exists and holds something else than a run of fedscope; {elsewhere}")
    if not force:
        on = ""
        if _is_trained(path / "run.json"):
            on = f" (`{command_line('train', '--resume', path, *code_words_at(path))}` goes on with it)"
        raise FedscopeError(f"{path} exists and {holds}; {replace}{on}")


def refuse_own_place(file: Path) -> None:
    """Refuse to write where a run has its own files, which ``--force`` replaces no more than an export makes others.

    Raises:
        FedscopeError: names another place.
    """
    place = real_path(file.absolute().parent) / file.name
    for folder in place.parents:
        inside = place.relative_to(folder).parts
        own = inside[0] in ("rounds", KEPT_NAME, CODE) if len(inside) > 1 else inside[0] in (*FILES, *LOCK_NAMES)
        if own and _holds_run(folder):
            raise FedscopeError(
                f"{file} is a place of the run's own files, which nothing else is written over; give another one, as "
                f"{folder.name}-exported{file.suffix}"
            )


def _holds_run(folder: Path) -> bool:
    """Check whether a run of ours is there, even one whose ``run.json`` is damaged or gone; files of other programs may
    have names of a run's."""
    if _is_run(folder / "run.json") or is_without_info(folder):
        return True
    return (folder / LOCK_NAME).exists() and (folder / "rounds").is_dir() and _is_damaged(folder / "run.json")


def remove_run(path: Path) -> None:
    """Remove a run's own files, ``run.json`` first, so that what is half removed is no run; all else stays.

    ``run.json`` stays as :data:`REPLACED` until another is there.
    """
    if _is_run(path / "run.json"):
        (path / "run.json").replace(path / REPLACED)
    for name in FILES:
        (path / name).unlink(missing_ok=True)
        if name == "run.json":
            sync(path)
    if (path / "rounds").is_dir():
        for file in (path / "rounds").glob("*.h5"):
            if file.stem.isdecimal():  # whatever a round's file was called
                file.unlink(missing_ok=True)
        sweep_temporaries(path / "rounds")
    if (path / CODE).is_dir():
        for file in (*(path / CODE).glob("*.py"), path / CODE / "changed.json"):
            if file.is_file():
                file.unlink(missing_ok=True)
        sweep_temporaries(path / CODE)
        with suppress(OSError):  # somebody put something else there
            (path / CODE).rmdir()
    for part in KEPT_PARTS:
        for number in kept_rounds(path, part):
            kept_path(path, number, part).unlink(missing_ok=True)
        if (path / KEPT_NAME / part).is_dir():
            sweep_temporaries(path / KEPT_NAME / part)
    sweep_temporaries(path, {REPLACED})


def _count(rounds: tuple[int, ...]) -> str:
    return f"{len(rounds)} round{'s' if len(rounds) != 1 else ''}"


def _is_run(file: Path) -> bool:
    """Check whether a folder is a run of ours, of whatever version, even one that this fedscope cannot read."""
    try:
        info = read_json(file, "a run's run.json", "give another --out")
    except (OSError, FedscopeError):
        return False
    return isinstance(info, dict) and info.get("format") == FORMAT


def _is_damaged(file: Path) -> bool:
    """Check for a file that is there and cannot be read as one of ours or anybody's; what can be read is not damaged,
    whoever wrote it."""
    try:
        read_json(file, "a run's run.json", "give another --out")
    except OSError:
        return False
    except FedscopeError:
        return file.is_file() and not file.is_symlink()
    return False


def _is_trained(file: Path) -> bool:
    """Check whether it is a run that was trained here, which can be resumed."""
    return _is_run(file) and "source" not in read_json(file, "a run's run.json", "give another --out")


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    import tomli_w

    with write_durably(path) as temporary:
        temporary.write_text(tomli_w.dumps(_drop_none(config)), encoding="utf-8", newline="")


def _drop_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: a key without a value is left out."""
    return {
        key: _drop_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def find_runs(folder: Path | str) -> list[Run]:
    """Find all runs in a folder and below it, by path; hidden folders and what only looks like a run are left out.

    Links are followed, two folders deep. A run that is reached twice is listed once, by its own path rather than by a
    link's.
    """
    return sorted(_walk(Path(folder), _open), key=lambda run: run.path)


def find_run_folders(folder: Path | str) -> list[Path]:
    """Find the folders of :func:`find_runs`, and of runs whose ``run.json`` is damaged or lost but that still hold
    rounds."""
    return sorted(_walk(Path(folder), _kept_files))


def is_without_info(folder: Path) -> bool:
    """Check whether a folder holds rounds of a run that has lost its ``run.json``."""
    if (folder / "run.json").exists() or not visible_rounds(folder):
        return False
    return any((folder / name).exists() for name in (LOCK_NAME, *FILES))


def _open(folder: Path) -> Run | None:
    if (folder / "run.json").exists():
        with suppress(FedscopeError):  # something else of that name, below which there may be runs
            return Run.open(folder)
    return None


def _kept_files(folder: Path) -> Path | None:
    if not (folder / "run.json").exists():
        return folder if is_without_info(folder) else None
    return folder if (folder / "rounds").is_dir() or _open(folder) is not None else None


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
    if any(entry.name in ("run.json", "rounds") for entry in entries) and (run := take(folder)) is not None:
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
    folders = (run.path / name for name in ("rounds", KEPT_NAME, CODE))
    return sum(map(_size, files)) + sum(map(_sizes, folders))


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
