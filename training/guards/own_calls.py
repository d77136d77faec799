"""Calls of code of one's own, methods and watchers, which must leave its arguments as they are: others read them
afterwards, and a run records them."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ...checkpoints import DiskMatrix, Weights
from ..import_string import is_elsewhere
from ..settings.registry import method_name
from .handed import ChangedError, Handed, is_protected
from .returned_arrays import ReturnedError, is_own_method

if TYPE_CHECKING:
    from ..local.local_training import LocalTask
    from ..methods.base import ClientMethod

P = ParamSpec("P")
R = TypeVar("R")

#: what NumPy says of an array that cannot be written to
_READ_ONLY = re.compile(r"is read-only$|^cannot modify read-only memory$|buffer is not writable$")
#: what is said of it by what may only want to read
_BUFFER = re.compile(r"^(underlying )?buffer ")
#: whether fedscope's own methods are watched, too
_everyone: ContextVar[bool] = ContextVar("everyone", default=False)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def ask(method: object, call: Callable[P, R], *args: P.args, **none: P.kwargs) -> R:
    """``call(*args)``, a method's function; one of somebody's own gets arguments that it cannot change.

    What it returns is as if it had been given the arguments themselves: see :meth:`.handed.Handed.back`. fedscope's own
    methods are called as they are.

    Raises:
        ReturnedError: it changes an argument in place; names the function, the argument and the line.
    """
    return watched(method, call, *args, **none) if _is_watched(method) else call(*args, **none)


@contextmanager
def watching_everyone() -> Iterator[None]:
    """Have fedscope's own methods watched, too, in calls from here."""
    token = _everyone.set(True)
    try:
        yield
    finally:
        _everyone.reset(token)


def _is_watched(method: object) -> bool:
    return _everyone.get() or is_own_method(method)


def watched(method: object, call: Callable[P, R], *args: P.args, **none: P.kwargs) -> R:
    """As :func:`ask`, of fedscope's own methods, too."""
    handed = Handed()
    views: Any = [handed.view(value, name) for value, name in zip(args, _names(call, len(args)), strict=True)]
    try:
        found = call(*views, **none)
    except ChangedError as error:
        place = f"{_place(method, call)} changes {error.args[0]} in place, through a tensor or an array"
        raise ReturnedError(f"{place} that shares its memory; copy it before you change it", "arguments") from None
    except (ValueError, TypeError) as error:
        if not _READ_ONLY.search(str(error)):
            raise
        raise ReturnedError(_refused(method, call, error, handed), "arguments") from error
    for path in handed.changed():
        how = "through a tensor or an array that shares its memory"
        place = _place(method, call)
        raise ReturnedError(f"{place} changes {path} in place, {how}; copy it before you change it", "arguments")
    kept: R = handed.back(found)
    return kept


def work_of(method: ClientMethod, name: str) -> Callable[[LocalTask], Any]:
    """Return a function of a client method as work on a task: as :func:`ask` calls it."""
    work: Callable[[LocalTask], Any] = getattr(method, name)
    return OwnCall(method, name) if _is_watched(method) else work


@dataclass(frozen=True)
class OwnCall:
    """A function of a client method as work on a task, which is watched and travels to other machines."""

    method: ClientMethod
    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, task: Any) -> Any:
        """Call it."""
        return watched(self.method, getattr(self.method, self.name), task)


def _place(method: object, call: Callable[..., Any]) -> str:
    """Return what sentences call a method's function, which may have been written under another name."""
    name, own = str(getattr(call, "__name__", "")), getattr(call, "__func__", call)
    known = (one for one in (name, *dir(type(method))) if getattr(type(method), one, None) is own)
    return f"{method_name(method)}.{next(known, name)}"


def _names(call: Callable[..., Any], count: int) -> list[str]:
    """Return what a function calls its first arguments."""
    try:
        known = [one.name for one in inspect.signature(call).parameters.values() if one.kind in _POSITIONAL]
    except (TypeError, ValueError):
        known = []
    return [*known[:count], *(f"argument {k + 1}" for k in range(len(known), count))]


def _refused(method: object, call: Callable[..., Any], error: BaseException, handed: Handed) -> str:
    """Say which argument is changed and in which line, as far as the line tells."""
    place, at = _place(method, call), _line(method, error)
    where = "" if at is None else f" (line {at.tb_lineno} of {Path(at.tb_frame.f_code.co_filename).name})"
    if _BUFFER.match(str(error)):
        return (
            f"{place} asks for an array that it may write to{where}, and others read what it is given; give it a copy"
        )
    path = None if at is None else handed.path_of(_written_to(at))
    if path is not None:
        return f"{place} changes {path} in place{where}; copy it before you change it"
    return f"{place} changes an array in place that it was given or made read-only{where}; copy it before you change it"


def _line(method: object, error: BaseException) -> TracebackType | None:
    """Return the innermost place in somebody's own code, or in the file of a method that a package brings."""
    own = getattr(sys.modules.get(type(method).__module__), "__file__", None)
    found, at = None, error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        found = at if file == own or is_elsewhere(file) else found
        at = at.tb_next
    return found


def _written_to(at: TracebackType) -> Any:
    """Return the first array that cannot be written to in the expression at which an error came up: functions that
    write to one take it first.

    Only names, and attributes and entries of what fedscope hands over are looked up, so that no code is run.
    """
    for node in _in_order(_expression(at)):
        value = _looked_up(node, at.tb_frame)
        if isinstance(value, DiskMatrix) or (isinstance(value, np.ndarray) and not value.flags.writeable):
            return value
    return None


def _expression(at: TracebackType) -> ast.AST:
    """Parse the source of the instruction that failed; an empty tree where it is not there."""
    code = at.tb_frame.f_code
    first, last, begin, end = next(islice(code.co_positions(), at.tb_lasti // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:  # Python was told to keep none
        first = last = at.tb_lineno
        begin, end = 0, None
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace").strip()
    for form in (text, f"({text})"):  # in brackets, of several lines
        with suppress(SyntaxError):
            return ast.parse(form)
    return ast.Module([], [])


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of an expression: what stands left of ``+=``, what ``out=`` names and what a method is called on
    before the others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign):
            yield from ast.walk(node.target)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        yield from (part for word in call.keywords if word.arg == "out" for part in ast.walk(word.value))
    for call in calls:
        yield from ast.walk(call.func)
    yield from ast.walk(tree)


def _looked_up(node: ast.AST, frame: FrameType) -> Any:
    """Return what a name, an attribute or an entry stands for; None of all else."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _looked_up(node.value, frame)
        return vars(owner).get(node.attr) if isinstance(owner, Weights) or is_protected(owner) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _looked_up(node.value, frame)
        return owner.get(node.slice.value) if type(owner) is dict else None
    return None
