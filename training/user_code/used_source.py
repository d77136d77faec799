"""What a kept source says of its class or function, so that an edited comment makes no other method of it: its text is
parsed, and never run."""

from __future__ import annotations

import ast
import hashlib
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ...checkpoints import Run
from ..settings.entry_points import chosen
from .kept_source import kept_text
from .provided_code import SHELVES

_TORCH = ("torch", "torchvision")


def digest_of_used(run: Run, entry: Mapping[str, Any]) -> str:
    """Return a digest of what a source says that a run keeps: of the code that the entry names and what that uses of
    its file, without comments, docstrings and layout. Of a text that is not there or no Python the SHA-256 of its file;
    "" where nothing is known. Another version of PyTorch makes no other method: fedscope's own are PyTorch's, too.

    Digests are compared with each other, and never kept: they are those of this Python's parser.
    """
    if entry.get("distribution") in _TORCH:
        return str(entry["distribution"])
    recorded = str(entry.get("sha256", ""))
    text = kept_text(run, entry) if recorded else None
    used = None if text is None else _used(text.removeprefix("\ufeff"), _name_in_file(entry))
    return recorded if used is None else hashlib.sha256(used.encode("utf-8", "surrogatepass")).hexdigest()


def _name_in_file(entry: Mapping[str, Any]) -> str:
    """Return what code is called in its file: ``FedX(2)`` of ``mine:FedX(2)``, and of a name that an installed package
    gives what its entry point says; nothing is imported."""
    name = str(entry["name"])
    if ":" not in name and (shelf := SHELVES.get(str(entry.get("kind")))) is not None:
        own = chosen(shelf, name)
        name = name if own is None else own.value
    return name.partition(":")[2]


@lru_cache(maxsize=64)  # many runs of a sweep have one text
def _used(text: str, name: str) -> str | None:
    """What a text says of a name in it, ``FedX`` or ``net(5)``; all where it has no such name. None of no Python.

    >>> one, other = "import os\\n\\nclass A: x = 1\\n", 'class A:\\n    "Says."\\n    x = 1  # one\\nclass B: pass\\n'
    >>> _used(one, "A") == _used(other, "A"), _used(one, "A") == _used(other, "B"), _used("class A", "A")
    (True, False, None)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of somebody else's text
            tree = ast.parse(textwrap.dedent(text))
        for node in ast.walk(tree):
            _drop_docstring(node)
        said = [one for one in tree.body if not _is_aside(one)]
        body = _reached(said, name.partition("(")[0].partition(".")[0])
        return "\n".join(map(ast.dump, body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]


def _is_aside(statement: ast.stmt) -> bool:
    """Check whether a statement of a module says nothing of what it defines: what a program does when it is started,
    imports for types, a bare text, and where this machine has its packages and devices."""
    match statement:
        case ast.If(test=ast.Compare(left=ast.Name("__name__")), orelse=[]):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=[]):
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Attribute(ast.Name("sys"), "path")))):
            return True
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(ast.Name("os"), "environ"))]):
            return True
    return False


def _reached(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the statements of a module that a name leads to, and those that do more than bind names: they may change
    what the others say."""
    binds = [_bound_by(one) for one in body]
    if not any(name in names for names in binds if names is not None):
        return body
    taken = {i for i, names in enumerate(binds) if names is None}
    known, waiting = set[str](), [name, *(used for i in taken for used in _names_in(body[i]))]
    while waiting:
        used = waiting.pop()
        if used in known:
            continue
        known.add(used)
        for i, names in enumerate(binds):
            if names is not None and used in names and i not in taken:
                taken.add(i)
                waiting += _names_in(body[i])
    return [body[i] for i in sorted(taken)]


def _bound_by(statement: ast.stmt) -> set[str] | None:
    """Return the names that a statement does nothing but bind; None of all others."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = {one.asname or one.name.partition(".")[0] for one in statement.names}
        return None if "*" in names else names
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if isinstance(statement, ast.Assign | ast.AnnAssign) and all(isinstance(one, ast.Name) for one in targets):
        return {one.id for one in targets if isinstance(one, ast.Name)}
    return None


def _names_in(statement: ast.stmt) -> Iterator[str]:
    """Yield the names in a statement, those in annotations that are written as texts too."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
