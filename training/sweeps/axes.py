"""What a sweep varies, as it is written: ``run.participation=0.1,0.2``, in Hydra's way, and ``--seeds 0..4``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..recipe_files import Cell
from ..words import value_of

_SECTIONS = ("data", "model", "client", "server", "average", "run", "record")
#: a value in quotes or brackets may hold commas
_VALUES = re.compile(r"""(?:"[^"]*"|'[^']*'|\[[^\]]*\]|[^,"'\[])+""")


def read_axes(texts: Iterable[str]) -> tuple[tuple[Cell, ...], ...]:
    """An axis for every ``key=value,value,...``; keys are ``section.key`` of a configuration, and ``method``.

    Raises:
        FedscopeError: a text of another form, a key that is given twice, no value or the same one twice.

    >>> read_axes(["method=fma,ima", "data.partition='shards:2,250',iid"])[1]
    ({'data.partition': 'shards:2,250'}, {'data.partition': 'iid'})
    """
    axes: dict[str, tuple[Cell, ...]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        section, dot, _ = key.partition(".")
        if not equals or not (key == "method" or (dot and section in _SECTIONS)):
            known = ("method", *(f"{section}." for section in _SECTIONS))
            raise FedscopeError(
                f"{text!r} is not something to vary{nearest(key, known)}; write section.key=value,value as in "
                "run.participation=0.1,0.2, or method=fma,ima"
            )
        if key in axes:
            raise FedscopeError(f"{key} is given twice; give all of its values in one: {key}=A,B,C")
        values = [_value(word) for word in _VALUES.findall(rest)]
        if not values or "" in values:
            raise FedscopeError(f"{text!r} has an empty value; write {key}=A,B,C")
        double = [value for i, value in enumerate(values) if value in values[:i]]
        if double:
            raise FedscopeError(f"{text!r} has the value {double[0]} twice; leave one out")
        axes[key] = tuple({key: value} for value in values)
    return tuple(axes.values())


def _value(word: str) -> Any:
    word = word.strip()
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else value_of(word)


def read_seeds(text: str) -> tuple[int, ...]:
    """``0..4`` (both inclusive), ``0,1,5``, or both mixed.

    Raises:
        FedscopeError: anything else, or a seed twice.

    >>> read_seeds("0..2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not (first.isdecimal() and (last.isdecimal() if dots else not last)) or (dots and int(last) < int(first)):
            raise FedscopeError(f"--seeds {text!r} is not understood; write 0..4 (both inclusive) or 0,1,5")
        seeds += range(int(first), int(last or first) + 1)
    return checked_seeds(seeds)


def checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Seeds as they are.

    Raises:
        FedscopeError: one twice, or one that is no whole number from 0 on.
    """
    for i, seed in enumerate(seeds):
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise FedscopeError(f"seeds has {seed!r}; seeds are whole numbers from 0 on")
        if seed in seeds[:i]:
            raise FedscopeError(f"--seeds has {seed} twice; leave one out")
    return tuple(seeds)
