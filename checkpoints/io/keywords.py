"""Sentences for Python: flags of the command line in errors and warnings as the keywords of the function that was
called.

A sentence is written once, for the command line. On its way out of a public function, ``--draws none`` becomes
``draws='none'``, for the flags that are keywords of this function; others, and whole commands, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ...command_line import answering
from .errors import FedscopeError, translated

P = ParamSpec("P")
R = TypeVar("R")

#: words that stand behind a flag and are not its value: of those that go on about it, and of all others
_ABOUT = re.compile(
    "are|asks|chooses|compares|computes|counts|does|draws|from|gives?|goe?s?|has|have|in|is|keeps|leave|maps|means?|"
    "measures|names?|needs?|of|out|replaces|says|sets|takes|too|up|was|were|would"
)
_OTHERS = re.compile(
    "a|also|and|as|at|because|but|by|for|if|it|no|not|on|or|some|that|the|to|what|where|which|while|with"
)
_TOKEN = r"(?!--)[^\s;()`]*[^\s;:,.()`](?:\([^\s()]*\))?"
_NAME = "--[a-z][a-z0-9-]*"
_FLAG = re.compile(rf"--(?P<flag>[a-z][a-z0-9-]*)(?: (?P<value>{_TOKEN}))?")
#: flags side by side
_GROUP = re.compile(rf"{_NAME}(?: {_TOKEN})?(?: {_NAME}(?: {_TOKEN})?)*")
#: what sentences say of Python already
_SAID = re.compile(
    r"--(?:no-)?(?P<flag>[a-z][a-z0-9-]*)(?:, (?P<listed>[a-z_]+=[^\s,;()]*)| \((?P<said>[a-z_]+=[^\s,;()]*)\))"
)
_COMMAND = re.compile(r"fedscope [a-z]+[^;,(]*$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")

#: keywords that are flags without a value, whatever their default
_TRUTHS = frozenset({"accept_data", "standardise"})


class Called(str):
    """The keyword of a flag that has another name: of ``--out`` it may be ``path``."""

    __slots__ = ()


def speak_keywords(
    function: Callable[P, R], more: Collection[str] = (), called: Mapping[str, str] | None = None
) -> Callable[P, R]:
    """Return the function, whose errors and warnings name its keywords and not the command's flags.

    Args:
        more: keywords that its signature does not name.
        called: by flag the keyword, where it has another name.
    """
    known: dict[str, Any] = {}

    @wraps(function)
    def spoken(*args: P.args, **settings: P.kwargs) -> R:
        if answering.get():
            return function(*args, **settings)
        if not known:
            known.update({flag: Called(keyword) for flag, keyword in (called or {}).items()})
            known.update(_keywords_of(function, more))
        with speaking(known):
            return function(*args, **settings)

    return spoken


@contextmanager
def speaking(known: Mapping[str, Any]) -> Iterator[None]:
    """Translate the sentences of errors that leave, and of warnings.

    Args:
        known: keywords, with their defaults: one of True or False takes no value on the command line. Or flags, each
            with the keyword that it is :class:`Called`.
    """
    if answering.get():
        yield
        return
    token = translated.set(lambda text: with_keywords(text, known))
    try:
        yield
    except FedscopeError as error:
        error.args = tuple(with_keywords(part, known) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        translated.reset(token)


def with_keywords(text: str, known: Mapping[str, Any]) -> str:
    """Return a sentence with the flags that are keywords as such.

    >>> known = {"draws": "local:4", "data": None, "model": None, "rounds": None, "clients": False, "servers": ()}
    >>> with_keywords("it cannot be replayed; give --draws none, or --rounds 1,2", known)
    "it cannot be replayed; give draws='none', or rounds='1,2'"
    >>> with_keywords("give --data (and --model); --clients goes with --server fedadam, not --out x", known)
    "give data= (and model=); clients=True goes with servers='fedadam', not --out x"
    >>> with_keywords("train it: fedscope train --data digits; or --data NAME (data=NAME)", known)
    'train it: fedscope train --data digits; or data=NAME (data=NAME)'
    >>> with_keywords("if you know it, give --code server=fedx:FedX", {"code": None})
    "if you know it, give code={'server': 'fedx:FedX'}"
    """

    def of_group(group: re.Match[str]) -> str:
        if _COMMAND.search(text[: group.start()]):
            return group[0]
        flags = list(_FLAG.finditer(group[0]))
        names = {keyword[0] for one in flags if (keyword := _keyword(one["flag"], known))}
        if not all(_keyword(one["flag"], known) for one in flags):
            return group[0]
        if len(flags) > len(names) == 1 and all(one["value"] for one in flags):  # one flag, given several times
            return f"{names.pop()}=[{', '.join(_written(one['value']) for one in flags)}]"
        return _FLAG.sub(of_flag, group[0])

    def of_flag(found: re.Match[str]) -> str:
        name, given = _keyword(found["flag"], known) or ("", None)
        value = found["value"]
        behind = "" if value is None else f" {value}"
        if isinstance(given, bool):
            return f"{name}={given}{behind}"
        if value is not None and _ABOUT.fullmatch(value):
            return f"{name}{behind}"
        if value is None or _OTHERS.fullmatch(value):
            return f"{name}={behind}"
        kind, equals, own = value.partition("=")
        if name == "code" and equals:  # several, by kind
            return f"{name}={{{kind!r}: {own!r}}}"
        return f"{name}={_written(value)}"

    def once(said: re.Match[str]) -> str:
        keyword, own = _keyword(said["flag"], known), said["listed"] or said["said"]
        return own if keyword and own.startswith(f"{keyword[0]}=") else said[0]

    return _GROUP.sub(of_group, _SAID.sub(once, text))


def _keyword(flag: str, known: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the keyword of a flag, and the value that a flag without one sets; None where there is no keyword."""
    name = flag.replace("-", "_")
    for one in (name, f"{name}s", f"{name}_"):
        if isinstance(given := known.get(one), Called):
            return str(given), None
        if one in known:
            return one, True if isinstance(known[one], bool) or one in _TRUTHS else None
    positive = name.removeprefix("no_")
    return (positive, False) if positive != name and positive in known else None


def _written(value: str) -> str:
    """Return a value as Python has it: numbers, and words in capitals, which stand for a value, without quotes."""
    return value if _NUMBER.fullmatch(value) or value.isupper() or value[:1] in "{['\"" else repr(value)


def _keywords_of(function: Callable[..., Any], more: Collection[str]) -> dict[str, Any]:
    import inspect

    parameters = inspect.signature(function).parameters.values()
    own = {one.name: one.default for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    return {**dict.fromkeys(more), **own}
