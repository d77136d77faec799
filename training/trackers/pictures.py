"""The figures in a run's folder, for what shows them elsewhere."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

#: how a PNG begins
PNG = b"\x89PNG\r\n\x1a\n"
#: bytes of a figure at most; a longer file is none of fedscope's
MOST = 2**25


@dataclass(frozen=True)
class PictureFile:
    """A PNG file in the folder itself, and no link: one that somebody else has sent may lead to any file.

    Attributes:
        changed: nanoseconds since 1970.
    """

    path: Path
    changed: int

    @property
    def name(self) -> str:
        """Its name without the extension."""
        return self.path.stem

    def read(self) -> bytes | None:
        """What it holds; None where it is gone, or no PNG."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(MOST + 1)
        return content if content.startswith(PNG) and len(content) <= MOST else None


def picture_files(folder: Path) -> list[PictureFile]:
    """Return the figures of a folder by name; none where there is no such folder, or a link."""
    found = []
    try:
        paths = [] if folder.is_symlink() else sorted(folder.iterdir())
    except OSError:
        return []
    for path in paths:
        if path.name.startswith(".") or path.suffix != ".png":
            continue
        try:
            state = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode) and state.st_size <= MOST:
            found.append(PictureFile(path, state.st_mtime_ns))
    return found
