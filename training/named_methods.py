"""Methods of the literature by one name each, as a choice of client, server and average."""

from __future__ import annotations

from typing import Any

from ..checkpoints import FedscopeError, nearest
from .config import METHOD_SECTIONS
from .registry import Shelf, canonical, names

_SHELVES: tuple[Shelf, ...] = ("clients", "servers", "averages")


def presets() -> tuple[str, ...]:
    """Names that ``--method`` takes: those of all methods in ``clients/``, ``servers/`` and ``averages/``.

    >>> {"fma", "ima", "fedadam", "scaffold"} <= set(presets())
    True
    """
    return tuple(sorted({name for shelf in _SHELVES for name in names(shelf)} - {"sgd", "none"}))


def canonical_method(method: str) -> str:
    """A preset's name, however it is written: in any case, or as the field calls it; other names stay as they are.

    >>> canonical_method("FedAvg"), canonical_method("FedProx"), canonical_method("mine")
    ('fma', 'fedprox', 'mine')
    """
    for shelf in _SHELVES:
        if (name := canonical(shelf, method)) in presets():
            return name
    return method


def preset(method: str) -> dict[str, dict[str, Any]]:
    """A method of the literature as a choice of client, server and average, whose own settings default to the paper's.

    The choice only: rates, epochs, clients and rounds are this package's defaults, not the paper's set-up.
    A name stands for every file of that name: ``fedprox`` for a client alone, ``fedswa`` for a client and a server,
    ``ima`` for an average. What it does not name is plain SGD, FMA and no averaging.

    Raises:
        FedscopeError: an unknown name.

    >>> preset("ima")
    {'client': {'method': 'sgd'}, 'server': {'method': 'fma'}, 'average': {'method': 'ima'}}
    """
    written, method = method, canonical_method(method)
    if method not in presets():
        meant = {"fedima": "ima"}.get(method.lower(), method.lower())
        raise FedscopeError(
            f"--method {written!r} is not a method that fedscope knows{nearest(meant, presets())}; "
            f"it has {', '.join(presets())}"
        )
    return {
        section: {"method": method if method in names(shelf) else default}
        for section, (shelf, _, default) in METHOD_SECTIONS.items()
        if section != "model"
    }
