"""The axes of a sweep, as they are written: ``run.participation=0.1,0.2``, in Hydra's way, and ``--seeds 0..4``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set, Sized, ValuesView
from dataclasses import fields
from os import PathLike
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.visible_text import visible
from ...command_line import answering
from ..config.config import SECTIONS
from ..config.recipes import Cell
from ..config.sections import DataConfig, RecordConfig, RunConfig
from ..settings.code_kinds import KINDS
from ..settings.own_code import name_of
from ..settings.registry import METHOD_SECTIONS, find, names
from ..settings.values import parse_value
from .own_task import PLACE, handed_task

#: keys of a cell that are no settings
METHOD, LABEL = "method", "label"
#: more runs, or seeds, are a slip
MOST = 10_000
_FORM = 'give settings with their values, as {"method": ["fma", "ima"]}'
#: how axes are given: on a command line, and in Python
_WORDS = "write section.key=value,value as in run.participation=0.1,0.2, or method=fma,ima"
_MAPPING = 'give it as in {"run.participation": [0.1, 0.2]}, or methods as in {"method": ["fma", "ima"]}'
_CLOSED_BY = {'"': '"', "'": "'", "[": "]", "(": ")"}


def read_axes(texts: Iterable[str]) -> tuple[tuple[Cell, ...], ...]:
    """An axis for every ``key=value,value,...``; keys are ``section.key`` of a configuration, and ``method``.

    A value in quotes or brackets may hold commas.

    Raises:
        FedscopeError: a text of another form, a key that is given twice, an empty value or the same one twice.

    >>> read_axes(["method=fma,ima", "data.partition='shards:2,250',iid"])[1]
    ({'data.partition': 'shards:2,250'}, {'data.partition': 'iid'})
    """
    axes: dict[str, tuple[Cell, ...]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals:
            raise FedscopeError(f"{text!r} has no values; write them behind it: {key}=A,B,C")
        refuse_strange_key(key)
        if key in axes:
            raise FedscopeError(f"{key} is given twice; give all of its values in one: {key}=A,B,C")
        values = [_value(word) for word in _split(text, rest)]
        if key == "data.partition" and (number := next((one for one in values if not isinstance(one, str)), None)):
            raise FedscopeError(
                f"{key} has the value {number}, which is not a partition; put a value with a comma in quotes, as in "
                """data.partition='"shards:2,250",iid'"""
            )
        axes[key] = tuple({key: value} for value in values)
        refuse_strange_values(key, values)
    return tuple(axes.values())


def _split(text: str, rest: str) -> list[str]:
    """Return the words between those commas that stand in no quotes and no brackets.

    Raises:
        FedscopeError: an empty one; quotes or brackets that nothing closes.
    """
    words, closing = _between_commas(rest)
    if closing:
        raise FedscopeError(f"{text!r} opens something that no {closing} closes; close it")
    if not all(word.strip() for word in words):
        raise FedscopeError(f"{text!r} has an empty value; write {text.partition('=')[0]}=A,B,C")
    return words


def _between_commas(rest: str) -> tuple[list[str], str]:
    """Return the words between those commas that stand in no quotes and no brackets, and what is yet to be closed.

    >>> _between_commas("[32,64],[16]"), _between_commas("m:F(a=1,b=2),fma")
    ((['[32,64]', '[16]'], ''), (['m:F(a=1,b=2)', 'fma'], ''))
    """
    words, closing = [""], ""
    for letter in rest:
        if closing and letter == closing[-1]:
            closing = closing[:-1]
        elif not closing and letter == ",":
            words.append("")
            continue
        elif closing[-1:] not in ('"', "'"):
            closing += _CLOSED_BY.get(letter, "")
        words[-1] += letter
    return words, closing[-1:]


def _value(word: str) -> Any:
    word = word.strip()
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else parse_value(word)


def refuse_strange_key(key: str, way: str = _WORDS) -> None:
    """Refuse what no configuration has.

    Args:
        way: how axes are given, for the sentence: on a command line, or in Python.

    Raises:
        FedscopeError: says the nearest that there is.
    """
    section, dot, last = key.partition(".")
    if key == METHOD or (dot and section in SECTIONS and last):
        return
    known = _known_keys()
    whole = {"data": "data.name"} | {name: f"{name}.{selector}" for name, (_, selector, _) in METHOD_SECTIONS.items()}
    if key in whole:
        known = [whole[key]]
    same = known if key in whole else [place for place in known if place.partition(".")[2] == key]
    hint = f'; did you mean "{same[0]}"?' if same else nearest(key, (METHOD, *known))
    raise FedscopeError(f"{key!r} is not a setting that can be varied{hint or ';'} {way}")


def refuse_strange_values(key: str, values: Sequence[Any]) -> None:
    """Refuse no values, a word in place of a list, and a value that is there twice.

    Raises:
        FedscopeError: names it.
    """
    if isinstance(values, Set) and values:
        ordered = visible(sorted(values, key=str))[:80]
        raise FedscopeError(f"{key} has a set of values, which has no order; give a list, as in {ordered}")
    if isinstance(values, np.ndarray) and not values.ndim:
        values = values.item()  # which has no length
    if isinstance(values, Sized) and not isinstance(values, str | Mapping) and not len(values):
        raise FedscopeError(f"{key} has no values; give some, or leave it out")
    if isinstance(values, str | Mapping) or not isinstance(values, Sized):
        raise FedscopeError(
            f"{key} has {values!r}, which is not a list of values; give one, as in {_listed(key, values)}"
        )
    for value in values:
        refuse_code(key, value)
    double = [value for i, value in enumerate(values) if value in values[:i]]
    if double:
        raise FedscopeError(f"{key} has the value {double[0]} twice; leave one out")


def with_values(key: str) -> str:
    """How a key is varied, for sentences: on a command line, or in Python.

    >>> with_values("run.rounds")
    '{"run.rounds": [A, B, C]}'
    """
    return f"{key}=A,B,C" if answering.get() else f'{{"{key}": [A, B, C]}}'


def _listed(key: str, value: Any, method: Any = None) -> str:
    """Write the list that stands for what was given in its place: of a command line's words the values.

    >>> _listed("client.lr", "0.1,0.2"), _listed("data.partition", "iid,shards:2,250"), _listed("run.rounds", 5)
    ('[0.1, 0.2]', "['iid', 'shards:2,250']", '[5]')
    """
    if isinstance(value, Mapping):
        return f"[{', '.join(map(repr, value))}]" if value else "[A, B]"
    if not isinstance(value, str):
        return repr(_as_values(key, value, method))
    words, closing = _between_commas(value)
    if key == "data.partition":  # shards:2,250 is one
        words = re.split(r",(?!\s*\d)", value)
    values = [_value(word) for word in words if word.strip()]
    if closing or not values:
        return "[A, B]"
    if _takes_list(key, method):
        values = [one if isinstance(one, list) else [one] for one in values]
    return repr(values)


def _as_values(key: str, value: Any, method: Any) -> list[Any]:
    """Return the values that are meant by something else than a text, alone or as many."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Set):
        value = sorted(value, key=str)
    if not isinstance(value, list | tuple | range | Iterator | KeysView | ValuesView):
        value = [value]
    values = list(value)
    return [values] if _takes_list(key, method) and not any(isinstance(one, list | tuple) for one in values) else values


