"""Methods and models that a run names and nobody has given: their settings can be read, and nothing of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any, NoReturn

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted

#: what a placeholder refuses to do, of every kind
_WORK = (
    *("train", "begin", "survey", "share", "personalise", "init", "step", "look_ahead", "average", "recover"),
    "build",
)


def ungiven(base: type[Any], name: str, table: Mapping[str, Any]) -> type[Any]:
    """Make a class that stands for code which is not here: with the settings that a run has, and a name.

    Whatever would run the code is a :class:`FedscopeError` that says how to give it.

    Args:
        base: ``ClientMethod``, ``ServerMethod``, ``AverageMethod`` or ``Architecture``; name: as the run has it.
        table: the run's settings; those that the base does not have become fields of any type.
    """
    known = {key.name for key in fields(base)}
    others = sorted(key for key in table if key not in known and key.isidentifier())
    any_: Any = base
    made: type[Any] = _placeholder(any_, str(name), tuple(others))
    return made


@cache
def _placeholder(base: Any, name: str, others: tuple[str, ...]) -> type[Any]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise FedscopeError(needs_code(base.section, name))

    body = {work: refuse for work in _WORK if hasattr(base, work)}
    made = make_dataclass(
        "Ungiven",
        [(key, Any, field(default=None, metadata={"doc": "of code that is not here"})) for key in others],
        bases=(base,),
        frozen=True,
        namespace={**body, "called": name, "is_given": False, "__module__": __name__},
    )
    return made


def needs_code(section: str, name: str, kind: str = "") -> str:
    """Say how code is given that a run or a file names.

    Args:
        kind: of code; that of the section by default.
    """
    key = kind or ("name" if section == "model" else "method")
    if ":" in name:
        given = f"{kind or section}={name.partition('(')[0]}" if kind else f"{section}={name}"
        return (
            f"{section}.{key} = {name!r} is code of your own, which is never loaded from a file; if you know it, give "
            f"--code {quoted(given)}"
        )
    return (
        f"{section}.{key} = {name!r} is neither fedscope's nor of an installed package; install the package that it "
        f"came with, or give --code {quoted(f'{section}=module:Name')}"
    )


def is_given(thing: Any) -> bool:
    """Check whether a method or a model is there, and no placeholder."""
    return bool(getattr(type(thing), "is_given", True))
