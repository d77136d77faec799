"""Published data sets fetched from where they are published, where their checksum is published too."""

from __future__ import annotations

import hashlib
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

from ....checkpoints import FedscopeError, expand_home, write_durably
from ....checkpoints.io.keywords import speak_keywords
from ...settings.registry import find, names
from .data_folder import Remote, folders_of

#: seconds without a byte after which a server is given up
PATIENCE = 30
_BLOCK = 1 << 20
_MEGA = 1_000_000

#: told how many megabytes of how many have come
Report = Callable[[int, int], None]


@partial(speak_keywords, called={"data": "name"})
def download(name: str, report: Report | None = None) -> tuple[Path, ...]:
    """Fetch the files of a published data set that are not there yet, into the folder in which it is looked for.

    A file is visible once it is whole and its checksum is the published one. Archives are unpacked and not kept.

    Args:
        name: as ``--data`` takes it, ``cifar10`` or ``cifar10:PATH``.
        report: told ``(done, of)`` in megabytes, a file after the other.

    Returns:
        What was fetched: files, or an archive's folder; empty where all was there.

    Raises:
        FedscopeError: a data set without files that could be checked; no network; another checksum; a full disk.
    """
    shelf, _, argument = name.partition(":")
    find("data", shelf)  # refuses what there is not
    module = import_module(f"fedscope.training.data.published.{shelf.replace('-', '_')}")
    remotes: tuple[Remote, ...] = getattr(module, "REMOTE", ())
    if not remotes:
        source = getattr(module, "SOURCE", "")
        other = f"get it from {source}" if source else "its files are your own, or come with fedscope"
        raise FedscopeError(
            f"{shelf} cannot be downloaded: it has no files with a published checksum; {other} (it can be had for "
            f"{', '.join(_list_offers())})"
        )
    folders = folders_of(shelf, argument, getattr(module, "INSIDE", ()))
    fetched = []
    for remote in remotes:
        typed = folders[0].name == remote.unpacked and folders[0].is_dir() and any(folders[0].iterdir())
        if not typed and not any((folder / there).exists() for folder in folders for there in remote.kept):
            target = folders[0] if argument or remote.unpacked else folders[1]
            fetched.append(_fetch(remote, target, report))
    return tuple(fetched)


def _list_offers() -> Iterable[str]:
    """Data sets that can be fetched."""
    for name in names("data"):
        if hasattr(import_module(f"fedscope.training.data.published.{name.replace('-', '_')}"), "REMOTE"):
            yield name


def _fetch(remote: Remote, folder: Path, report: Report | None) -> Path:
    folder = expand_home(str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not remote.unpacked:
            with write_durably(folder / remote.file) as temporary, temporary.open("wb") as out:
                _receive(remote, out, folder, report)
            return folder / remote.file
        with tempfile.TemporaryDirectory(prefix=f".{remote.unpacked}.", suffix=".tmp", dir=folder) as place:
            archive = Path(place, remote.file)
            with archive.open("wb") as out:
                _receive(remote, out, folder, report)
            _unpack(archive, Path(place))
            Path(place, remote.unpacked).rename(folder / remote.unpacked)
        return folder / remote.unpacked
    except (tarfile.TarError, zipfile.BadZipFile) as error:
        raise FedscopeError(f"{remote.url} is not the archive that is known ({error}); try again") from error
    except OSError as error:
        raise FedscopeError(
            f"{folder / remote.file} cannot be written ({error.strerror or error}); give another folder as "
            "--data NAME:PATH"
        ) from error


def _receive(remote: Remote, out: IO[bytes], folder: Path, report: Report | None) -> None:
    """Write what the server sends, and refuse it where it is not what is known."""
    found = hashlib.md5(usedforsecurity=False)
    done = 0
    try:
        with urlopen(Request(remote.url, headers={"User-Agent": "fedscope"}), timeout=PATIENCE) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            while block := answer.read(_BLOCK):
                found.update(block)
                done += len(block)
                out.write(block)
                if report is not None:
                    report(done // _MEGA, max(size, done) // _MEGA)
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise FedscopeError(
            f"{remote.url} could not be fetched ({reason}); get the file on a machine with a network, and put it into "
            f"{folder}"
        ) from error
    if found.hexdigest() != remote.md5:
        raise FedscopeError(
            f"{remote.url} is not the file that is known (md5 {found.hexdigest()}, published {remote.md5}, {done:,} "
            "bytes), so it was not kept; try again"
        )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack into a folder; what lies outside it, and links out of it, are refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as held:
            for member in held.infolist():
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise zipfile.BadZipFile(f"{member.filename} is a link")
                inside = PurePosixPath(member.filename.replace("\\", "/"))
                if inside.is_absolute() or ".." in inside.parts:
                    raise zipfile.BadZipFile(f"{member.filename} is outside its folder")
            held.extractall(folder)
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    with suppress(OSError):
        archive.unlink()
    shutil.rmtree(folder / "__MACOSX", ignore_errors=True)
