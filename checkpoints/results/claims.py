"""The right to write a result: one command at a time, and what an interrupted one left is taken over."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import FedscopeError
from ..opening import regular


@dataclass
class Claim:
    """The right, while it is held; ``saving`` says that files of the result have been touched."""

    saving: bool = False


@contextmanager
def claimed(partial: Path, files: Sequence[Path]) -> Iterator[Claim]:
    """Hold a result while it is computed and saved: a lock on its ``.partial``, beside which the store of what is
    computed so far lies in the same file.

    The file stays where the work is interrupted after it has kept or saved something: then the same command goes on,
    and what lies half written is known to be its own. It goes when the result is whole, and where nothing was begun;
    then folders that were made for it go, too.

    Args:
        partial: ``BASE.SUFFIX.partial``.
        files: all that will be written; temporaries of these names, which killed commands left, are removed.

    Raises:
        FedscopeError: another command writes this result; the folder cannot be written to.
    """
    missing = [folder for folder in partial.parents if not folder.exists()]
    descriptor = _locked(partial)
    claim = Claim()
    try:
        sweep(files)
        yield claim
        partial.unlink(missing_ok=True)
    except BaseException:
        if os.fstat(descriptor).st_size == 0 and not claim.saving:
            partial.unlink(missing_ok=True)
            with suppress(OSError):  # another command has begun there
                for folder in missing:
                    folder.rmdir()
        raise
    finally:
        os.close(descriptor)


def sweep(files: Sequence[Path]) -> None:
    """Remove temporaries of these names."""
    for folder in {file.parent for file in files}:
        names = {file.name for file in files if file.parent == folder}
        for path in folder.glob(".*.tmp"):
            if path.name[1:-4].rpartition(".")[0] in names:
                path.unlink(missing_ok=True)


def _locked(partial: Path) -> int:
    """The file, opened and locked; of this name still, for whoever had it may have removed it."""
    while True:
        partial.parent.mkdir(parents=True, exist_ok=True)
        if partial.exists():
            regular(partial, "the store of an interrupted analysis")
        try:
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:  # whoever made the folder has removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), partial.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise FedscopeError(
                f"another command is writing {partial.name.removesuffix('.partial')} in {partial.parent}; wait until "
                "it ends, or give another --out"
            ) from None
        os.close(descriptor)
