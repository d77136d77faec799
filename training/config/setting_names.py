"""Names of settings without their section: as keywords have them, and as somebody types them by a slip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from ...checkpoints import nearest
from ...checkpoints.io.errors import list_few
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..settings.registry import METHOD_SECTIONS, find, names
from .field_names import ALSO, KEYWORDS, plain_name
from .sections import DataConfig, RecordConfig, RunConfig

OF_SECTIONS: Mapping[str, type] = {
    "data": DataConfig,
    "client": ClientMethod,
    "server": ServerMethod,
    "average": AverageMethod,
    "run": RunConfig,
    "record": RecordConfig,
}


@dataclass(frozen=True)
class SettingPlace:
    """Where a setting is written, and the methods or models that have it; () for all of its section."""

    place: str
    owners: tuple[str, ...] = ()

    def words(self) -> str:
        """``client.mu (of adabest, fedprox)``."""
        return self.place + (f" (of {list_few(self.owners, 6)})" if self.owners else "")


def _keys_of(kind: type) -> set[str]:
    return {key.name for key in fields(kind)}


@cache
def owners(section: str, key: str) -> tuple[str, ...]:
    """Return the built-in methods or models of a section that have a setting.

    >>> owners("client", "temperature")
    ('fedntd', 'moon')
    """
    shelf = METHOD_SECTIONS[section][0]
    return tuple(name for name in names(shelf) if key in _keys_of(find(shelf, name)))


def places_of(name: str) -> list[SettingPlace]:
    """Return where a setting is written that is named without its section, as here, in papers or other programs.

    >>> [place.words() for place in places_of("learning-rate")]
    ['client.lr']
    >>> [place.words() for place in places_of("temperature")]
    ['client.temperature (of fedntd, moon)']
    """
    name = plain_name(name)
    everywhere = {key: f"{section}.{key}" for section, kind in OF_SECTIONS.items() for key in _keys_of(kind)}
    everywhere |= KEYWORDS
    if place := everywhere.get(name) or ALSO.get(name):
        return [SettingPlace(place)]
    found = [SettingPlace(f"{section}.{name}", owners(section, name)) for section in METHOD_SECTIONS]
    return [place for place in found if place.owners]


def offer_setting(name: str) -> str:
    """Offer the settings that a name without its section may mean, in a clause, or nothing.

    >>> offer_setting("lr"), offer_setting("windw"), offer_setting("xyz")
    ('; did you mean client.lr?', '; did you mean average.window?', '')
    >>> offer_setting("mu")
    '; did you mean client.mu (of adabest, fedprox, moon)?'
    """
    if places := places_of(name):
        return f"; did you mean {' or '.join(place.words() for place in places)}?"
    keys = {key: f"{section}.{key}" for section, kind in OF_SECTIONS.items() for key in _keys_of(kind)}
    keys |= {"window": "average.window", **KEYWORDS}
    return nearest(name, keys, keys).replace('"', "")


def offer_elsewhere(section: str, key: str) -> str:
    """Say where a key is written that a section has not with the method that is chosen, in a clause, or nothing.

    >>> offer_elsewhere("client", "mu"), offer_elsewhere("run", "lr"), offer_elsewhere("run", "xyz")
    ('; it is one of adabest, fedprox, moon', '; did you mean client.lr?', '')
    """
    if section in METHOD_SECTIONS and (of := owners(section, key)):
        return f"; it is one of {list_few(of, 6)}"
    places = places_of(key)
    return f"; did you mean {' or '.join(place.words() for place in places)}?" if places else ""
