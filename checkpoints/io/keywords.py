"""Sentences for Python: flags of the command line in errors and warnings as the keywords of the function that was
called.

A sentence is written once, for the command line. On its way out of a public function, ``--draws none`` becomes
``draws='none'``, for the flags that are keywords of this function; others, and whole commands, stay as they are.
"""

from __future__ import annotations

import errno
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from itertools import zip_longest
from typing import Any, ParamSpec, TypeVar

from ...command_line import answering
from .errors import FedscopeError, translated
from .given_values import taken
from .torch_state import ordinary_tensors

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
#: a word as :func:`~.shell_words.quoted` writes one that a shell would take apart
_QUOTED = r"(?<= )'[^']*'(?:\"'\"'[^']*')*"
_TOKEN = rf"(?:{_QUOTED}|(?!--)[^\s;()`]*[^\s;:,.?()`](?:\([^\s()]*\))?)"
_NAME = "--[a-z][a-z0-9-]*"
_FLAG = re.compile(rf"--(?P<flag>[a-z][a-z0-9-]*)(?: (?P<value>{_TOKEN}))?")
#: flags side by side
_GROUP = re.compile(rf"{_NAME}(?: {_TOKEN})?(?: {_NAME}(?: {_TOKEN})?)*")
#: what sentences say of Python already
_SAID = re.compile(
    r"--(?:no-)?(?P<flag>[a-z][a-z0-9-]*)(?:, (?P<listed>[a-z_]+=[^\s,;()]*)| \((?P<said>[a-z_]+=[^\s,;()]*)\))"
)
_COMMAND = re.compile(rf"fedscope [a-z]+(?:{_QUOTED}|[^;,(])*+$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")

#: of a path that is too long its first characters are shown
_SHOWN = 60
#: keywords that are flags without a value, whatever their default
_TRUTHS = frozenset({"accept_data", "standardise"})


#: flags of KEY=VALUE that are dictionaries in Python, and what begins a value of theirs that is one of Python's
_NESTED, _TOLD = frozenset({"code", "set"}), {"true": "True", "false": "False"}


class Called(str):
    """The keyword of a flag that has another name: of ``--out`` it may be ``path``."""

    __slots__ = ()


def speak_keywords(
    function: Callable[P, R],
    more: Mapping[str, Any] | None = None,
    called: Mapping[str, str] | None = None,
    *,
    typed: bool = True,
) -> Callable[P, R]:
    """Return the function, whose errors and warnings name its keywords and not the command's flags, and whose values
    are taken as :func:`~.given_values.taken` says. Within ``torch.inference_mode()`` it works as outside of it.

    Args:
        more: keywords that its signature does not name, with their annotations.
        called: by flag the keyword, where it has another name.
        typed: whether values of another kind than their annotation are refused; False of what says so itself.
    """
    known: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}

    @wraps(function)
    def spoken(*args: P.args, **settings: P.kwargs) -> R:
        if answering.get():
            return function(*args, **settings)
        if not known:
            known.update({flag: Called(keyword) for flag, keyword in (called or {}).items()})
            parameters.update(_parameters_of(function, more or {}))
            known.update({name: one.default for name, one in parameters.items()})
            if "settings" in parameters:
                known.setdefault("set", Called("settings"))
        with ordinary_tensors(), speaking(known):
            _refuse_unnamed(function, parameters, args)
            take = partial(_take, typed=typed)
            given = [take(one, value) for one, value in zip_longest([*parameters.values()][: len(args)], args)]
            return function(*given, **{name: take(parameters.get(name), value) for name, value in settings.items()})

    return spoken


