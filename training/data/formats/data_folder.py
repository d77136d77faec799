"""Places of a published data set's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....checkpoints import FedscopeError, expand_home, real_path
from ....checkpoints.io.shell_words import quoted
from ....command_line import answering

#: the folder of data sets, where the environment names one; else ``data/`` here
VARIABLE = "FEDSCOPE_DATA"


@dataclass(frozen=True)
class Remote:
    """A file of a data set where it is published.

    Attributes:
        url: of the file; md5: its checksum, as published.
        unpacked: the folder in an archive that is kept of it; "" for a file that is kept itself.
    """

    url: str
    md5: str
    unpacked: str = ""

    @property
    def file(self) -> str:
        """The file's name.

        >>> Remote("https://example.org/a/train.gz", "0").file
        'train.gz'
        """
        return self.url.rpartition("/")[2]

    @property
    def kept(self) -> tuple[str, ...]:
        """The files on disk of it, as fetched or unpacked by hand."""
        return (self.unpacked,) if self.unpacked else (self.file, self.file.removesuffix(".gz").removesuffix(".bz2"))


def folders_of(name: str, argument: str, inside: Sequence[str]) -> list[Path]:
    """List the folders in which a data set is looked for: the one that was typed, or in that of all data sets."""
    root = expand_home(argument or os.environ.get(VARIABLE) or "data")
    return [root, root / name, *(root / part for part in inside)]


def locate(
    name: str,
    argument: str,
    files: Sequence[Sequence[str]],
    *,
    inside: Sequence[str] = (),
    source: str,
    fetched: bool = False,
    also: str = "",
) -> list[Path]:
    """Find the files of a data set, one for each entry of ``files``.

    They are looked for in the folder that was typed (``mnist:PATH``), else in ``$FEDSCOPE_DATA``, else in ``data/``:
    there, in a folder of the data set's name, and in those of ``inside``.

    Args:
        files: of each file the names that it goes by, as with and without ``.gz``.
        inside: the folders that other programs put them into.
        source: where one gets them.
        fetched: whether ``--download`` gets them, too.
        also: another layout that would do, for the sentence.

    Raises:
        FedscopeError: a file that is missing everywhere; says where it was looked for, how it is called and where to
            get it. A file in place of a folder.
    """
    folder = folder_with(name, argument, files, inside=inside, source=source, fetched=fetched, also=also)
    return [real_path(path) for names in files if (path := _there(folder, names)) is not None]


def folder_with(
    name: str,
    argument: str,
    files: Sequence[Sequence[str]],
    *,
    inside: Sequence[str] = (),
    source: str,
    fetched: bool = False,
    also: str = "",
) -> Path:
    """Return the folder of a data set: the first that has all ``files``. For the arguments and errors see
    :func:`locate`."""
    folders = folders_of(name, argument, inside)
    if argument and folders[0].is_file():
        raise FedscopeError(
            f"--data {name}:{argument} is a file; give its folder, --data {quoted(f'{name}:{folders[0].parent}')}"
        )
    best: tuple[int, Path] | None = None
    for folder in folders:
        there = sum(_there(folder, names) is not None for names in files)
        if there == len(files):
            return folder
        if there and (best is None or there > best[0]):
            best = there, folder
    wanted = ", ".join(names[0] for names in files)
    offer = f", or {_by_download(name)}," if fetched else ""
    if best is not None:
        lacking = [names[0] for names in files if _there(best[1], names) is None]
        raise FedscopeError(
            f"--data {name}: {best[1]} has {best[0]} of the {len(files)} files, but not {', '.join(lacking)}; get the "
            f"rest from {source}" + (f", or {_by_download(name)}" if fetched else "")
        )
    looked, nor = ", ".join(map(str, folders)), f", nor {also}" if also else ""
    raise FedscopeError(
        f"--data {name}: found no {wanted}{nor}; looked in {looked}. Get them from {source}{offer} and give the folder "
        f"as --data {name}:PATH, or its parent in ${VARIABLE}"
    )


def _by_download(name: str) -> str:
    """How fedscope gets a data set's files, for whoever asks: an option, or in Python a function of its own."""
    return "with --download" if answering.get() else f"by fedscope.download({name!r})"


def _there(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the file, under the first of its names that is there."""
    return next((folder / known for known in names if (folder / known).is_file()), None)
