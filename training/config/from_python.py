"""A configuration as it is given from Python: as one, or as plain dictionaries of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from os import PathLike, fspath
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.warn_user import warn_user
from ..settings.code_kinds import KINDS
from ..settings.registry import METHOD_SECTIONS, canonical, preset
from ..user_code.typed import given_keywords, handed_tables, typed_method
from .config import SECTIONS, Config, differ, merge, methods_in, warn_of_two
from .data_meant import refuse_data
from .field_names import KEYWORDS
from .outside_sections import SELECTORS
from .setting_names import OF_SECTIONS, offer_setting, owners, places_of

METHOD = "method"
#: single settings: the keywords of ``train`` and ``sweep`` that their signatures do not name
SINGLE = (METHOD, *KINDS, *KEYWORDS)


def nested_tables(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings as a configuration's tables.

    Args:
        given: tables by section, ``{"run": {"rounds": 2}}``; single settings, ``{"run.rounds": 2}``, which count more;
            and ``{"method": "fedprox"}``, as ``--method``, which counts less. Methods, models, data and partitions may
            be objects: ``{"server": FedX(beta=0.9)}``.

    Raises:
        FedscopeError: no dictionary, or data; a name that is neither; an unknown method.

    >>> nested_tables({"run": {"rounds": 2}, "run.seed": 1, "method": "fedprox"})
    {'client': {'method': 'fedprox'}, 'server': {'method': 'fma'}, 'average': {'method': 'none'},
     'run': {'rounds': 2, 'seed': 1}}
    """
    if not isinstance(given, Mapping):
        if isinstance(given, str | PathLike):
            refuse_data(fspath(given), "not a configuration")
        raise FedscopeError(
            f"settings are {type(given).__name__} {given!r}, not a dictionary; give fedscope.Config, or tables as in "
            '{"run": {"rounds": 2}}'
        )
    tables, single = _given_two_ways(given)
    _warn_of_twice(tables, single)
    return _laid_over(given.get(METHOD), tables, single)


