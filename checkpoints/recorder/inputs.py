"""Inputs of a recorder, checked, as ``run.json`` has them: the name of its data, and the method, seed and settings that
it was trained with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..io.errors import FedscopeError
from ..io.shell_words import quoted
from ..io.untrusted import expand_home, real_path
from ..runs.info import sha256_of

_FILE = "npz:"
#: what is given by an argument of its own, and is no setting
_ELSEWHERE = {"method": "method=", "seed": "seed=", "run.seed": "seed=", "label": "method=", "data.name": "data="}


def spell_data(data: Any) -> Any:
    """Return a file of arrays as ``npz:PATH``, as data are named; anything else as it is.

    >>> spell_data("test.npz"), spell_data(Path("sets/test.npz")), spell_data("digits"), spell_data("folder:a.npz")
    ('npz:test.npz', 'npz:sets/test.npz', 'digits', 'folder:a.npz')
    """
    name = str(data) if isinstance(data, Path) else data
    plain = isinstance(name, str) and name.lower().endswith(".npz") and not re.match(r"\w{2,}:", name)
    return f"{_FILE}{name}" if plain else data


def named_data(name: str) -> dict[str, str]:
    """Return the ``data`` of ``run.json``; of an ``npz:PATH`` that is there the absolute path, and ``file_sha256``.

    >>> named_data("digits"), named_data("nowhere.npz")
    ({'name': 'digits'}, {'name': 'npz:nowhere.npz'})
    """
    name = spell_data(name)
    path = path_of(name)
    if path is None or not path.is_file():
        return {"name": name}
    return {"name": f"{_FILE}{real_path(path)}", "file_sha256": sha256_of(path)}


def refuse_changed(run: Path, data: Mapping[str, Any]) -> None:
    """Make sure that the file that a recorded run names is still the one that was there; where it is gone, reading it
    will say so.

    Raises:
        FedscopeError: it is another.
    """
    recorded, path = data.get("file_sha256"), path_of(data.get("name", ""))
    if recorded is None or path is None or not path.is_file():
        return
    found = sha256_of(path)
    if found != recorded:
        raise FedscopeError(
            f"{run}: {path} has changed since the run was recorded (sha256 {found[:12]}..., the run saw "
            f"{recorded[:12]}...); restore it, or give --data {quoted(f'{_FILE}{path}')} to measure on what it is now"
        )


def named_base(base: Path | str) -> dict[str, str]:
    """Return the ``base`` of ``run.json``: the absolute path of a model's file or folder, and the sha256 of its files.

    Raises:
        FedscopeError: no model there.
    """
    from ..models.adapter_bases import sum_of_files
    from ..models.files import files_of_model

    path = Path(real_path(expand_home(str(base))))
    return {"path": str(path), "sha256": sum_of_files(files_of_model(path))}


def path_of(name: str) -> Path | None:
    """Return the path in ``npz:PATH``; None for other names."""
    return expand_home(name.removeprefix(_FILE)) if name.startswith(_FILE) else None


def named_method(method: str | None, seed: Any, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the ``method``, ``seed`` and ``settings`` of ``run.json``, as far as they are given.

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
    """Make a value one that JSON has."""
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
