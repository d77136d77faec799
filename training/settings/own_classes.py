"""What a class of one's own must be to be a method, a model or a partition: its base, and settings with types."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import command_line
from .code_kinds import KINDS, Kind
from .settings import Settings

_ROOT = __name__.partition(".")[0] + "."
#: types that a configuration's file can hold
_PLAIN = (int, float, str, bool, type(None))


#: of each kind that is a class the section that its base names, and the base in fedscope.methods
_BASES: Mapping[str, tuple[str, str]] = {
    "client": ("client", "ClientMethod"),
    "server": ("server", "ServerMethod"),
    "average": ("average", "AverageMethod"),
    "model": ("model", "Architecture"),
    "partition": ("data.partition", "Partitioner"),
}


def is_of(kind: Kind, found: Any) -> bool:
    """Check whether a thing is a class of a kind."""
    return kind.name in _BASES and kind_of(found) is kind


def kind_of(found: Any) -> Kind | None:
    """Return the kind of method, model or partition that a class is; None of anything else.

    >>> from fedscope.training.methods.servers.fma import FMA
    >>> kind_of(FMA).name, kind_of(FMA()), kind_of(int)
    ('server', None, None)
    """
    if not (isinstance(found, type) and issubclass(found, Settings)):
        return None
    return next((KINDS[name] for name, (section, _) in _BASES.items() if found.section == section), None)


def base_name(kind: Kind) -> str:
    """Return the base of a kind's classes, as ``fedscope.methods`` has it."""
    return _BASES[kind.name][1]


def refuse_other_class(kind: Kind, found: type[Any], place: str) -> None:
    """Refuse a class that is not of a kind, or whose settings cannot be written into a configuration.

    Args:
        place: what named it, for sentences: ``--server mypkg.fedx:FedX``.

    Raises:
        FedscopeError: names what the class lacks.
    """
    other = kind_of(found)
    if other is not kind:
        remedy = (
            f"it is {other.called}: give it as {other.flag}"
            if other
            else f"derive it from fedscope.methods.{base_name(kind)}, as {command_line('new', kind.name)} shows"
        )
        raise FedscopeError(f"{place}: {found.__name__} is not {kind.called}; {remedy}")
    if inspect.isabstract(found) or (found.__name__ == base_name(kind) and found.__module__.startswith(_ROOT)):
        raise FedscopeError(f"{place}: {found.__name__} is only the base of {kind.called}; name your own class")
    _refuse_untyped(found, place)
    _refuse_strange_types(found, place)


def _refuse_untyped(found: type[Any], place: str) -> None:
    """Refuse settings that are none to a dataclass."""
    for owner in found.__mro__:
        own = {name: value for name, value in vars(owner).items() if isinstance(value, Field)}
        for name in own:
            if name in inspect.get_annotations(owner):
                raise FedscopeError(
                    f"{place}: {owner.__name__} has the setting {name}, but is no dataclass of its own; write "
                    "@dataclass(frozen=True) above the class"
                )
            raise FedscopeError(
                f"{place}: the setting {name} of {owner.__name__} has no type; write its type, as in "
                f'{name}: float = setting(0.9, "...")'
            )


def _refuse_strange_types(found: type[Any], place: str) -> None:
    try:
        hints = get_type_hints(found)
    except Exception as error:
        raise FedscopeError(
            f"{place}: the types of {found.__name__}'s settings cannot be read ({error}); import their names at "
            "the top of the module"
        ) from None
    for key in fields(found):
        if not _is_plain(hints[key.name]):
            raise FedscopeError(
                f"{place}: the setting {key.name} of {found.__name__} has the type {_shown(hints[key.name])}, which no "
                "configuration holds; use int, float, str, bool, Literal[...], tuple[float, ...], or one of them | None"
            )
        if "doc" not in key.metadata:
            raise FedscopeError(
                f"{place}: the field {key.name} of {found.__name__} does not say what it is; write {key.name}: "
                f'{_shown(hints[key.name])} = setting(DEFAULT, "what it is")'
            )


def _is_plain(hint: Any) -> bool:
    if hint in _PLAIN:
        return True
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return True
    if origin is tuple:
        return len(args) == 2 and args[1] is Ellipsis and _is_plain(args[0])
    return bool(args) and origin is not None and _is_union(hint) and all(map(_is_plain, args))


def _is_union(hint: Any) -> bool:
    from types import UnionType
    from typing import Union

    return get_origin(hint) in (UnionType, Union)


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
