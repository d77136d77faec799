"""What a recorded run says of how it was trained: its method, its seed and its settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import FedscopeError

#: what is given by an argument of its own, and is no setting
_ELSEWHERE = {"method": "method=", "seed": "seed=", "run.seed": "seed=", "label": "method=", "data.name": "data="}


def named_method(method: str | None, seed: Any, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The ``method``, ``seed`` and ``settings`` of ``run.json``, as far as they are given.

    Settings that are mappings are laid flat, ``{"client": {"lr": 0.1}}`` as ``{"client.lr": 0.1}``: as
    ``fedscope train`` calls its own, so that a table has one column of both.

    Raises:
        FedscopeError: a method that is not a line of text; a seed that is not a whole number from 0; settings whose
            values are neither texts, numbers nor lists of these, or that an argument of their own says.

    >>> named_method("FedX", np.int64(3), {"lr": 0.1, "client": {"epochs": 5}})
    {'method': 'FedX', 'seed': 3, 'settings': {'lr': 0.1, 'client.epochs': 5}}
    >>> named_method(None, None, None)
    {}
    """
    said: dict[str, Any] = {}
    if method is not None:
        if not isinstance(method, str) or not method.strip() or not method.isprintable():
            raise FedscopeError(f"method={method!r} is not a name; give a line of text, as method='FedX'")
        said["method"] = method.strip()
    if seed is not None:
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        if not whole or not 0 <= seed < 2**53:
            raise FedscopeError(f"seed={seed!r} is not a whole number from 0; give the run's seed, as seed=0")
        said["seed"] = int(seed)
    if settings is not None:
        if not isinstance(settings, Mapping):
            raise FedscopeError(
                f"settings= was given as {type(settings).__name__}; give them by name, as settings={{'lr': 0.1}}"
            )
        said["settings"] = {name: _value(name, value) for name, value in _flat(settings)}
    return said


def _flat(settings: Mapping[Any, Any], section: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if not isinstance(key, str) or not key.strip() or not key.isprintable():
            raise FedscopeError(f"settings= has the name {key!r}; give lines of text as names, as {{'lr': 0.1}}")
        name = f"{section}{key.strip()}"
        if name in _ELSEWHERE:
            raise FedscopeError(f"settings= has {name!r}, which {_ELSEWHERE[name]} says; leave it out of settings=")
        found += _flat(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)]
    return found


def _value(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple) for one in value):
        return [_value(name, one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise FedscopeError(
        f"settings= has {name} = {value!r}, which a run cannot keep; give a text, a finite number, or a list of these"
    )