def _takes_list(place: str, method: Any = None) -> bool:
    """Check whether a setting has a list for its value, as the hidden layers of a model.

    Args:
        method: or the model, where it is known; else the default's counts, and that of others where it has none.

    >>> _takes_list("model.hidden"), _takes_list("model.hidden", "lstm"), _takes_list("client.lr")
    (True, False, False)
    """
    section, _, key = place.partition(".")
    if section not in METHOD_SECTIONS:
        return False
    shelf, _, default = METHOD_SECTIONS[section]
    known = names(shelf)
    types = {name: str(one.type) for name in known for one in fields(find(shelf, name)) if one.name == key}
    first = [name for name in (method, default) if isinstance(name, str) and name in types][:1]
    return any(types[name].startswith(("tuple", "list")) for name in first or types)


def _refuse_table(section: str, table: Mapping[str, Any]) -> None:
    """Refuse a section with its settings, as a configuration has it: of an axis each setting has its whole name."""
    method = table.get(METHOD_SECTIONS[section][1]) if section in METHOD_SECTIONS else None
    places = {f"{section}.{key}": of for key, of in table.items()}
    whole = ", ".join(f"{place!r}: {_listed(place, of, method)}" for place, of in places.items())
    raise FedscopeError(
        f"{section} has a table of settings, and each setting is varied by its whole name; give {{{whole}}}"
    )


