"""What a kept source says of its class or function, so that an edited comment makes no other method of it: its text is
parsed, and never run."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ...checkpoints import Run
from ..settings.entry_points import chosen
from ..settings.reached_statements import imports_in, parsed, reached
from .kept_imports import imports_of
from .kept_source import kept_imports, kept_text
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
    used = None if text is None else _used(text, _name_in_file(entry))
    return recorded if used is None else hashlib.sha256(used.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_imports(run: Run, entry: Mapping[str, Any]) -> str:
    """Return the same of what the source imports, as far as it uses it; "" where it says nothing of that."""
    known = imports_of(entry)
    if not known:
        return ""
    text = kept_text(run, entry)
    said = _used_of_others(text or "", _name_in_file(entry), tuple(kept_imports(run, entry).items()))
    parts = (f"{module} {said.get(module, known[module])}" for module in known)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


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
        tree = _undocumented(text)
        return None if tree is None else _dumped(tree, {name.partition("(")[0].partition(".")[0]})
    except (RecursionError, MemoryError):
        return None


def _undocumented(text: str) -> ast.Module | None:
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        _drop_docstring(node)
    return tree


def _dumped(tree: ast.Module, names: Collection[str]) -> str:
    return "\n".join(map(ast.dump, reached(tree, [] if "" in names else names)))


@lru_cache(maxsize=64)
def _used_of_others(text: str, name: str, others: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """What texts of imported modules say of what a name in a text takes of them, by module; all of a module of which
    that is not known. Nothing of no Python.

    >>> def used(text): return _used_of_others("from helpers import A\\nclass C: x = A", "C", (("helpers", text),))
    >>> used("A = 1\\nB = 2") == used("A = 1  # one\\nB = 3"), used("A = 1") == used("A = 2")
    (True, False)
    """
    trees = {module: tree for module, of in others if (tree := _undocumented(of)) is not None}
    taken: dict[str, set[str]] = {}
    first = parsed(text)
    waiting = [] if first is None else [*_taken(first, name.partition("(")[0].partition(".")[0], trees)]
    while waiting:
        module, own = waiting.pop()
        names = taken.setdefault(module, set())
        if own not in names:
            names.add(own)
            waiting += _taken(trees[module], own, trees)
    try:
        return {module: _dumped(tree, taken.get(module, {""})) for module, tree in trees.items()}
    except (RecursionError, MemoryError):
        return {}


def _taken(tree: ast.Module, name: str, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what a name of a module takes of others: a module and a name, or "" for all of it."""
    for statement in reached(tree, [name] if name else []):
        for node in imports_in(statement):
            for one in node.names:
                if isinstance(node, ast.Import):
                    base, inner, own = "", one.name, ""
                else:
                    base = f"{'.' * bool(node.level)}{node.module or ''}"
                    inner, own = f"{base.rstrip('.')}.{one.name}", one.name.replace("*", "")
                yield from ((module, "") for module in modules if _ends_with(module, inner))
                yield from ((module, own) for module in modules if _ends_with(module, base))


def _ends_with(module: str, name: str) -> bool:
    """Check whether a module is meant by a name, which begins with a dot where it is beside the one that imports it."""
    return module == name or (name.startswith(".") and f".{module}".endswith(name))


def _drop_docstring(node: ast.AST) -> None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]
