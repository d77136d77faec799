"""The files of one's own that code is made of beside its own: those that it imports, and those of its bases.

What a function imports when it is called is not seen, nor what is computed from a name.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from ..import_string import is_elsewhere
from .reached_statements import imports_in, names_in, parsed, reached

#: characters of a source that a run keeps, at most
LONGEST = 1 << 20
#: folders of what is installed, for this Python or for all
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class ImportedFile:
    """A module in a file of one's own.

    Attributes:
        module: as Python imports it; text: of its file; path: of the file.
    """

    module: str
    text: str
    path: str

    @property
    def sha256(self) -> str:
        """Of the text's UTF-8 bytes."""
        return digest_of(self.text)


def digest_of(text: str) -> str:
    """Return the SHA-256 of the UTF-8 bytes of a source, as far as a run keeps it; "" of none."""
    return hashlib.sha256(text[:LONGEST].encode("utf-8", "surrogatepass")).hexdigest() if text else ""


def imported_by(code: Any, text: str, program: bool) -> tuple[ImportedFile, ...]:
    """Return the modules in files of one's own that a class or a function needs, by name, without its own: what it
    names of what its file imports, where that is so of what they import, too, and its bases.

    Args:
        text: of its source; program: whether that is its own lines alone, of a program or a notebook.
    """
    own = str(getattr(code, "__module__", None) or "")
    waiting = [(base.__module__, base.__name__) for base in getattr(code, "__mro__", ())[1:]]
    names = [str(getattr(code, "__qualname__", "")).partition(".")[0]]
    names += [name for module, name in waiting if module == own]
    if program:
        waiting += _named_in_program(text, own)
    elif (tree := parsed(text)) is not None:
        waiting += _imported_in(tree, names, own)
    found: dict[str, ImportedFile | None] = {own: None}
    seen = set[tuple[str, str]]()
    while waiting:
        module, name = waiting.pop()
        if (module, name) in seen or module == own:
            continue
        seen.add((module, name))
        if module not in found:
            found[module] = _file_of(module)
        file = found[module]
        if file is not None and (tree := parsed(file.text)) is not None:
            waiting += _imported_in(tree, [name] if name else [], module)
    return tuple(file for _, file in sorted(found.items()) if file is not None)


def _file_of(module: str) -> ImportedFile | None:
    """Return the file of a module; None of one of fedscope's, Python's, an installed package, or in another form."""
    there = sys.modules.get(module)
    try:
        path = None if there is None or module == "__main__" else inspect.getsourcefile(there)
        if path is None or not is_elsewhere(path) or _INSTALLED & {*Path(path).parts}:
            return None
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError):
        return None
    return ImportedFile(module, text[:LONGEST], path) if text else None


def _imported_in(tree: ast.Module, names: list[str], module: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that names of a module lead to, each with the name that is taken of it, or "" for all."""
    there = sys.modules.get(module)
    for statement in reached(tree, names):
        for node in imports_in(statement):
            if isinstance(node, ast.Import):
                yield from ((one.name, "") for one in node.names)
                continue
            base = _absolute(node, there)
            for one in node.names:
                inner = f"{base}.{one.name}"
                yield (inner, "") if inner in sys.modules else (base, one.name.replace("*", ""))


def _absolute(node: ast.ImportFrom, there: ModuleType | None) -> str:
    if not node.level:
        return node.module or ""
    try:
        return resolve_name("." * node.level + (node.module or ""), str(getattr(there, "__package__", "") or ""))
    except ImportError:
        return ""


def _named_in_program(text: str, module: str) -> Iterator[tuple[str, str]]:
    """Yield the same of what a program or a notebook defines: the modules, classes and functions that it names."""
    tree, there = parsed(text), vars(sys.modules[module]) if module in sys.modules else {}
    for name in sorted(set(names_in(tree))) if tree is not None else ():
        value = there.get(name)
        if isinstance(value, ModuleType):
            yield value.__name__, ""
        elif inspect.isclass(value) or inspect.isroutine(value):
            yield str(value.__module__), str(value.__qualname__).partition(".")[0]