@contextmanager
def speaking(known: Mapping[str, Any]) -> Iterator[None]:
    """Translate the sentences of errors that leave, and of warnings. A path that is too long is said in one as well.

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
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG or error.filename is None:
            raise
        text = str(error.filename)
        raise FedscopeError(
            f"{text[:_SHOWN]}... has {len(text)} characters, which is longer than a path or a name in it may be; give "
            "a shorter one"
        ) from error
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
    >>> with_keywords("it is no server; did you mean --client fedprox?; there are fma, fedadam", known | {"client": ""})
    "it is no server; did you mean client='fedprox'?; there are fma, fedadam"
    >>> with_keywords("if you know it, give --code server=fedx:FedX", {"code": None})
    "if you know it, give code={'server': 'fedx:FedX'}"
    >>> with_keywords("give --set client.mu=0 --set server.name=sgd", {"set": Called("config")})
    "give config={'client': {'mu': 0}, 'server': {'name': 'sgd'}}"
    >>> print(with_keywords("give --model 'my nets.py:Net(3)', as in: fedscope cka 'a, b' --model NAME", known))
    give model='my nets.py:Net(3)', as in: fedscope cka 'a, b' --model NAME
    """

    def of_group(group: re.Match[str]) -> str:
        if _COMMAND.search(text[: group.start()]):
            return group[0]
        flags = list(_FLAG.finditer(group[0]))
        names = {keyword[0] for one in flags if (keyword := _keyword(one["flag"], known))}
        if not all(_keyword(one["flag"], known) for one in flags):
            return group[0]
        if len(flags) > len(names) == 1 and all(one["value"] for one in flags):  # one flag, given several times
            if flags[0]["flag"] in _NESTED:
                return f"{names.pop()}={_nested([one['value'] for one in flags])}"
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
        if found["flag"] == "set" and "=" not in value:  # the setting's name alone
            return value
        if found["flag"] in _NESTED and "=" in value:
            return f"{name}={_nested([value])}"
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


def _nested(given: Sequence[str]) -> str:
    """``client.mu=0`` as ``{'client': {'mu': 0}}``, and ``server=fedx:FedX`` as ``{'server': 'fedx:FedX'}``; several in
    one."""
    items, tables = list[str](), dict[str, list[str]]()
    for one in given:
        place, _, value = _unquoted(one).partition("=")
        section, dot, key = place.partition(".")
        if dot:
            tables.setdefault(section, []).append(f"{key!r}: {_TOLD.get(value) or _written(value)}")
        else:
            items.append(f"{section!r}: {value!r}")
    items += [f"{section!r}: {{{', '.join(own)}}}" for section, own in tables.items()]
    return f"{{{', '.join(items)}}}"


def _unquoted(value: str) -> str:
    return "".join(shlex.split(value)) if re.fullmatch(rf" {_QUOTED}", f" {value}") else value


def _written(value: str) -> str:
    """Return a value as Python has it: numbers, and words in capitals, which stand for a value, without quotes."""
    if (word := _unquoted(value)) != value:
        return repr(word)
    return value if _NUMBER.fullmatch(value) or value.isupper() or value[:1] in "{['\"" else repr(value)


def _parameters_of(function: Callable[..., Any], more: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """Return a function's parameters by name, those that take values by position first."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = [one for one in inspect.signature(function).parameters.values() if one.kind in named]
    further = [inspect.Parameter(name, named[1], default=None, annotation=kind) for name, kind in more.items()]
    return {one.name: one for one in [*own, *(one for one in further if one.name not in {a.name for a in own})]}


def _refuse_unnamed(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], given: Sequence[Any]
) -> None:
    """Refuse more arguments without a name than there are, as who types what the command line takes gives them.

    Raises:
        TypeError: says how several runs or models are given.
    """
    unnamed = [name for name, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(given) <= len(unnamed) or _takes_any_number(function):
        return
    own = unnamed[:1] == ["self"]
    called, count, found = function.__name__, len(unnamed) - own, len(given) - own
    if own:
        called = function.__qualname__.partition(".")[0]
    several = unnamed[0] if unnamed and unnamed[0] in ("models", "runs") else ""
    remedy = f"give several {several} as a list, {called}([A, B])" if several else "give the others by name"
    s = "" if count == 1 else "s"
    raise TypeError(f"{called}() takes {count} argument{s} without a name, but {found} were given; {remedy}")


def _takes_any_number(function: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(function).parameters.values())


def _take(parameter: inspect.Parameter | None, value: Any, *, typed: bool) -> Any:
    if parameter is None:  # which the function refuses
        return value
    return taken(parameter.name, value, parameter.annotation, parameter.default, typed=typed)
