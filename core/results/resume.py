"""The resume store of an interrupted analysis, the values that it holds, and the lock of a result, which one command at
a time may write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar, get_args, get_origin

import xxhash

from ..checkpoints.io.atomic import disk_is_full, shorten_name, write_durably
from ..checkpoints.io.errors import DiskFullError, FedscopeError
from ..checkpoints.io.locks import HeldError, HeldLock, hold
from ..checkpoints.io.safe_write import explain_unwritten, open_own, refuse_strange
from ..checkpoints.io.untrusted import regular
from ..checkpoints.io.warn_user import warn_user

if TYPE_CHECKING:
    from cattrs import Converter

_WHAT = "the store of an interrupted analysis"
#: the key of what parts are made of, no part itself
_MADE_OF = "made of"
#: keys that questions of earlier versions lack
LATER = ("answers", "task_means_behaviour")
T = TypeVar("T")


class ResumeStore:
    """An append-only store of finished parts, one JSON line each; the first line says which question they answer.

    A torn last line (a kill while writing) is left out; a store of another question (``fingerprint``) starts afresh,
    with a warning. A line that is not what was written (each has its checksum) ends what is believed: the file is set
    aside as ``PATH.damaged``, with a warning, and the parts before that line go on. Without a path parts are kept as
    long as the object.

    Args:
        path: of the file.
        fingerprint: the question.
        aside: whether a damaged file may be set aside: it is this process' own.
        made_of: what parts are made of, by name, each with what tells it from another of its name. The store keeps it:
            parts go on with more of it, and start afresh with a warning where one has become another.

    Attributes:
        done: finished parts by key.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ResumeStore(Path(folder, "plane.partial"), {"grid": 51}) as store:
    ...         store.add("7", [0.5, 0.1])
    ...     ResumeStore(Path(folder, "plane.partial"), {"grid": 51}).done
    {'7': [0.5, 0.1]}
    """

    @explain_unwritten()
    def __init__(
        self,
        path: Path | str | None,
        fingerprint: Mapping[str, Any],
        *,
        aside: bool = True,
        made_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path = None if path is None else Path(path)
        self._made_of = dict(made_of)
        self._aside = aside
        self._question = fingerprint
        self._head = json.dumps(fingerprint, sort_keys=True)
        self._file: TextIO | None = None
        self.done: dict[str, Any] = {}
        self._whole = self._read()
        before = self.done.pop(_MADE_OF, {})
        if any(before.get(name, told) != told for name, told in self._made_of.items()):
            warn_user(f"{self.path} was made of rounds that were recorded again since, so this one starts again")
            self.done, self._whole, before = {}, 0, {}
        # written with the first part that is added: a store in which nothing is finished is no file
        self._unsaid = before.keys() < {**before, **self._made_of}.keys()
        self._made_of = {**before, **self._made_of}

    def _read(self) -> int:
        """Take over the finished parts; returns how many bytes of the file are good."""
        if self.path is None:
            return 0
        refuse_strange(self.path, _WHAT)  # parts will be added to it
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        good = 0
        *lines, _ = content.split(b"\n")  # what has no line's end is torn
        for i, line in enumerate(lines):
            try:
                part = json.loads(line)
                if i:
                    self.done[part["key"]] = _value_of(part)
                elif not isinstance(part, dict):
                    raise TypeError("no fingerprint")
            except (ValueError, TypeError, LookupError, RecursionError):
                self._set_aside(content, f"line {i + 1} is not what was written")
                break
            if i == 0 and not is_same_question(part, self._question):
                warn_user(
                    f"{self.path} was left by an analysis with other settings, models or versions, so this one "
                    "starts again"
                )
                break
            good += len(line) + 1
        return good

    def _set_aside(self, content: bytes, why: str) -> None:
        """Keep a copy of a damaged file: the file itself is a lock, too, and stays where it is."""
        assert self.path is not None
        damaged = self.path.with_name(f"{self.path.name}.damaged")
        kept = "it is left as it is"
        if self._aside:
            with write_durably(damaged) as temporary:
                temporary.write_bytes(content)
            kept = f"a copy is kept as {damaged.name}"
        warn_user(f"{self.path} is damaged ({why}); {kept}, and what it held from there on is computed again")

    def take(self, key: str, read: Callable[[Any], T]) -> T | None:
        """A finished part, read; None where it is not there, or its value is none that can be read: then it is set
        aside with a warning, and to be computed again.

        Args:
            read: makes what is wanted of the value; a LookupError, TypeError, ValueError, AttributeError or
                ArithmeticError says that it is none.
        """
        if key not in self.done:
            return None
        try:
            return read(self.done[key])
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            content = b"" if self.path is None or not self.path.exists() else regular(self.path).read_bytes()
            self._set_aside(content, f"the value of {key[:40]} is none")
            del self.done[key]
            return None

    @explain_unwritten()
    def add(self, key: str, value: Any) -> None:
        """Keep one finished part (what JSON holds, NaN and infinities too).

        Raises:
            DiskFullError: nothing more fits; the parts before stay.
        """
        line = _line_of(key, value)
        if self.path is None:  # the same numbers as from a file
            self.done[key] = json.loads(line)["value"]
            return
        try:
            self._append(self.path, line)
        except OSError as error:
            self._give_up()
            if not disk_is_full(error):
                raise
            raise DiskFullError(
                f"{self.path} cannot be written: the disk is full; make room, and give the same command again, which "
                "goes on from what is kept"
            ) from error
        self.done[key] = value

    def _append(self, path: Path, line: str) -> None:
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.fdopen(open_own(path, _WHAT, flags), "a", encoding="utf-8")
            self._file.truncate(self._whole)
            if not self._whole:
                self._file.write(self._head + "\n")
        if self._unsaid:
            self._file.write(_line_of(_MADE_OF, self._made_of))
        self._file.write(line)
        self._file.flush()
        self._unsaid = False
        self._whole = os.fstat(self._file.fileno()).st_size

    def _give_up(self) -> None:
        """Close the file without what could not be written, which a second write would fail at, too."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def finish(self) -> None:
        """Remove the file: the result is safe elsewhere."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self._whole = 0

    def __enter__(self) -> ResumeStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sum_of(key: str, value: Any) -> str:
    """Compute the checksum of a part, as JSON."""
    return xxhash.xxh3_64_hexdigest(json.dumps([key, value]).encode())


def _line_of(key: str, value: Any) -> str:
    return json.dumps({"key": key, "value": value, "sum": sum_of(key, value)}) + "\n"


def _value_of(part: Any) -> Any:
    """Return the value of a line.

    Raises:
        LookupError, TypeError, ValueError: it is not what was written.
    """
    if not isinstance(part["key"], str) or part["sum"] != sum_of(part["key"], part["value"]):
        raise ValueError("another sum")
    return part["value"]


def stored_fingerprint(path: Path) -> dict[str, Any] | None:
    """Read which question a store answers; None where there is no store, or nothing in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ResumeStore(Path(folder, "a.partial"), {"grid": 51}) as store:
    ...         store.add("7", [0.5, 0.1])
    ...     stored_fingerprint(Path(folder, "a.partial")), stored_fingerprint(Path(folder, "b.partial"))
    ({'grid': 51}, None)
    """
    try:
        with regular(path, _WHAT).open("rb") as file:
            head = json.loads(file.readline())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) else None


def is_same_question(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Check whether a store answers a question; one of an earlier version is compared by what was asked then.

    >>> is_same_question({"grid": 51}, {"grid": 51, "answers": "3af1"})
    True
    >>> is_same_question({"grid": 51, "answers": "9c02"}, {"grid": 51, "answers": "3af1"})
    False
    """
    later = [key for key in LATER if key not in stored]
    then = {key: value for key, value in asked.items() if key not in later}
    return json.dumps(stored, sort_keys=True) == json.dumps(then, sort_keys=True)


