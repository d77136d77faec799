"""The source of code of one's own: its text, its SHA-256, what it imports, and the distribution that it was installed
with."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .edited_code import is_edited
from .imported_code import LONGEST, ImportedFile, digest_of, imported_by

#: the module of a program, a notebook or an interpreter: its text is more than the code, and changes without it
_PROGRAM = "__main__"


@dataclass(frozen=True)
class CodeSource:
    """The source of code of one's own.

    Attributes:
        text: of its file; of what a program or a notebook defines, its own lines; "" where Python does not know it.
        sha256: of the text's UTF-8 bytes; "" where there is none.
        file: the file's name, without its folder; path: with it, as it was imported.
        distribution, version: of the package that it was installed with; "" for a file of one's own.
        edited: whether the file says something else than the code that was imported from it.
        imports: the other files of one's own that it is made of.
    """

    text: str = ""
    sha256: str = ""
    file: str = ""
    distribution: str = ""
    version: str = ""
    edited: bool = False
    path: str = ""
    imports: tuple[ImportedFile, ...] = ()

    def said(self) -> dict[str, str]:
        """As a run keeps it beside the texts: what is imported as ``helpers=SHA256 pkg.more=SHA256``."""
        said = {name: getattr(self, name) for name in ("sha256", "file", "distribution", "version")}
        said["imports"] = " ".join(f"{module}={sum_}" for module, sum_ in self.sums.items())
        return {name: value for name, value in said.items() if value}

    @property
    def sums(self) -> dict[str, str]:
        """The SHA-256 of what it imports, by module."""
        return {one.module: one.sha256 for one in self.imports}

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, and behind it where others are imported that of theirs: results that compare it do
        not keep them, and results of earlier versions have the first alone."""
        return f"{self.sha256} {digest_of(self.said()['imports'])}" if self.imports else self.sha256


def source_of(thing: Any) -> CodeSource:
    """Find the source of a class, a function, or an object by its class.

    >>> from fractions import Fraction
    >>> source_of(Fraction).file, len(source_of(Fraction).sha256), source_of(3).text
    ('fractions.py', 64, '')
    """
    code = _code_of(thing)
    module = getattr(code, "__module__", None) or ""
    text, path = _text_of(code, module)
    file = Path(path).name
    distribution, version = _distribution_of(module.partition(".")[0])
    edited = bool(file) and not distribution and is_edited(code, sys.modules[module], text)
    imports = imported_by(code, text, program=not path)
    return CodeSource(text[:LONGEST], digest_of(text), file, distribution, version, edited, path, imports)


def digest_now(path: str) -> str:
    """Return the SHA-256 of a source as its file says it now; "" where it is gone, or no text."""
    try:
        return digest_of(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _code_of(thing: Any) -> Any:
    """Return the class or the function that an object's text is of."""
    while hasattr(thing, "func"):  # functools.partial
        thing = thing.func
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)


def _text_of(code: Any, module: str) -> tuple[str, str]:
    try:
        if module == _PROGRAM or module not in sys.modules:
            return inspect.getsource(code), ""
        path = inspect.getsourcefile(sys.modules[module])
        return ("", "") if path is None else (Path(path).read_text(encoding="utf-8"), path)
    except (OSError, TypeError, UnicodeDecodeError):  # built in, or typed into an interpreter
        return "", ""


def _distribution_of(package: str) -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    name = next(iter(_distributions().get(package, ())), "")
    try:
        return (name, version(name)) if name else ("", "")
    except PackageNotFoundError:
        return "", ""


@cache
def _distributions() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()
