"""What every file from elsewhere passes before a library is let at it: its kind, its sizes, its checksums."""

from __future__ import annotations

import errno
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import FedscopeError

# What a file unpacks to may be so many times its size; less than the room is never asked about.
RATIO, ROOM = 200, 64 * 2**20
_ENCRYPTED = 0x1
# What is the system's to say. Others, like "invalid argument", come of places that a damaged file names.
_SYSTEM = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever a library stumbles over in a damaged or foreign file is one sentence, and its warnings are not shown.

    Args:
        what: the file should be: "a checkpoint of torch".

    Raises:
        FedscopeError: it cannot be read, asks for more memory than there is, or is not what it should be.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FedscopeError:
        raise
    except MemoryError as error:
        raise FedscopeError(
            f"{path} asks for more memory than there is ({path.stat().st_size:,} bytes are stored); if it is whole, "
            "read it on a larger machine"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _SYSTEM:
            raise FedscopeError(f"{path} cannot be read: {error.strerror}; check the path and its rights") from error
        raise FedscopeError(f"{path} is truncated or not {what}; copy or save it again") from error


def expanded(text: str) -> Path:
    """A path as it was typed, with ``~`` as the home folder.

    Raises:
        FedscopeError: the home folder of a user that there is not.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise FedscopeError(f"{text}: there is no such user; write the whole path") from error


def refuse_oversize(place: object, declared: int, stored: int) -> None:
    """Refuse to unpack what is out of all proportion to the file, before memory is asked for.

    Args:
        place: for the sentence: the file.
        declared: bytes that it says it unpacks to; stored: bytes that are there.

    Raises:
        FedscopeError: more than 64 MiB, and more than 200 times what is stored.

    >>> refuse_oversize("bomb.npz", 2**40, 2**20)
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.errors.FedscopeError: bomb.npz declares 1,099,511,627,776 bytes, but stores 1,048,576; ...
    """
    if declared > ROOM and declared > RATIO * stored:
        raise FedscopeError(
            f"{place} declares {declared:,} bytes, but stores {stored:,}; copy it again, or save it uncompressed if it "
            "is whole"
        )


def members(path: Path, what: str) -> list[zipfile.ZipInfo]:
    """What lies in a zip file, once the sizes that it declares go with the bytes that it stores.

    Where no checksums were written, the members have none either; open them by what is returned, not by name.

    Raises:
        FedscopeError: no zip file, encrypted, a name twice, members larger than the file, a zip bomb.
    """
    stored = path.stat().st_size
    with reading(path, what), zipfile.ZipFile(path) as archive:
        found = archive.infolist()
    names = [member.filename for member in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FedscopeError(f"{path} holds {twice} twice; save it again")
    if any(member.flag_bits & _ENCRYPTED for member in found):
        raise FedscopeError(f"{path} is encrypted; save it without a password")
    for member in found:
        plain = member.compress_type == zipfile.ZIP_STORED
        if member.compress_size > stored or (plain and member.file_size != member.compress_size):
            declared = member.file_size if plain else member.compress_size
            holds = min(member.compress_size, stored)
            raise FedscopeError(
                f"{path}: {member.filename} declares {declared:,} bytes, but {holds:,} are stored; copy it again"
            )
    if (packed := sum(member.compress_size for member in found)) > stored:
        raise FedscopeError(f"{path} declares {packed:,} bytes of members, but stores {stored:,}; copy it again")
    refuse_oversize(path, sum(member.file_size for member in found), stored)
    if not any(member.CRC for member in found):  # torch can be told to write none, and zipfile would compare the zeros
        for member in found:
            del member.CRC
    return found


def verify(path: Path, what: str, found: list[zipfile.ZipInfo]) -> None:
    """Compare a zip file's members with their checksums, which torch does not: a flipped bit is another weight to it.

    Raises:
        FedscopeError: a member that is not what was saved.
    """
    with reading(path, what), zipfile.ZipFile(path) as archive:
        for member in found:
            with archive.open(member) as file:
                while file.read(2**20):
                    pass
