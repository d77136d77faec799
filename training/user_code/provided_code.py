"""Code that somebody gives for what a file names: ``--code server=mypkg.fedx:FedX``, or ``code={"server": FedX}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..import_string import is_call, names_a_file
from ..settings.code_kinds import KINDS, Kind, kind_named, named_in
from ..settings.entry_points import installed
from ..settings.own_code import OwnCode, called_as
from .resolve import handed_code, typed_code, with_arguments

#: code by the kind that it is given for, and by kind and name: ``server=mypkg.fedx:FedX``
Given = Mapping[str, OwnCode]
#: before code: what a file calls it
_CALLED = re.compile(r"([^\W\d][\w.]*:[^\W\d]\w*)=")
#: what lies on which shelf of the registry
SHELVES = {
    "client": "clients",
    "server": "servers",
    "average": "averages",
    "model": "models",
    "data": "data",
    "partition": "partitions",
}


def code_of_options(texts: Iterable[str]) -> dict[str, OwnCode]:
    """Import what ``--code KIND=module:Name`` names, by kind; of ``KIND=NAME=module:Name`` it is called NAME, as a file
    has it, that was written where two files of one name gave code.

    Raises:
        FedscopeError: a text of another form, code that is given twice, a kind that there is not, and what
            :func:`~fedscope.training.user_code.resolve.typed_code` refuses.
    """
    from ..import_string import CodeFile

    given: dict[str, OwnCode] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals or not where:
            raise FedscopeError(f"--code {text} is not understood; write it as server=mypkg.fedx:FedX")
        kind = kind_named(name.strip(), f"--code {text}")
        called = _CALLED.match(where := where.strip())
        option = f"--code {name}={called[0] if called else ''}"
        code, settings = typed_code(kind, CodeFile.typed(option, where[called.end() if called else 0 :]), option)
        _refuse_settings(kind, settings, f"--code {text}")
        code = called_as(code, called[1]) if called else code
        _add(given, kind, code, f"--code {text}")
    return given


def _add(given: dict[str, OwnCode], kind: Kind, code: OwnCode, place: str) -> None:
    """Add code under its kind and name; the only one of its kind also stands for whatever a file calls it."""
    own = f"{kind.name}={code}"
    if own in given:
        raise FedscopeError(f"{place} is given twice; leave one out")
    others = [key for key in given if key.startswith(f"{kind.name}=")]
    given[own] = code
    given.pop(kind.name, None)
    if not others:
        given[kind.name] = code


def code_of_objects(objects: Mapping[str, Any] | None) -> dict[str, OwnCode]:
    """Take code that Python was given, by kind: names of importable code, classes, functions, data.

    Raises:
        FedscopeError: no mapping; a kind that there is not; what
            :func:`~fedscope.training.user_code.resolve.handed_code` refuses.
    """
    if objects is None:
        return {}
    if not isinstance(objects, Mapping):
        raise FedscopeError(
            f'code is {type(objects).__name__}; give a dictionary by kind, as in {{"server": FedX}}; kinds are '
            + ", ".join(KINDS)
        )
    given: dict[str, OwnCode] = {}
    for name, things in objects.items():
        if isinstance(things, OwnCode):  # of options, or from here
            given[str(name)] = things
            continue
        kind, place = kind_named(str(name), "code="), f"code={{{name!r}: ...}}"
        several = isinstance(things, list) and kind.name in ("client", "server", "average")
        for thing in things if several else [things]:
            _add(given, kind, _object(kind, thing, place), place)
    return given


def _object(kind: Kind, thing: Any, place: str) -> OwnCode:
    if isinstance(thing, str):
        code, settings = typed_code(kind, thing, f"code {kind.name}=")
        _refuse_settings(kind, settings, place)
        return code
    return handed_code(kind, thing, place)[0]  # an object stands for its class: the run has its own settings


def _refuse_settings(kind: Kind, settings: Mapping[str, Any], place: str) -> None:
    if settings:
        raise FedscopeError(
            f"{place} gives settings ({', '.join(settings)}), and those of a file count; give the code alone, and "
            f"--set {kind.section}.{next(iter(settings))}=VALUE"
        )


def with_code(tables: Mapping[str, Any], given: Given) -> dict[str, Any]:
    """Return a configuration's tables, in which names of code of one's own come with the code that was given for them.

    Names that nobody gave code for stay plain texts, of which nothing is imported. An optimiser's arguments are the
    file's.

    Raises:
        FedscopeError: other arguments of an optimiser than the file's.
    """
    made = dict(tables)
    for kind, value in named_in(tables):
        named = with_given(given, kind.name, value)
        if named is not value and kind.name == "optimiser":
            named = with_arguments(named, value)
            named = OwnCode.of(str(value), named.thing, named.source)  # by which clients keep its state
        if named is not value:
            made[kind.section] = {**made[kind.section], kind.key: named}
    return made


def with_given(given: Given, kind: str, value: Any) -> Any:
    """Return a name with the code that was given for its kind; as it is where it is no code of one's own, or none was
    given."""
    if not given or not names_code(KINDS[kind], value):
        return value
    return given.get(f"{kind}={value}", given.get(kind, value))


def names_code(kind: Kind, value: Any) -> bool:
    """Check whether a setting names code of one's own, by its form alone: ``module:Name`` of no data set, partition or
    file of fedscope's or of a package; or a name that is neither's.

    >>> names_code(KINDS["server"], "mine:FedX"), names_code(KINDS["data"], "npz:mine")
    (True, False)
    """
    if isinstance(value, OwnCode):
        return True
    if not isinstance(value, str):
        return False
    if names_a_file(value):
        return True
    if kind.name == "optimiser":
        return is_call(value)
    from ..settings.registry import is_known, names

    shelf: Any = SHELVES[kind.name]
    if kind.name in ("data", "partition"):
        first = value.partition(":")[0]
        return value.startswith("python:") or (
            is_call(value) and first not in names(shelf) and first not in installed(shelf)
        )
    return not is_known(shelf, value)


def refuse_unneeded(given: Given, tables: Mapping[str, Any], place: str) -> None:
    """Refuse code that nothing asks for: a slip, or another run than was meant.

    Args:
        place: whose tables they are.

    Raises:
        FedscopeError: names the kind, and what is there.
    """
    named = {kind.name: value for kind, value in named_in(tables)}
    there = [name for name, value in named.items() if names_code(KINDS[name], value)]
    for key, code in given.items():
        name = key.partition("=")[0]
        if name not in there:
            what = f"its {KINDS[name].place} is {named[name]}" if name in named else f"it names no {name}"
            raise FedscopeError(
                f"--code {name}={code}: {place} needs no code for it, {what}{nearest(name, there)}; leave it out"
            )
