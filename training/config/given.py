"""A configuration as it is given from Python: as one, or as plain dictionaries of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..settings.registry import METHOD_SECTIONS, preset
from .config import SECTIONS, Config, merge
from .sections import DataConfig, RecordConfig, RunConfig

METHOD = "method"
_OF_SECTIONS: Mapping[str, type] = {
    "data": DataConfig,
    "client": ClientMethod,
    "server": ServerMethod,
    "average": AverageMethod,
    "run": RunConfig,
    "record": RecordConfig,
}


def config_from(given: Config | Mapping[str, Any]) -> Config:
    """Return a configuration, or make one of its settings; see :func:`nested_tables`.

    Raises:
        FedscopeError: neither; a section, key or method that there is not (names the nearest), a value out of range.

    >>> config_from({"method": "ima", "run": {"rounds": 8}, "data.clients": 4}).title()
    'ima'
    """
    return given if isinstance(given, Config) else Config.read(nested_tables(given))


def nested_tables(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings as a configuration's tables.

    Args:
        given: tables by section, ``{"run": {"rounds": 2}}``; single settings, ``{"run.rounds": 2}``, which count more;
            and ``{"method": "fedprox"}``, as ``--method``, which counts less.

    Raises:
        FedscopeError: no dictionary; a name that is neither; an unknown method.

    >>> nested_tables({"run": {"rounds": 2}, "run.seed": 1, "method": "fedprox"})
    {'client': {'method': 'fedprox'}, 'server': {'method': 'fma'}, 'average': {'method': 'none'},
     'run': {'rounds': 2, 'seed': 1}}
    """
    if not isinstance(given, Mapping):
        raise FedscopeError(
            f"settings are {type(given).__name__} {given!r}, not a dictionary; give fedscope.Config, or tables as in "
            '{"run": {"rounds": 2}}'
        )
    method, single, tables = given.get(METHOD), dict[str, dict[str, Any]](), dict[str, Any]()
    for name, value in given.items():
        section, dot, key = str(name).partition(".")
        if dot:
            single.setdefault(section, {})[key] = value
        elif name in SECTIONS:
            tables[name] = value
        elif name != METHOD:
            raise FedscopeError(_unknown(str(name), value))
    if method is not None and not isinstance(method, str):
        raise FedscopeError(f"method = {method!r} has the wrong type: it takes a string")
    return merge(preset(method) if method else {}, tables, single)


def _unknown(name: str, value: Any) -> str:
    """Say what a name may have meant: a setting of a section, or a word near it."""
    places = [section for section, kind in _OF_SECTIONS.items() if name in {key.name for key in fields(kind)}]
    places += [section for section, (_, selector, _) in METHOD_SECTIONS.items() if name == selector != METHOD]
    if places:
        offers = " or ".join(f'{{"{section}": {{"{name}": {value!r}}}}}' for section in places)
        return f"{name} is a setting of a section; give {offers}"
    keys = {key.name: section for section, kind in _OF_SECTIONS.items() for key in fields(kind)}
    offers_by = {**{key: f"{section}.{key}" for key, section in keys.items()}, **{one: one for one in SECTIONS}}
    return (
        f"{name} is neither a section nor a setting{nearest(name, [METHOD, *offers_by], offers_by)}; sections are "
        + (", ".join(SECTIONS))
    )
