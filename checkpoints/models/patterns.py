"""Which α a layer of an adapter has, where PEFT's ``alpha_pattern`` gives some layers one of their own.

Its keys are expressions. One that stands in a file is not searched with: it may never end. It is parsed, and followed
on all ways at once, so that it ends soon whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

#: before the names of all layers in PEFT's files, and in no key
_PREFIX = "base_model.model."
#: letters of a key, and repetitions within each other, at most: more are not followed
_LONGEST, _DEEPEST = 500, 2
_STARTS, _ENDS = ("AT_BEGINNING", "AT_BEGINNING_STRING"), ("AT_END", "AT_END_STRING")
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda sign: not sign.isdecimal(),
    "CATEGORY_WORD": lambda sign: sign.isalnum() or sign == "_",
    "CATEGORY_NOT_WORD": lambda sign: not (sign.isalnum() or sign == "_"),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda sign: not sign.isspace(),
}


class NotFollowedError(ValueError):
    """An expression that is none, or that has in it what is not followed: what looks ahead or back, flags."""


def alpha_of(name: str, settings: Mapping[str, Any]) -> Any:
    """Return the α of a layer: of the first key of ``alpha_pattern`` that its name has, else ``lora_alpha``; None where
    that is not known.

    >>> settings = {"lora_alpha": 8, "alpha_pattern": {"^model.layers.0.q": 16, r"layers\\.[12]\\.(q|k)": 32}}
    >>> [alpha_of(f"base_model.model.model.layers.{i}.q", settings) for i in range(4)]
    [16, 32, 32, 8]
    """
    pattern = settings.get("alpha_pattern")
    pattern = pattern if isinstance(pattern, Mapping) else {}
    try:
        own = first_key(pattern, name)
    except NotFollowedError:
        return None
    return settings.get("lora_alpha", settings.get("alpha")) if own is None else pattern[own]


def first_key(keys: Iterable[str], name: str) -> str | None:
    """Return the first of the keys that a layer has, as PEFT takes it: ``re.match(rf"(.*\\.)?({key})$", name)`` on its
    name in the base; None where it has none.

    Raises:
        NotFollowedError: a key that comes before is not followed.

    >>> first_key(["k_proj", "q_proj"], "base_model.model.layers.0.q_proj")
    'q_proj'
    """
    _, prefix, behind = name.partition(_PREFIX)
    inside = behind if prefix else name
    # what the key may begin at: the start, and behind each dot
    begins = {0, *(i + 1 for i, sign in enumerate(inside) if sign == ".")}
    for key in keys:
        ends = _follow(_parsed(key), inside, begins)
        if len(inside) in ends:
            return key
    return None


def unfollowed(settings: Mapping[str, Any]) -> str | None:
    """Return the first key of ``alpha_pattern`` that is not followed; None where all are."""
    keys: Iterable[str] = settings.get("alpha_pattern") or ()
    for key in keys:
        try:
            first_key([key], "layer")
        except NotFollowedError:
            return key
    return None


def _parsed(key: str) -> list[Any]:
    parser: Any = re._parser  # type: ignore[attr-defined]  # what re itself compiles from
    if len(key) > _LONGEST:
        raise NotFollowedError(key)
    try:
        parsed = parser.parse(key)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotFollowedError(key) from error
    if parsed.state.flags & ~re.UNICODE:
        raise NotFollowedError(key)
    _refuse_other(parsed, 0)
    return list(parsed)


def _refuse_other(parsed: Iterable[Any], depth: int) -> None:
    """Refuse what is not followed, wherever in an expression it is."""
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" if depth < _DEEPEST:
                _refuse_other(argument[2], depth + 1)
            case "SUBPATTERN" if not argument[1] and not argument[2]:  # flags
                _refuse_other(argument[-1], depth)
            case "BRANCH":
                for way in argument[1]:
                    _refuse_other(way, depth)
            case "AT" if str(argument) in (*_STARTS, *_ENDS):
                pass
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                pass
            case _:
                raise NotFollowedError


def _follow(parsed: Iterable[Any], text: str, begins: set[int]) -> set[int]:
    """Return where an expression may end in a text, that begins at any of some places."""
    at = begins
    for operation, argument in parsed:
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, body = argument
                at = _repeat(least, most, body, text, at)
            case "SUBPATTERN":
                at = _follow(argument[-1], text, at)
            case "BRANCH":
                at = set().union(*(_follow(way, text, at) for way in argument[1]))
            case "AT":
                at = at & {0 if str(argument) in _STARTS else len(text)}
            case _:
                at = {i + 1 for i in at if i < len(text) and _takes(operation, argument, text[i])}
    return at


def _repeat(least: Any, most: Any, body: Iterable[Any], text: str, begins: set[int]) -> set[int]:
    body, at = list(body), begins
    # from then on nothing new is there: each time goes on in the text, or stays where it may
    for _ in range(min(int(least), len(text) + 2)):
        at = _follow(body, text, at)
    found, new = set(at), at
    for _ in range(min(int(most) - int(least), len(text) + 2)):
        new = _follow(body, text, new) - found
        if not new:
            break
        found |= new
    return found


def _takes(operation: Any, argument: Any, sign: str) -> bool:
    """Check whether an operation takes a sign."""
    match str(operation):
        case "LITERAL":
            return bool(ord(sign) == argument)
        case "NOT_LITERAL":
            return bool(ord(sign) != argument)
        case "ANY":
            return sign != "\n"
        case "RANGE":
            return bool(argument[0] <= ord(sign) <= argument[1])
        case "CATEGORY":
            return _CATEGORIES[str(argument)](sign)
        case "IN":
            negated = str(argument[0][0]) == "NEGATE"
            return any(_takes(kind, what, sign) for kind, what in argument[negated:]) != negated
    raise AssertionError(operation)  # which are looked at before
