"""One look a method: colour, dashes and marker are the same in every figure, page and report, whatever the order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .printed import PRINTED
from .style import COLOURS, DASHES, MARKERS, current

#: other names of methods
_OTHERS = {"fedavg": "fma", "fedpake": "fedsa", "sgd": "fma", "soup": "greedy", "mean-of-adapters": "lora"}
_OTHERS |= {"weighted-checkpoints": "checkpoints"}
#: each seven of them have all colours
_METHODS = tuple(name for name in PRINTED if name not in _OTHERS)
_LOOKS = len(COLOURS) * len(DASHES)


def method_of(name: str) -> str:
    """The method that a run or a model is called by: a method of the package among its words, else its name without a
    seed and a place.

    >>> method_of("fedprox-seed0"), method_of("FMA (FedAvg)"), method_of("ima@40/client-3"), method_of("mine_s1")
    ('fedprox', 'fma', 'ima', 'mine')
    >>> method_of("sgd+feddyn"), method_of("feddyn+fma"), method_of("sgd")
    ('feddyn', 'feddyn', 'fma')
    """
    run = name.rpartition("@")[0] or name
    words = [word for word in re.split(r"[^a-z0-9]+", run.lower()) if word]
    for several in (name for name in (*_METHODS, *_OTHERS) if "-" in name):
        if f"-{several}-" in f"-{'-'.join(words)}-":
            return _OTHERS.get(several, several)
    for word in sorted(
        words, key=lambda word: word == "sgd"
    ):  # plain clients, which any server has, name no method beside another
        if (known := _OTHERS.get(word, word)) in _METHODS:
            return known
    own = [word for word in words if not re.fullmatch(r"(seed|s)\d+", word)]
    return "-".join(own or words) or run


def looks_of(names: Sequence[str], own: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Colour, line style and marker of each name: a method's own, in whatever order and company it is drawn.

    Runs of one method share its colour and differ in their dashes. A method that the package does not know has the look
    that a hash of its name gives; where another one in the figure has the same, it takes the next that is free.

    Args:
        own: colours by method or name, which count more; by default those of the style in use.

    >>> [look["color"] for look in looks_of(["ima", "fma"])] == [COLOURS[1], COLOURS[0]]
    True
    """
    chosen = {method_of(name): colour for name, colour in (current().colors if own is None else own).items()}
    places, palette = _places(tuple(dict.fromkeys(names))), current().palette or COLOURS
    looks = []
    for name in names:
        row, column = divmod(places[name], len(COLOURS))
        colour = chosen.get(method_of(name), palette[column % len(palette)])
        look = {"linestyle": DASHES[(column + row) % len(DASHES)], "marker": MARKERS[places[name] % len(MARKERS)]}
        looks.append({"color": colour, **look})
    return looks


def _places(names: Sequence[str]) -> dict[str, int]:
    """A place among all looks for each name, each another where there are enough; not by the order of the names.

    Looks stand in rows of all colours, so that those of one column differ in their dashes alone.
    """
    ranked = sorted(names, key=lambda name: (method_of(name) not in _METHODS, name))
    first = {method: name for name in reversed(ranked) for method in [method_of(name)]}
    places: dict[str, int] = {}
    for name in sorted(ranked, key=lambda name: first[method_of(name)] != name):
        method = method_of(name)
        if first[method] != name:  # another run of a method: its colour, in other dashes
            place, step = places[first[method]], len(COLOURS)
        elif method in _METHODS:
            place, step = _METHODS.index(method) % _LOOKS, len(COLOURS)
        else:
            place, step = int.from_bytes(hashlib.sha256(method.encode()).digest()[:4], "big") % _LOOKS, 1
        places[name] = _free(place, step, places.values())
    return places


def _free(place: int, step: int, taken: Iterable[int]) -> int:
    """The first free place: in its column where ``step`` is a row, else in one whose colour nobody has."""
    used = set(taken)
    row = [(place + i * step) % _LOOKS for i in range(_LOOKS // step)]
    colours = {one % len(COLOURS) for one in used} if step == 1 else set()
    apart = [one for one in row if one not in used and one % len(COLOURS) not in colours]
    every = [(place + i) % _LOOKS for i in range(_LOOKS)]
    return next(iter(apart or [one for one in every if one not in used]), place)
