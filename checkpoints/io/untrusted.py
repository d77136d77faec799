"""Files from elsewhere, opened so that no input makes a reader wait, read without end or end in a traceback."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import FedscopeError, format_size
from .quiet import without_warnings

#: the byte order mark of a text, as it is read
MARK = "\ufeff"
#: bytes that no file of the kind ever has: settings and ``run.json``; a result's tables and what is said of them
SETTINGS, RESULT = 2**24, 2**30
# What is the system's to say. Others, like "invalid argument", come of places that a damaged file names.
_SYSTEM = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EIO, errno.ELOOP, errno.ENODEV)

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_there(path: Path) -> bool:
    """Check whether something lies at a place; what cannot be looked at (forbidden, too long a name) does not.

    >>> is_there(Path("/dev/null")), is_there(Path("a" * 300))
    (True, False)
    """
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def regular(path: Path, what: str = "a file") -> Path:
    """Return the path itself, once it is known that a regular file lies there; links are followed, nothing is opened.

    Opening a named pipe waits for a writer, and a device may never end. What cannot be looked at (missing, forbidden, a
    link in a circle) is left to the caller, which opens it and can say what was wanted.

    Args:
        what: for the sentence: "a run's partition".

    Raises:
        FedscopeError: a folder, a named pipe, a socket or a device; says which.

    >>> regular(Path("/dev/zero"))
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.io.errors.FedscopeError: /dev/zero is a device, not a file; give a regular file
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(mode):
        raise FedscopeError(f"{path} is {kind_of(mode)}, not {what}; give a regular file")
    return path


def kind_of(mode: int) -> str:
    """Name the kind of a file by its mode.

    >>> kind_of(Path("/").stat().st_mode)
    'a folder'
    """
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")


def real_path(path: Path | str) -> Path:
    """Resolve a path to the absolute one without links in it, as far as they can be followed.

    As :meth:`pathlib.Path.resolve`, which raises RuntimeError for a link to itself in some versions of Python.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # no file has such a name, which a damaged file may say
        return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps "..")


def lost_link(path: Path) -> str:
    """Explain in a clause why a path cannot be opened though something of that name lies there; "" where nothing does.

    >>> lost_link(Path("nothing of this name"))
    ''
    """
    if not path.is_symlink():
        return ""
    try:
        path.stat()
    except OSError as error:
        circle = error.errno == errno.ELOOP
        return "is a link that leads to itself" if circle else "is a link to what does not exist"
    return ""


def fits_float(value: float) -> bool:
    """Check whether a number can be made a float: JSON and TOML have whole numbers of any length.

    >>> fits_float(10**300), fits_float(10**400), fits_float(float("inf"))
    (True, False, True)
    """
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def expand_home(text: Path | str) -> Path:
    """Make a path of what was typed, with ``~`` as the home folder.

    Raises:
        FedscopeError: the home folder of a user that there is not; another object than a path.

    >>> expand_home(None)
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.io.errors.FedscopeError: None is no path; give text or a pathlib.Path
    """
    try:
        return Path(text).expanduser()
    except TypeError:  # in Python alone, as of a variable that nothing was given to
        raise FedscopeError(f"{text!r:.60} is no path; give text or a pathlib.Path") from None
    except RuntimeError as error:
        raise FedscopeError(f"{text}: there is no such user; write the whole path") from error


def at_home(text: str) -> str:
    """Return a text that names a path, whose ``~`` at the beginning is the home folder; raises as
    :func:`expand_home`."""
    return str(expand_home(text)) if text.startswith("~") else text


@contextmanager
def explain_read_errors(path: Path, what: str) -> Iterator[None]:
    """Turn the errors of a library that reads a damaged or foreign file into one sentence, and hide its warnings.

    Args:
        what: the file should be: "a checkpoint of torch".

    Raises:
        FedscopeError: it cannot be read, asks for more memory than there is, or is not what it should be.
    """
    try:
        with without_warnings():
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


def read_text(
    path: Path, what: str, remedy: str, most: int = SETTINGS, errors: str = "strict", *, mark: bool = False
) -> str:
    """Read a file's text.

    Args:
        what: for the sentence: "a run's configuration".
        remedy: what its reader can do when it is damaged: "restore it from a copy".
        most: bytes that it may have; more are refused before they are read.
        errors: ``replace`` where what is not UTF-8 may stay in, marked.
        mark: whether a byte order mark, which some editors write before all else, belongs to the text.

    Raises:
        FedscopeError: no regular file, too long, not UTF-8; says it of UTF-16.
        OSError: missing, or not to be read.
    """
    regular(path, what)
    size = path.stat().st_size
    if size > most:
        raise FedscopeError(f"{path} has {format_size(size)}, but {what} has at most {format_size(most)}; {remedy}")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        if _is_utf16(content):
            raise FedscopeError(f"{path} is a text in UTF-16, and {what} is one in UTF-8; save it as UTF-8") from None
        raise FedscopeError(f"{path} is damaged: byte {error.start} is not UTF-8; {remedy}") from None
    return text if mark else text.removeprefix(MARK)


def _is_utf16(content: bytes) -> bool:
    """Whether this is a text as Windows' "Unicode", with a mark before it."""
    try:
        return content[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) and bool(content.decode("utf-16"))
    except UnicodeDecodeError:
        return False


def read_json(path: Path, what: str, remedy: str, most: int = SETTINGS) -> Any:
    """Read a JSON file. Raises as :func:`read_text`, and FedscopeError for what is no JSON."""
    try:
        return json.loads(read_text(path, what, remedy, most))
    except ValueError as error:
        raise FedscopeError(f"{path} is not JSON ({_first_line(error)}); {remedy}") from None
    except RecursionError:
        raise FedscopeError(f"{path} is damaged: its JSON is nested too deep; {remedy}") from None


def read_toml(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Read a TOML file. Raises as :func:`read_text`, and FedscopeError for what is no TOML."""
    try:
        return tomllib.loads(read_text(path, what, remedy).replace("\r\n", "\n"))
    except ValueError as error:  # also numbers of more digits than Python reads
        raise FedscopeError(f"{path} is not TOML: {_first_line(error)}; {remedy}") from None
    except RecursionError:
        raise FedscopeError(f"{path} is damaged: its TOML is nested too deep; {remedy}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