def _given_two_ways(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the tables by section, and those of single settings, which count more.

    Raises:
        FedscopeError: a name that is neither; a section that is no table.
    """
    single, tables = dict[str, dict[str, Any]](), dict[str, Any]()
    for name, value in given.items():
        section, dot, key = str(name).partition(".")
        if dot:
            single.setdefault(section, {})[key] = value
        elif name in SECTIONS:
            if isinstance(value, str) or not (name in KINDS or isinstance(value, Mapping)):
                raise FedscopeError(_no_table(name, value))
            tables[name] = value
        elif name != METHOD:
            raise FedscopeError(_unknown(str(name), value))
    return tables, single


def _laid_over(
    method: Any, tables: Mapping[str, Any], single: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return tables over the choices of a method, and single settings over both."""
    if method is not None and not isinstance(method, str):
        raise FedscopeError(f"method = {method!r} has the wrong type: it takes a string")
    return merge(preset(method) if method else {}, handed_tables(tables), handed_tables(single))


def _warn_of_twice(tables: Mapping[str, Any], single: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn of a setting that both a table and its whole name give, otherwise: the latter counts."""
    for section, own in single.items():
        table = tables.get(section)
        for key, value in own.items():
            if isinstance(table, Mapping) and key in table and differ(section, key, table[key], value):
                place = f"{section}.{key}"
                in_table, by_name = f'{{"{section}": {{"{key}": {table[key]!r}}}}}', f'{{"{place}": {value!r}}}'
                warn_of_two(in_table, by_name, "the whole name", repr(value))


def config_with(config: Config | Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Config:
    """Return a configuration with what single keywords lay over it.

    Args:
        config: one, or its settings as :func:`nested_tables` takes them; None for none. Defaults that depend on
            settings that keywords change follow them, see :meth:`~fedscope.training.config.config.Config.asked`.
        keywords: see :func:`tables_of_keywords`; and ``method``, which replaces the client, server and average of the
            configuration, as ``--method`` those of a file. Settings of those that it replaces are dropped, see
            :func:`~fedscope.training.config.config.merge`. A warning names the methods that were given and have the
            plain one in their place.

    Raises:
        FedscopeError: what :func:`nested_tables` and :func:`tables_of_keywords` refuse; a section, key or method that
            there is not (names the nearest), a value out of range.

    >>> config_with(None, {"server": "fedadam", "rounds": 5, "method": "fedprox"}).title()
    'fedprox-fedadam'
    >>> config_with(Config.read({"average": {"method": "ima", "start": 3}}), {"method": "fedprox"}).title()
    'fedprox'
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    if not given and isinstance(config, Config):
        return config
    tables = config.asked() if isinstance(config, Config) else nested_tables(config or {})
    method = {METHOD: given.pop(METHOD)} if METHOD in given else {}
    if isinstance(method.get(METHOD), str):
        method[METHOD] = typed_method(method[METHOD], "--method")
    chosen, clients = nested_tables(method), tables.get("data", {}).get("clients")
    # below the tables, too, as of a file: they may have settings of the method that only the keyword chooses
    single = tables_of_keywords(given, clients)
    made = Config.read(merge(chosen, tables, chosen, single))
    _warn_of_dropped(str(method.get(METHOD)), chosen, methods_in(_given_tables(config)), methods_in(single))
    return made


def _given_tables(config: Config | Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return what a configuration was given, section by section: no defaults, where it knows them, and no ``method``
    of all three, which another one replaces as it is meant to."""
    if isinstance(config, Config):
        return config.tables() if config.given is None else config.given
    return _laid_over(None, *_given_two_ways({name: value for name, value in (config or {}).items() if name != METHOD}))


def _warn_of_dropped(
    method: str,
    chosen: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Mapping[str, Any]],
    single: Mapping[str, Mapping[str, Any]],
) -> None:
    """Warn of the methods of a configuration in whose place ``method=`` has the plain one, but for those for which a
    keyword gives another. One in whose place it has another is replaced as it is meant to be, with its other half."""
    dropped, replaced = dict[str, str](), set[str]()
    for section, own in given.items():
        shelf, selector, plain = METHOD_SECTIONS[section]
        new = canonical(shelf, chosen.get(section, {}).get(selector, own[selector]))
        was = canonical(shelf, own[selector])
        if new == plain != was and section not in single:
            dropped[section] = was
        elif new != was:
            replaced.add(was)
    dropped = {section: was for section, was in dropped.items() if was not in replaced}
    if dropped:
        what = " and ".join(f"{section}.method = {was!r}" for section, was in dropped.items())
        keep = ", ".join(f"{section}={was!r}" for section, was in dropped.items())
        warn_user(
            f"method={method!r} chooses the client, the server and the average, and drops {what} of the configuration; "
            f"to keep {'it' if len(dropped) == 1 else 'them'}, give {keep} beside it"
        )


def tables_of_keywords(keywords: Mapping[str, Any], clients: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the tables of single settings: of those of :data:`KEYWORDS`, and of what has a kind of code
    (``server=FedX(beta=0.9)``).

    Args:
        clients: their number, where something else says it; else a list of index arrays does.

    Raises:
        FedscopeError: a keyword that there is not; what
            :func:`~fedscope.training.user_code.typed.given_keywords` refuses.
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    for name in given:
        if name not in (*KEYWORDS, *KINDS):
            raise FedscopeError(f"{name}= is no setting{_meant(name)}; it takes {', '.join(SINGLE)}")
    own = given_keywords({name: given.pop(name) for name in tuple(given) if name in KINDS})
    listed = getattr(getattr(own.get("data", {}).get("partition"), "thing", None), "parts", None)
    if listed is not None and clients is None:
        given.setdefault("clients", len(listed))
    single: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        section, _, key = KEYWORDS[name].partition(".")
        single.setdefault(section, {})[key] = value
    return merge(own, single)


def _meant(name: str) -> str:
    """Offer the keyword that a name may mean, or how a setting without a keyword is given, in a clause, or nothing."""
    places = places_of(name)
    keywords = {place: keyword for keyword, place in KEYWORDS.items()} | {"data.name": "data"}
    if places and (keyword := keywords.get(places[0].place)) is not None:
        return f"; did you mean {keyword}?"
    if not places:
        return nearest(name, SINGLE)
    offers = [place.words().replace(place.place, _in_tables(place.place)) for place in places]
    return f"; give {' or '.join(offers)} in the settings"


def _in_tables(place: str) -> str:
    """``{"client.mu": ...}``, the settings of one key."""
    return f'{{"{place}": ...}}'


def _no_table(section: str, value: Any) -> str:
    """Say how a section is given whose name has a single value."""
    table = (
        f'{{"{SELECTORS[section]}": {value!r}}}' if section in SELECTORS and isinstance(value, str) else "{KEY: VALUE}"
    )
    return f'{section} = {value!r} is not a section; give its settings as {{"{section}": {table}}}'


def _unknown(name: str, value: Any) -> str:
    """Say what a name may have meant: a setting of a section, or a word near it."""
    if isinstance(value, Mapping):
        turned = [(section, key) for section in value for key in [_key_in(str(section), name)] if key]
        if turned:  # {"rounds": {"run": 1}}
            section, key = turned[0]
            return f'{name} is a setting of a section; give {{"{section}": {{"{key}": {value[section]!r}}}}}'
        near = nearest(name, SECTIONS)
        if not _sections_with(name) or (value and any(f'"{one}"' in near and _has_all(one, value) for one in SECTIONS)):
            hint = near or offer_setting(name)
            return f"{name} is neither a section nor a setting{hint}; sections are {', '.join(SECTIONS)}"
    shown = "VALUE" if isinstance(value, Mapping) and name != "partition" else repr(value)
    if places := _sections_with(name):
        offers = " or ".join(f'{{"{section}": {{"{name}": {shown}}}}}' for section in places)
        return f"{name} is a setting of a section; give {offers}"
    if found := places_of(name):
        spelled = [place.words().replace(place.place, f'{{"{place.place}": {shown}}}') for place in found]
        return f"{name} is neither a section nor a setting; did you mean {' or '.join(spelled)}?"
    keys = {key.name: section for section, kind in OF_SECTIONS.items() for key in fields(kind)}
    offers_by = {**{key: f"{section}.{key}" for key, section in keys.items()}, **{one: one for one in SECTIONS}}
    return (
        f"{name} is neither a section nor a setting{nearest(name, [METHOD, *offers_by], offers_by)}; sections are "
        + (", ".join(SECTIONS))
    )


def _sections_with(name: str) -> list[str]:
    """Return the sections of which a name is a setting, whichever method is chosen."""
    places = [section for section, kind in OF_SECTIONS.items() if name in {key.name for key in fields(kind)}]
    return places + [section for section, (_, selector, _) in METHOD_SECTIONS.items() if name == selector != METHOD]


def _key_in(section: str, name: str) -> str:
    """Return the key of a section that a name means, "" for none."""
    if section not in SECTIONS:
        return ""
    if section in _sections_with(name) or (section in METHOD_SECTIONS and owners(section, name)):
        return name
    at = [place.place for place in places_of(name) if place.place.startswith(f"{section}.")]
    return at[0].partition(".")[2] if at else ""


def _has_all(section: str, table: Mapping[Any, Any]) -> bool:
    return all(_key_in(section, str(key)) for key in table)
