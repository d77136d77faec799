"""Settings that somebody typed, or gave in Python, with the code of one's own that they name."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..import_string import CodeFile, ImportString, is_call, is_there
from ..settings.code_kinds import KINDS, Kind, named_in
from ..settings.own_classes import kind_of
from ..settings.own_code import OwnCode
from .provided_code import SHELVES, Given, names_code
from .resolve import Resolved, handed_code, typed_code

#: of a command that takes no ``--code``
NONE: Given = MappingProxyType({})


def typed_tables(tables: Mapping[str, Mapping[str, Any]], given: Given = NONE) -> dict[str, dict[str, Any]]:
    """Return settings that stood on a command line, with the code that they name, which is imported.

    Never of a file's settings: whoever wrote the file would say what is run.

    Args:
        given: with ``--code`` beside them; what it has for a name is not looked for.

    Raises:
        FedscopeError: what :func:`~fedscope.training.user_code.resolve.typed_code` refuses.
    """
    made = {section: dict(table) for section, table in tables.items()}
    for kind, value in named_in(tables):
        if not isinstance(value, str) or isinstance(value, OwnCode):
            continue
        if (named := given.get(f"{kind.name}={value}")) is not None:
            made[kind.section][kind.key] = named
        elif (text := _own(kind, value)) is not None:
            _put(made, kind, typed_code(kind, text, kind.flag))
    return made


def _own(kind: Kind, value: str) -> str | None:
    """Return a text that names code of one's own, or a file with some; None of a name with a slip, and of all else."""
    text = CodeFile.typed(kind.flag, value)
    if isinstance(text, CodeFile):
        return text
    if ":" not in text or not names_code(kind, text):
        return None
    if kind.name in ("data", "partition"):
        from ..settings.registry import names

        shelf: Any = SHELVES[kind.name]
        first = text.partition(":")[0]
        if nearest(first, names(shelf)) and not is_there(first):
            return None
    return text


def typed_method(text: str, option: str = "--method", given: Given = NONE) -> str:
    """Return what ``--method`` names: ``mypkg.fedx:FedX`` with the class, which says what kind of method it is; any
    other name as it is.

    Args:
        given: as for :func:`typed_tables`.

    Raises:
        FedscopeError: what :func:`~fedscope.training.user_code.resolve.typed_code` refuses; settings.
    """
    if isinstance(text, OwnCode):
        return text
    for kind_name in ("client", "server", "average"):
        if (named := given.get(f"{kind_name}={text}")) is not None:
            return named
    typed = CodeFile.typed(option, text)
    if not isinstance(typed, CodeFile) and not is_call(typed):
        return text
    found = ImportString.parse(option, typed).found()
    kind = kind_of(found)
    if kind is None or kind.name not in ("client", "server", "average"):
        raise FedscopeError(f"{option} {text} is no method; derive it from a class of fedscope.methods")
    code, settings = typed_code(kind, typed, option)
    if settings:
        raise FedscopeError(f"{option} {text} gives settings; give them with --set {kind.section}.KEY=VALUE")
    return code


def handed_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that Python was given, in which objects stand for names: classes, methods, functions, data.

    A section may be the object itself: ``{"server": FedX(beta=0.9)}`` is ``{"server": {"method": FedX(beta=0.9)}}``.
    Plain texts stay what they are: a table may have come from a file.

    Raises:
        FedscopeError: what :func:`~fedscope.training.user_code.resolve.handed_code` refuses.
    """
    made: dict[str, Any] = {}
    for section, table in tables.items():
        kind = KINDS.get(section)
        as_object = kind is not None and not isinstance(table, Mapping | str)
        made[section] = {kind.key: table} if kind is not None and as_object else table
    for kind, value in named_in(made):
        if kind.name == "data" and isinstance(value, PathLike):  # a file's name, as its text is
            made[kind.section] = {**made[kind.section], kind.key: fspath(value)}
        elif not isinstance(value, str):
            made[kind.section] = dict(made[kind.section])
            _put(made, kind, handed_code(kind, value, f"{kind.name}="))
    return made


def given_keywords(keywords: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of keywords by kind: names of fedscope's, texts of one's own code, and objects.

    Raises:
        FedscopeError: what both others refuse.
    """
    keywords = {
        name: fspath(value) if name == "data" and isinstance(value, PathLike) else value
        for name, value in keywords.items()
    }
    texts = {name: value for name, value in keywords.items() if isinstance(value, str)}
    tables: dict[str, dict[str, Any]] = {}
    for name, value in texts.items():
        kind = KINDS[name]
        tables.setdefault(kind.section, {})[kind.key] = value
    tables = typed_tables(tables)
    for name, value in keywords.items():
        if name not in texts:
            kind = KINDS[name]
            tables.setdefault(kind.section, {})
            _put(tables, kind, _object(kind, value))
    return tables


def _object(kind: Kind, value: Any) -> Resolved:
    if value is None:
        raise FedscopeError(f"{kind.name}= is None; leave it out, or give {kind.called}")
    return handed_code(kind, value, f"{kind.name}=")


def _put(tables: dict[str, Any], kind: Kind, resolved: Resolved) -> None:
    """Put code and its settings into tables; settings that stand there count more."""
    code, settings = resolved
    table = dict(tables[kind.section])
    tables[kind.section] = {**settings, **table, kind.key: code}
