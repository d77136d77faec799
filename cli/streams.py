"""Output that cannot be printed: a full disk behind ``>``, a closed terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: the name of the place in an error that a print raises
STDOUT = "standard output"


class ReaderGoneError(BrokenPipeError):
    """Nobody reads standard output any more, as behind ``fedscope ls | head``, which is no error.

    It has no errno, because click ends the process with status 1 at an error that says EPIPE.
    """


class _Told(io.TextIOWrapper):
    """Standard output, whose errors say that it is meant."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._named(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._named(error) from None

    @staticmethod
    def _named(error: OSError) -> OSError:
        if isinstance(error, BrokenPipeError):
            return ReaderGoneError(STDOUT)
        error.filename = STDOUT
        return error


class _Quiet(io.TextIOWrapper):
    """Standard error: where it cannot be written, nobody can be told so, and the work goes on."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


def open_closed() -> None:
    """Have standard streams lead nowhere that were closed when this process began, as a scheduler or ``2>&-`` closes
    them: Python has None in their place, and the next file that is opened has their number, into which others print."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        opened = None
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free is this one
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR) if opened is None else opened  # another file has the number already
            mode = "r" if name == "stdin" else "w"
            stream = os.fdopen(place, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # which keeps it open while another stands in its place


def guard() -> None:
    """Have this process's standard output say what fails, and its standard error go on without a word."""
    open_closed()
    sys.stdout = _guard_stream(sys.stdout, _Told)
    sys.stderr = _guard_stream(sys.stderr, _Quiet)


def _guard_stream(stream: Any, kind: type[io.TextIOWrapper]) -> Any:
    if not isinstance(stream, io.TextIOWrapper):  # it is a test's
        return stream
    return kind(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextmanager
def say_if_unprinted(whole: str) -> Iterator[None]:
    """Say what is whole though it could not be printed.

    Raises:
        FedscopeError: standard output cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.filename != STDOUT:
            raise
        from ..checkpoints import FedscopeError

        raise FedscopeError(describe_unprinted(error, whole)) from None


def describe_unprinted(error: OSError, whole: str = "the files that this command has written are whole") -> str:
    """Return the sentence for an error of standard output, which takes no more from here on."""
    print_no_more()
    return f"{STDOUT} cannot be written ({error.strerror}); {whole}"


def print_no_more() -> None:
    """Have standard output take what is left to print, and drop it: it would fail once more at the end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
