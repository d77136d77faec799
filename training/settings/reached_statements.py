"""The statements of a module that something in it leads to; a text is parsed, and never run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection, Iterator

from ...checkpoints.io.quiet import without_warnings


def parsed(text: str) -> ast.Module | None:
    """Parse somebody else's text; None of what is no Python."""
    try:
        with without_warnings():
            return ast.parse(textwrap.dedent(text.removeprefix("\ufeff")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def reached(tree: ast.Module, names: Collection[str]) -> list[ast.stmt]:
    """Return the statements of a module that names lead to, and those that do more than bind names: they may change
    what the others say. All where it has none of these names.

    What a program does when it is started, imports for types, bare texts, and where this machine has its packages and
    devices are left out.
    """
    body = [one for one in tree.body if not _is_aside(one)]
    binds = [_bound_by(one) for one in body]
    if not any(known & set(names) for known in binds if known is not None):
        return body
    taken = {i for i, known in enumerate(binds) if known is None}
    seen, waiting = set[str](), [*names, *(used for i in taken for used in names_in(body[i]))]
    while waiting:
        used = waiting.pop()
        if used in seen:
            continue
        seen.add(used)
        for i, known in enumerate(binds):
            if known is not None and used in known and i not in taken:
                taken.add(i)
                waiting += names_in(body[i])
    return [body[i] for i in sorted(taken)]


def names_in(statement: ast.AST) -> Iterator[str]:
    """Yield the names in a statement, those in annotations that are written as texts too."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def imports_in(statement: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield what a statement imports when its module is imported: not what its functions do when they are called."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not _is_aside(node):
            waiting += ast.iter_child_nodes(node)


def _is_aside(statement: ast.AST) -> bool:
    """Check whether a statement of a module says nothing of what it defines, see :func:`reached`."""
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