def _refuse_keys(axis: Mapping[Any, Any]) -> None:
    for key, value in axis.items():
        if key in SECTIONS and isinstance(value, Mapping) and value:
            _refuse_table(key, value)
        if key != LABEL:
            refuse_strange_key(str(key), _MAPPING)


def cells_given(axes: Any) -> list[list[Cell]]:
    """Return axes that Python was given as cells; a mapping is of settings with their values.

    Raises:
        FedscopeError: something else; what :func:`refuse_strange_key`, :func:`refuse_strange_values` and
            :func:`refuse_code` refuse.
    """
    if isinstance(axes, Mapping):
        _refuse_keys(axes)
        values = {key: list(of) if isinstance(of, Iterator | KeysView | ValuesView) else of for key, of in axes.items()}
        if isinstance(tasks := values.get(PLACE), list | tuple):
            values[PLACE] = list(map(handed_task, tasks))
        for key, of in values.items():
            refuse_strange_values(key, of)
        return [[{key: value} for value in of] for key, of in values.items()]
    if isinstance(axes, str) or not isinstance(axes, Iterable):
        raise FedscopeError(f"axes are {_shown(axes)}, {'a text' if isinstance(axes, str) else 'no mapping'}; {_FORM}")
    found: list[list[Cell]] = []
    for axis in axes:
        if isinstance(axis, str | Mapping) or not isinstance(axis, Iterable):
            raise FedscopeError(f"axes have {_shown(axis)}, which is no list of cells; {_FORM}")
        found.append(list(axis))
        for cell in found[-1]:
            if not isinstance(cell, Mapping):
                raise FedscopeError(f"axes have the cell {_shown(cell)}, which is no mapping of settings; {_FORM}")
            _refuse_keys(cell)
            for key, value in cell.items():
                refuse_code(key, value)
    return found


def _shown(value: Any) -> str:
    return visible(repr(value))[:80]


def refuse_code(key: str, value: Any) -> None:
    """Refuse what no file can say, a class, a function or an object, where none is taken by its name.

    Raises:
        FedscopeError: says how it is named.
    """
    if key in METHOD_SECTIONS or key in {kind.place for kind in KINDS.values()}:
        return  # which take things, or are refused by their own name
    if callable(value) or not _is_plain(value):
        raise FedscopeError(
            f"{key} has {visible(repr(value))[:80]}, and a sweep writes its values into files; give the name of code "
            f"that can be imported, as {name_of(value)!r}"
        )


def _is_plain(value: Any) -> bool:
    """Check whether a value can be written: a text, a number, a truth value, nothing, or a list of these."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | np.generic | PathLike)


def _known_keys() -> list[str]:
    """Every key of every section, whichever method has it."""
    found = [f"{kind.section}.{key.name}" for kind in (DataConfig, RunConfig, RecordConfig) for key in fields(kind)]
    for section, (shelf, selector, _) in METHOD_SECTIONS.items():
        found.append(f"{section}.{selector}")
        found += [f"{section}.{key.name}" for name in names(shelf) for key in fields(find(shelf, name))]
    return list(dict.fromkeys(found))


def read_seeds(text: str) -> tuple[int, ...]:
    """``0..4`` (both inclusive), ``0,1,5``, or both mixed.

    Raises:
        FedscopeError: anything else, a seed twice, or more than anybody trains.

    >>> read_seeds("0..2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not (first.isdecimal() and (last.isdecimal() if dots else not last)) or (dots and int(last) < int(first)):
            raise FedscopeError(f"--seeds {text!r} is not understood; write 0..4 (both inclusive) or 0,1,5")
        if int(last or first) - int(first) >= MOST:
            raise FedscopeError(f"--seeds {text!r} are more than {MOST:,} seeds; give fewer")
        seeds += range(int(first), int(last or first) + 1)
    return checked_seeds(seeds)


def checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Seeds as they are.

    Raises:
        FedscopeError: one twice, or one that is no whole number from 0 on.
    """
    if not isinstance(seeds, Iterable):
        raise FedscopeError(f"seeds is {seeds!r}, which is not a list of whole numbers; give one, as seeds=[0, 1]")
    known: set[int] = set()
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise FedscopeError(f"seeds has {seed!r}; seeds are whole numbers from 0 on")
        if seed in known:
            raise FedscopeError(f"--seeds has {seed} twice; leave one out")
        known.add(seed)
    return tuple(seeds)
