"""Whether a file says something else than the code that was imported from it: a notebook goes on with the old code."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any


def is_edited(code: Any, module: ModuleType, text: str) -> bool:
    """Check whether a class or a function, or what it uses of its module, is not what the module's file says now.

    Compared are compiled functions, their literal defaults, and literals that a class or the module names and that the
    file rebinds nowhere: neither by another assignment, a ``global`` statement, nor an attribute of that name. What is
    computed when the module is imported is not. False where the loader writes the code itself, as pytest does.

    Args:
        code: the class or the function; module: that it is of; text: the file's, as it is now.
    """
    loader = getattr(module, "__loader__", None)
    if type(loader) is not SourceFileLoader:
        return False
    try:
        there = _File(text, str(getattr(module, "__file__", "")))
        return any(not there.says(one) for one in _used_by(code, module, there))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # it could not be imported like this


class _File:
    """What a file's text says, by the qualified names of functions and classes."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.tree = ast.parse(text)
        self.compiled = compile(text, name, "exec", dont_inherit=True)

    @cached_property
    def codes(self) -> Mapping[str, list[CodeType]]:
        """The compiled functions; several of a name that is defined in branches."""
        found: dict[str, list[CodeType]] = {}
        waiting = [self.compiled]
        while waiting:
            code = waiting.pop()
            found.setdefault(code.co_qualname, []).append(code)
            waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        return found

    @cached_property
    def literals(self) -> Mapping[str, Any]:
        """Literals of names that the file binds once in the module or a class, by qualified name."""
        times = Counter(_bound(self.tree.body, ""))
        elsewhere = _rebound(self.tree)
        return {
            name: value
            for name, node in _assigned(self.tree.body, "")
            if times[name] == 1 and name.rpartition(".")[2] not in elsewhere
            for value in _literal(node)
        }

    @cached_property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Literal defaults of functions that are defined once, by qualified name and parameter."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for name, node in _functions(self.tree.body, ""):
            found.setdefault(name, []).append(dict(_defaults(node.args)))
        return {name: some[0] for name, some in found.items() if len(some) == 1}

    def says(self, one: tuple[str, Any]) -> bool:
        """Check one function, or one value by its qualified name."""
        name, value = one
        if not isinstance(value, FunctionType):
            return name not in self.literals or _is_same(self.literals[name], value)
        if not any(_is_like(value.__code__, other) for other in self.codes.get(value.__code__.co_qualname, [])):
            return False
        parameters = inspect.signature(value, follow_wrapped=False).parameters
        said = self.defaults.get(value.__code__.co_qualname, {})
        return all(key in parameters and _is_same(said[key], parameters[key].default) for key in said)


def _used_by(code: Any, module: ModuleType, there: _File) -> Iterator[tuple[str, Any]]:
    """Yield the functions that a class or a function is made of or names, and the values; each once."""
    seen: set[int] = set()
    waiting = [code]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if inspect.isclass(one):
            if one.__module__ != module.__name__:
                continue
            waiting += [base for base in one.__mro__[1:] if base.__module__ == module.__name__]
            for name, value in vars(one).items():
                functions = list(_functions_of(value))
                waiting += functions
                if not functions and not _is_made(value):
                    yield f"{one.__qualname__}.{name}", value
        elif isinstance(one, FunctionType) and one.__code__.co_filename == there.name:
            yield one.__qualname__, one
            for name in _names_in(one.__code__):
                value = vars(module).get(name)
                functions = list(_functions_of(value))
                waiting += functions
                if inspect.isclass(value):
                    waiting.append(value)
                elif not functions and name in vars(module):
                    yield name, value


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield the functions in what a name stands for: a function, without decorators, a method or a property."""
    parts = [getattr(value, part, None) for part in ("__func__", "fget", "fset", "func", "__wrapped__")]
    for one in [value, *parts] if not inspect.isclass(value) else []:
        one = inspect.unwrap(one) if callable(one) and not inspect.isclass(one) else one
        if isinstance(one, FunctionType):
            yield one


def _is_made(value: Any) -> bool:
    """Check whether a class has made something else of what its body says: a member of an Enum, a NamedTuple's field,
    a slot."""
    return isinstance(value, Enum) or hasattr(type(value), "__get__")


def _names_in(code: CodeType) -> set[str]:
    inner = (name for one in code.co_consts if isinstance(one, CodeType) for name in _names_in(one))
    return {*code.co_names, *inner}


def _is_like(one: CodeType, other: CodeType) -> bool:
    """Compare compiled functions; lines may have moved."""
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_kwonlyargcount")
    if any(getattr(one, name) != getattr(other, name) for name in (*names, "co_posonlyargcount", "co_flags")):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _is_like(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else _is_same(x, y)
        for x, y in zip(one.co_consts, other.co_consts, strict=True)
    )


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)  # 0.0 is not -0.0, and NaN is itself


def _assigned(body: list[ast.stmt], before: str) -> Iterator[tuple[str, ast.expr | None]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _assigned(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield before + target.id, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
            yield before + node.target.id, _default_of(node.value) if isinstance(node, ast.AnnAssign) else None


def _bound(body: list[ast.stmt], before: str) -> Iterator[str]:
    """Yield the qualified name of each binding in a module's and its classes' bodies, their branches and loops too."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield before + node.id
        elif isinstance(node, ast.alias):
            yield before + (node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield before + node.name
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from _bound(node.body, f"{before}{node.name}.")
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _rebound(tree: ast.Module) -> set[str]:
    """Return the names that functions may give another value: under ``global``, or as attributes of anything."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.add(node.attr)
    return found


def _default_of(node: ast.expr | None) -> ast.expr | None:
    """Return what a field of a dataclass stands for in its class: of ``setting(0.9, ...)`` the default."""
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in ("setting", "field"):
        return node
    named = [word.value for word in node.keywords if word.arg == "default"]
    return next(iter([*node.args, *named]), None)


def _functions(body: list[ast.stmt], before: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + node.name, node


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, Any]]:
    named = [*arguments.posonlyargs, *arguments.args]
    given = [*zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    for one, node in [*given, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
        for value in _literal(node):
            yield one.arg, value


def _literal(node: ast.expr | None) -> list[Any]:
    """The value of a literal; nothing of anything else, nor of what a program may fill: lists, sets and dicts."""
    if node is None:
        return []
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return []
    return [value] if isinstance(value, int | float | str | bytes | tuple | None) else []