class Serializable:
    """A dataclass of plain values, arrays and such dataclasses that JSON can hold; floats survive exactly.

    A field that is not said has its default.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point(Serializable):
    ...     run: str
    ...     places: tuple[float, ...] = ()
    >>> Point("ima", (0.1, float("nan"))).to_json()
    {'run': 'ima', 'places': [0.1, nan]}
    >>> Point.from_json({"run": "ima", "places": [0.1]})
    Point(run='ima', places=(0.1,))
    """

    def to_json(self) -> Any:
        """Plain lists, mappings and numbers."""
        return _converter().unstructure(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Build it from what :meth:`to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: what it holds is not such a value.
        """
        return _converter().structure(value, cls)


@cache
def _converter() -> Converter:
    import numpy as np
    from cattrs import Converter

    def is_array(kind: Any) -> bool:
        return (get_origin(kind) or kind) is np.ndarray

    def array(value: Any, kind: Any) -> Any:
        about = get_args(kind)  # of NDArray[np.int64]
        return np.array(value, get_args(about[1])[0] if about else np.float64)

    converter = Converter(detailed_validation=False)  # which raises groups of errors instead of KeyError and others
    converter.register_unstructure_hook_func(is_array, lambda values: values.tolist())
    converter.register_structure_hook_func(is_array, array)
    return converter


@dataclass
class ResultLock:
    """The lock of a result; ``saving`` says that files of the result have been touched."""

    saving: bool = False


@contextmanager
def lock_result(partial: Path, files: Sequence[Path]) -> Iterator[ResultLock]:
    """Hold a result while it is computed and saved: a lock on its ``.partial``, the file that also holds the store of
    what is computed so far.

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
    held = _lock(partial)
    claim = ResultLock()
    try:
        sweep(files)
        yield claim
        partial.unlink(missing_ok=True)
    except BaseException:
        nothing = os.fstat(held.descriptor).st_size == 0 and not claim.saving
        if nothing:
            partial.unlink(missing_ok=True)
        held.release()
        if nothing:
            with suppress(OSError):  # another command has begun there
                for folder in missing:
                    folder.rmdir()
        raise
    else:
        held.release()


def sweep(files: Sequence[Path]) -> None:
    """Remove temporaries of these names."""
    for folder in {file.parent for file in files}:
        names = {shorten_name(file.name) for file in files if file.parent == folder}
        for path in folder.glob(".*.tmp"):
            if path.name[1:-4].rpartition(".")[0] in names:
                path.unlink(missing_ok=True)


def _lock(partial: Path) -> HeldLock:
    while True:
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            return hold(partial, _WHAT)
        except FileNotFoundError:  # whoever made the folder has removed it
            continue
        except HeldError as other:
            by = f" ({other.by})" if other.remedy else ""
            remedy = other.remedy or "wait until it ends"
            raise FedscopeError(
                f"another command{by} is writing {partial.name.removesuffix('.partial')} in {partial.parent}; "
                f"{remedy}, or give another --out"
            ) from None
