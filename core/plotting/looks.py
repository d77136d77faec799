"""One look a method: colour, dashes and marker are the same in every figure, page and report, whatever the order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .style import COLOURS, DASHES, MARKERS, current

#: the methods of the package, and others' names for them; each line of seven has all colours
_METHODS = (
    *("fma", "ima", "wima", "fedswa", "fedprox", "scaffold", "fedmoswa"),
    *("fedadam", "fedsam", "swa", "fedsa", "feddyn", "fedavgm", "moon"),
    *("mofedsam", "fedasam", "fedcm", "fedacg", "fednova", "fedyogi", "fedntd"),
    *("fedadagrad", "adabest", "ditto", "fedbabu", "fedala", "mime", "diloco"),
    *("fedfa", "fedgen", "fedgma", "greedy", "mimelite"),
)
_OTHERS = {"fedavg": "fma", "fedpake": "fedsa", "sgd": "fma", "soup": "greedy", "fedlaw": "greedy"}
_LOOKS = len(COLOURS) * len(DASHES)


def method_of(name: str) -> str:
    """The method that a run or a model is called by: a method of the package among its words, else its name without a
    seed and a place.

    >>> method_of("fedprox-seed0"), method_of("FMA (FedAvg)"), method_of("ima@40/client-3"), method_of("mine_s1")
    ('fedprox', 'fma', 'ima', 'mine')
    """
    run = name.rpartition("@")[0] or name
    words = [word for word in re.split(r"[^a-z0-9]+", run.lower()) if word]
    for word in words:
        if (known := _OTHERS.get(word, word)) in _METHODS:
            return known
    own = [word for word in words if not re.fullmatch(r"(seed|s)?\d+", word)]
    return "-".join(own or words) or run


def looks_of(names: Sequence[str], own: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Colour, line style and marker of each name: a method's own, in whatever order and company it is drawn.

    Runs of one method share its colour and differ in their dashes. A method that the package does not know has the look
    that a hash of its name gives; where another one in the figure has the same, it takes the next that is free.

    Args:
        own: colours by method or name, which count more; by default those of :func:`fedscope.style`.

    >>> [look["color"] for look in looks_of(["ima", "fma"])] == [COLOURS[1], COLOURS[0]]
    True
    """
    chosen = {method_of(name): colour for name, colour in (current().colors if own is None else own).items()}
    methods = [method_of(name) for name in names]
    places = _places(dict.fromkeys(methods))
    looks, seen = [], dict.fromkeys(methods, 0)
    for method in methods:
        place, again = places[method], seen[method]
        seen[method] += 1
        dash = (place + place // len(COLOURS) + again) % len(DASHES)
        colour = chosen.get(method, COLOURS[place % len(COLOURS)])
        looks.append({"color": colour, "linestyle": DASHES[dash], "marker": MARKERS[(place + again) % len(MARKERS)]})
    return looks


def _places(methods: Mapping[str, Any]) -> dict[str, int]:
    """A look's number for each method, each another where there are enough."""
    places = {method: _METHODS.index(method) % _LOOKS for method in methods if method in _METHODS}
    for method in sorted(set(methods) - set(places)):  # not in the order of the figure
        place = int.from_bytes(hashlib.sha256(method.encode()).digest()[:4], "big") % _LOOKS
        colours = {taken % len(COLOURS) for taken in places.values()}
        free = [(place + i) % _LOOKS for i in range(_LOOKS) if (place + i) % _LOOKS not in places.values()]
        apart = [one for one in free if one % len(COLOURS) not in colours]
        places[method] = (apart or free or [place])[0]
    return places
