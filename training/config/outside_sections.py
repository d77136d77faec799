"""What stands at the top of a configuration in place of a section, and where it is written instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checkpoints import nearest
from ..settings.registry import METHOD_SECTIONS, canonical_method, preset, presets
from .setting_names import OF_SECTIONS, offer_setting, places_of

_FIRST, *_OTHERS = OF_SECTIONS
#: in the order of a configuration
_SECTIONS = (_FIRST, "model", *_OTHERS)
#: of each section that chooses something by its name the key of that
SELECTORS: Mapping[str, str] = {"data": "name"} | {
    section: selector for section, (_, selector, _) in METHOD_SECTIONS.items()
}


def describe_outside(name: str, value: Any) -> str:
    """Say where a TOML file has what was written in place of a section.

    >>> describe_outside("rounds", 2), describe_outside("batch_size", 8)
    ('rounds = 2 stands in no section; write it below [run]',
     'batch_size = 8 stands in no section; write batch = 8 below [client]')
    >>> describe_outside("data", "digits"), describe_outside("run", 2)
    ("data = 'digits' is not a section; write [data] and name = 'digits' below it",
     'run = 2 is not a section; write [run] and its keys below it')
    """
    written = _in_toml(value)
    said = f"{name} = {written}"
    if name in _SECTIONS:
        own = f"{SELECTORS[name]} = {written}" if name in SELECTORS and isinstance(value, str) else "its keys"
        return f"{said} is not a section; write [{name}] and {own} below it"
    if name == "method":
        return f"{said} stands in no section; {_choices(value)}"
    ways = []
    for place in places_of(name):
        section, _, key = place.place.partition(".")
        what = "it" if key == name else f"{key} = {written}"
        ways.append(f"{what} below [{section}]" + place.words().removeprefix(place.place))
    if ways:
        return f"{said} stands in no section; write {' or '.join(ways)}"
    hint = offer_setting(name) or nearest(name, _SECTIONS)
    return f"{said} stands in no section{hint}; sections are {', '.join(_SECTIONS)}"


def _choices(method: Any) -> str:
    """Say below which sections a method is chosen, which ``--method`` does by one word."""
    if not isinstance(method, str) or canonical_method(method) not in presets():
        return "write method below [client], [server] or [average], whose method it is"
    *most, last = (f"method = {table['method']!r} below [{section}]" for section, table in preset(method).items())
    return f"write {', '.join(most)} and {last}, as --method {method} chooses them"


def _in_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
