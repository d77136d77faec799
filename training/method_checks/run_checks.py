"""The checks of a method, asked one after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from ...checkpoints import FedscopeError, FedscopeWarning, nearest
from ...checkpoints.io.quiet import without_warnings
from ..guards.returned_arrays import ReturnedError
from ..import_string import describe_error
from .every import CHECKS
from .outcome import Check, CheckFailed, Line, NotAsked
from .subject import Subject


def check_names() -> tuple[str, ...]:
    """Return the names of all checks."""
    return tuple(check.name for check in CHECKS)


def chosen_checks(only: Sequence[str] | str | None) -> tuple[Check, ...]:
    """Return the checks of some names; all without any.

    Raises:
        FedscopeError: a check that there is not.
    """
    wanted = [only] if isinstance(only, str) else list(only or ())
    for name in wanted:
        if name not in check_names():
            raise FedscopeError(
                f"--only {name} is not a check{nearest(name, check_names())}; there are {', '.join(check_names())}"
            )
    return tuple(check for check in CHECKS if not wanted or check.name in wanted)


def ask_all(subject: Subject, checks: Sequence[Check], tell: Callable[[Line], None] = lambda line: None) -> list[Line]:
    """Ask every check that concerns the kind of method; ``tell`` is given each line as it ends."""
    asked = [check for check in checks if subject.kind in check.kinds]
    lines: list[Line] = []
    untrained = _train(subject, asked)
    for check in asked:
        began = perf_counter()
        line = _line(subject, check, untrained, {line.check for line in lines if line.outcome == "failed"})
        lines.append(replace(line, seconds=perf_counter() - began))
        tell(lines[-1])
    return lines


def _train(subject: Subject, asked: Sequence[Check]) -> tuple[str, str] | None:
    """Train the method, where a check needs it; the check that fails by that, and its words, where it cannot be."""
    needing = [check.name for check in asked if check.trained]
    if not needing:
        return None
    try:
        with _quiet():
            _ = subject.run
    except KeyboardInterrupt:
        raise
    except Exception as error:
        blamed = error.check if isinstance(error, ReturnedError) else "plays"
        return blamed if blamed in needing else needing[0], _words(error)
    return None


def _line(subject: Subject, check: Check, untrained: tuple[str, str] | None, failed: set[str]) -> Line:
    if untrained is not None and check.trained:
        if check.name == untrained[0]:
            return Line(subject.kind, check.name, "failed", untrained[1])
        return Line(subject.kind, check.name, "not asked", "it could not be trained")
    if check.repeatable and "same-seed" in failed:
        return Line(subject.kind, check.name, "not asked", "it gives other numbers each time, see same-seed")
    try:
        with _quiet():
            return Line(subject.kind, check.name, "passed", check.ask(subject))
    except NotAsked as why:
        return Line(subject.kind, check.name, "not asked", str(why))
    except CheckFailed as failure:
        return Line(subject.kind, check.name, "failed", str(failure))
    except Exception as error:
        if isinstance(error, ReturnedError) and error.check in failed:
            return Line(subject.kind, check.name, "not asked", f"it meets what failed already, see {error.check}")
        return Line(subject.kind, check.name, "failed", _words(error))


def _words(error: Exception) -> str:
    """An error as a sentence: fedscope's own as it is, another one with the line that raised it."""
    if isinstance(error, FedscopeError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    at = f", {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    return f"it raises {describe_error(error)}{at}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings about tiny federations."""
    with without_warnings(FedscopeWarning), without_warnings(RuntimeWarning):
        yield


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for the runs of checks, which is gone afterwards."""
    with TemporaryDirectory(prefix="fedscope-check-") as place:
        yield Path(place)
