"""Settings as frozen dataclasses that check themselves: the type and range of every key stand where it is declared."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.given_values import plain_number
from ...checkpoints.io.shell_words import quoted
from ...command_line import answering
from .values import format_value


def setting(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    off: str | None = None,
    before: Any = MISSING,
    only_with: tuple[str, ...] = (),
) -> Any:
    """Declare one key: its default, one line of documentation and its range (``least`` <= x, ``above`` < x, ...).

    Args:
        off: with ``above=0``, where 0 would switch the method off: what to choose instead, as in ``--client sgd``.
        before: what a configuration means that was recorded before the key existed, see :func:`Settings.recorded`.
        only_with: another key and its values with which this one has an effect; () of one that always has.
    """
    limits = {"least": least, "above": above, "most": most, "below": below}
    return field(default=default, metadata={"doc": doc, "off": off, "before": before, "only_with": only_with, **limits})


@dataclass(frozen=True)
class Settings:
    """Base of every section of a configuration: checked when constructed, from Python and from TOML alike."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        hints = types_of(kind)
        for key in fields(self):
            place = f"{self.section}.{key.name}"
            value = _of_type(getattr(self, key.name), hints[key.name], place)
            if value is None and _is_written(key) and _match_any(NONE, hints[key.name]):
                raise FedscopeError(
                    f"{place} = None cannot be told from its default {key.default!r} in a file, where {NONE!r} is a "
                    "word that it takes; leave it out, or give another value"
                )
            _in_range(value, key.metadata, place)
            object.__setattr__(self, key.name, value)

    @classmethod
    def read(cls, raw: Mapping[str, Any], elsewhere: Callable[[str, str], str] | None = None) -> Self:
        """Build from a TOML table; unknown keys are refused with the nearest known one.

        Args:
            elsewhere: says of a section and a key where else there is such a key, in a clause, or nothing.
        """
        known = [key.name for key in fields(cls)]
        for name in raw:
            if name not in known:
                owner = f" of {cls.__name__}" if cls.section in ("client", "server", "average", "model") else ""
                offer = nearest(name, known) or (elsewhere(cls.section, name) if elsewhere else "")
                raise FedscopeError(
                    f"{cls.section}.{name} is not a setting{owner}{offer}; "
                    f"[{cls.section}] has {', '.join(known) or 'none'}"
                )
        return cls(**raw)

    @classmethod
    def recorded(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """A resolved table as a run keeps it, with the keys that came later set to what it meant without them."""
        known = {key.name: key.metadata.get("before", MISSING) for key in fields(cls)}
        later = {name: value for name, value in known.items() if value is not MISSING and name not in table}
        return {**table, **later}

    def table(self) -> dict[str, Any]:
        """Return the settings as a TOML table, which reads back as equal ones.

        Keys without a value (``None``) are left out where that is their default, and are the word ``none`` otherwise.
        """
        table: dict[str, Any] = {}
        for key in fields(self):
            value = getattr(self, key.name)
            if value is not None:
                table[key.name] = list(value) if isinstance(value, tuple) else value
            elif _is_written(key):
                table[key.name] = NONE
        return table


def _is_written(key: Field[Any]) -> bool:
    """Check whether a key that has no value (``None``) would be read as another one where it is left out."""
    return key.default is not None or key.metadata.get("before", MISSING) not in (MISSING, None)


def without_effect(chosen: Settings) -> Iterator[str]:
    """Find the settings that are not their defaults and have no effect beside the others, a sentence each."""
    for key in fields(chosen):
        other, *values = key.metadata.get("only_with") or ("",)
        value, beside = getattr(chosen, key.name), getattr(chosen, other, None)
        if other and beside not in values and value not in (None, key.default):
            yield (
                f"{chosen.section}.{key.name} = {value!r} has no effect with {chosen.section}.{other} = {beside!r}; "
                f"leave it out, or give --set {chosen.section}.{other}={values[0]}"
                + (f" (it counts with {', '.join(values)})" if len(values) > 1 else "")
            )


@cache  # half of what it takes to read a configuration, and the same for every one of a class
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's settings, by name."""
    return get_type_hints(kind)


#: what a file has for no value, as TOML has no word for it
NONE = "none"
#: more than any setting is, and less than int64 holds
LARGEST = 10**18


def _of_type(value: Any, hint: Any, place: str) -> Any:
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, int) and not -LARGEST <= part <= LARGEST:
            raise FedscopeError(f"{place} is a number of more than 18 digits; no setting takes one")
    options = _options(hint)
    if found := _match_any(value, hint):
        return found[0]
    if isinstance(value, str) and value == NONE and type(None) in options:
        return None
    # a word where one of several words is asked for
    choice = isinstance(value, str) and any(get_origin(option) is Literal for option in options)
    wrong = "is not a choice" if choice else "has the wrong type"
    listed = isinstance(value, str) and any(get_origin(option) is tuple for option in options)
    shown = f", written [{value.strip('()')}]" if listed and "," in value else ""
    if not shown and _match_any([value], hint):  # one of a list
        shown = f"; give --set {quoted(f'{place}={format_value([value])}')}"
        shown = shown if answering.get() else f", written {format_value([value])}"
    raise FedscopeError(f"{place} = {value!r} {wrong}: it takes {' or '.join(map(_describe_hint, options))}{shown}")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _match_any(value: Any, hint: Any) -> tuple[Any] | None:
    """Return the value as the first of the types has it that takes it; None where none does."""
    matches = (_match(value, option) for option in _options(hint))
    return next(((converted,) for matched, converted in matches if matched), None)


def _match(value: Any, hint: Any) -> tuple[bool, Any]:
    if hint is Any:  # of code that is not here
        return True, value
    value = plain_number(value)
    if hint is type(None):
        return value is None, value
    if get_origin(hint) is Literal:
        return value in get_args(hint), value
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        if isinstance(value, Sequence) and not isinstance(value, str):
            matches = [_match(part, item) for part in value]
            return all(ok for ok, _ in matches), tuple(part for _, part in matches)
        return False, value
    if hint is float:  # TOML writes 1 where 1.0 is meant; a boolean is an int to Python but never a rate
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        return ok, float(value) if ok else value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, hint), value


def _describe_hint(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list, each {_describe_hint(get_args(hint)[0])}"
    return {int: "a whole number", float: "a number", str: "a string", bool: "true or false", type(None): "nothing"}[
        hint
    ]


def _in_range(value: Any, limits: Mapping[str, Any], place: str) -> None:
    for part in value if isinstance(value, tuple) else (value,):
        if not isinstance(part, int | float) or isinstance(part, bool):
            continue
        if not math.isfinite(part):
            raise FedscopeError(f"{place} = {part} is not a finite number")
        if part == 0 and limits.get("off"):
            raise FedscopeError(
                f"{place} = 0 would switch the method off; give a number greater than 0, or {limits['off']}"
            )
        for name, words, holds in (
            ("least", "at least", operator.ge),
            ("above", "greater than", operator.gt),
            ("most", "at most", operator.le),
            ("below", "less than", operator.lt),
        ):
            limit = limits.get(name)
            if limit is not None and not holds(part, limit):
                raise FedscopeError(f"{place} = {part:g} is out of range: it must be {words} {limit:g}")
