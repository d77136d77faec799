"""A run's configuration: seven sections, resolved once, written into the run, repeatable from there.

Precedence: preset < CONFIG.toml < flag < ``--set``. Unknown keys are refused with the nearest known one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io import untrusted as foreign_files
from ...checkpoints.io.warn_user import warn_user
from ..local.optimiser_choice import refuse_optimiser
from ..methods.base import AverageMethod, ClientMethod, ServerMethod
from ..models.base import Architecture
from ..models.custom import architecture_of
from ..settings.missing_code import needs_code, ungiven
from ..settings.own_code import OwnCode, short_name
from ..settings.registry import (
    METHOD_SECTIONS,
    RegistryGroup,
    canonical,
    find,
    halves,
    is_known,
    method_name,
    names,
    was_loaded,
)
from ..settings.settings import Settings, types_of
from ..settings.values import parse_value
from .outside_sections import describe_outside
from .sections import DataConfig as DataConfig
from .sections import RecordConfig as RecordConfig
from .sections import RunConfig as RunConfig
from .setting_names import offer_elsewhere, offer_setting


@dataclass(frozen=True)
class ModelChoice:
    """[model]: a name and the architecture's own settings."""

    name: str
    architecture: Architecture


@dataclass(frozen=True)
class Config:
    """A whole configuration. ``Config.read({})`` is what ``fedscope train --method fma`` does.

    It is settled: what depends on other settings is filled in, as IMA's start, which is ⌈0.75 R⌉. Where keywords or a
    sweep change one of these, as in ``fedscope.train(config, rounds=40)``, such a default follows it, and what was
    given stays, see :meth:`asked`.
    """

    data: DataConfig
    model: ModelChoice
    client: ClientMethod
    server: ServerMethod
    average: AverageMethod
    run: RunConfig
    record: RecordConfig
    #: what :meth:`read` was given; None where the configuration was made otherwise, by ``dataclasses.replace``, too
    given: Mapping[str, Any] | None = field(init=False, default=None, repr=False, compare=False)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """Build from nested tables, as TOML gives them.

        Methods of installed packages are imported; code of the user's own is taken where it comes with its name.

        Raises:
            FedscopeError: an unknown section, key, method or model, a wrong type, a value out of range.
        """
        config = cls._read(raw, lambda shelf, name, table: settings_class(shelf, name))
        name = config.client.local_optimiser
        if ":" in name and not isinstance(name, OwnCode):
            raise FedscopeError(needs_code("client", name, "optimiser"))
        config.average.refuse_new(config)
        object.__setattr__(config, "given", {name: dict(table) for name, table in raw.items()})
        return config

    @classmethod
    def _read(cls, raw: Mapping[str, Any], look: Callable[..., type[Any]]) -> Config:
        for name, table in raw.items():
            if not isinstance(table, Mapping):
                raise FedscopeError(describe_outside(name, table))
            if name not in SECTIONS:
                raise FedscopeError(
                    f"[{name}] is not a section{nearest(name, SECTIONS)}; there are {', '.join(SECTIONS)}"
                )
        chosen: dict[str, Any] = {}
        for name, (shelf, selector, default) in METHOD_SECTIONS.items():
            table = dict(raw.get(name, {}))
            which = table.pop(selector, default)
            if not isinstance(which, str):
                raise FedscopeError(f"{name}.{selector} = {which!r} has the wrong type: it takes a string")
            which = canonical(shelf, which)
            made = _read(look(shelf, which, table), table, raw)
            chosen[name] = ModelChoice(which, made) if name == "model" else made
        return cls(
            data=DataConfig.read(raw.get("data", {}), offer_elsewhere),
            run=RunConfig.read(raw.get("run", {}), offer_elsewhere),
            record=RecordConfig.read(raw.get("record", {}), offer_elsewhere),
            **chosen,
        ).settled()

    @classmethod
    def recorded(cls, tables: Mapping[str, Any]) -> Config:
        """Return the configuration that a run keeps, whichever version of fedscope recorded it.

        Nothing is imported: methods and models that are neither fedscope's nor come with their code are placeholders,
        which have the settings and a name (:func:`~fedscope.training.settings.missing_code.ungiven`).
        """
        return cls.with_placeholders(recorded_tables(tables))

    @classmethod
    def with_placeholders(cls, raw: Mapping[str, Any]) -> Config:
        """As :meth:`read`, importing nothing, as :meth:`recorded`; raises as the former, but for unknown methods."""
        return cls._read(raw, _known_or_ungiven)

    def settled(self) -> Config:
        """Return the configuration with what its methods take from each other and from the number of rounds filled in.

        Raises:
            FedscopeError: a combination that makes no sense.
        """
        if self.run.evaluates_all() and not self.data.client_test:
            raise FedscopeError(
                f"run.evaluate_all = {self.run.evaluate_all!r} tests clients on their own test parts, but "
                "data.client_test = 0 sets none aside; give --set data.client_test=0.25"
            )
        if self.data.pool and not self.data.client_test:
            raise FedscopeError(
                "data.pool = true leaves no test samples but the clients' own test parts, and data.client_test = 0 "
                "sets none aside; give --set data.client_test=0.25"
            )
        config = replace(self, client=self.client.resolve(self))
        refuse_optimiser(config.client)
        config = replace(config, server=config.server.resolve(config))
        return replace(config, average=config.average.resolve(config))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the resolved configuration as TOML tables; ``Config.read`` of it gives an equal one."""
        return {
            "data": self.data.table(),
            "model": {"name": self.model.name, **self.model.architecture.table()},
            "client": {"method": method_name(self.client), **self.client.table()},
            "server": {"method": method_name(self.server), **self.server.table()},
            "average": {"method": method_name(self.average), **self.average.table()},
            "run": self.run.table(),
            "record": self.record.table(),
        }

    def asked(self) -> dict[str, dict[str, Any]]:
        """Return the tables that it was read from, and the names of its methods: what other settings are laid over.

        Defaults are not among them, so that those that depend on other settings follow these. Of a configuration that
        was not read, or has been changed since, all settings, as :meth:`tables`; and of one that was read from tables
        of these, as a run's ``config.toml`` is.

        >>> config = Config.read({"average": {"method": "ima"}, "run": {"rounds": 20}})
        >>> config.average.start, Config.read(merge(config.asked(), {"run": {"rounds": 40}})).average.start
        (15, 30)
        """
        own = self.tables()
        return own if self.given is None else merge(methods_in(own), self.given)

    def title(self) -> str:
        """A short name for a run: the methods that are not the plain ones, ``fma`` if all are, and beside a half of a
        method the plain one that it goes with.

        >>> Config.read({"average": {"method": "ima"}}).title(), Config.read({"server": {"method": "feddyn"}}).title()
        ('ima', 'sgd-feddyn')
        """
        both = halves(method_name(self.client), method_name(self.server))
        plain = {default for _, _, default in METHOD_SECTIONS.values()} if len(both) == 1 else {"none"}
        chosen = dict.fromkeys(short_name(name) for name in (*both, method_name(self.average)))
        return "-".join(name for name in chosen if name not in plain) or "fma"

    def on(self, device: str, data: str) -> Config:
        """Return the configuration with its device and relative paths resolved, as a run keeps it."""
        own = isinstance(self.data.name, OwnCode)  # which comes with its code
        name = self.data.name if own else data
        return replace(self, run=replace(self.run, device=device), data=replace(self.data, name=name))


#: of a configuration: data, model, client, ...
SECTIONS = tuple(section.name for section in fields(Config) if section.init)


def recorded_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables that a run keeps, with the keys that came later set to what the run did without them.

    >>> recorded_tables({"client": {"method": "fedsam", "lr": 0.1}})["client"]
    {'method': 'fedsam', 'lr': 0.1, 'optimiser': 'sgd', 'optimiser_state': 'fresh', 'sam_decay': 'within'}
    """
    known = dict(tables)
    for section, (shelf, selector, default) in METHOD_SECTIONS.items():
        if isinstance(table := tables.get(section), Mapping):
            which = table.get(selector, default)
            if isinstance(which, str):  # or the reader refuses it
                known[section] = _known_or_base(shelf, which).recorded(table)
    return known


def settings_class(shelf: RegistryGroup, name: str) -> type[Any]:
    """Return the class whose settings a section has, as :func:`find`; of a function that makes a model one for it."""
    found = find(shelf, name)
    return architecture_of(found) if isinstance(found, OwnCode) else found


def _known_or_base(shelf: RegistryGroup, name: str) -> type[Any]:
    """Return the class that a name is of; of code that is not here its base, so that nothing is imported."""
    return settings_class(shelf, name) if is_known(shelf, name) else _BASES[shelf]


def _known_or_ungiven(shelf: RegistryGroup, name: str, table: Mapping[str, Any]) -> type[Any]:
    if is_known(shelf, name) or was_loaded(shelf, name):
        return settings_class(shelf, name)
    return ungiven(_BASES[shelf], name, table)


_BASES: Mapping[RegistryGroup, type[Any]] = {
    "clients": ClientMethod,
    "servers": ServerMethod,
    "averages": AverageMethod,
    "models": Architecture,
}


def _read(kind: type[Settings], table: Mapping[str, Any], raw: Mapping[str, Any]) -> Any:
    """A method's or model's settings; a key that belongs to another section's method is refused with its place."""
    for name in table:
        if name in {key.name for key in fields(kind)}:
            continue
        for other, (shelf, selector, default) in METHOD_SECTIONS.items():
            chosen = canonical(shelf, str(raw.get(other, {}).get(selector, default)))
            if other != kind.section and chosen in names(shelf) and name in _keys(shelf, chosen):
                raise FedscopeError(
                    f"{kind.section}.{name} is not a setting of {kind.__name__}; {other}.{name} is one of {chosen}"
                )
    return kind.read(table, offer_elsewhere)


def _drop_own(section: str, table: dict[str, Any]) -> None:
    """Drop the settings that belong to the method or model that a table chooses; its choice stays."""
    shelf, selector, _ = METHOD_SECTIONS[section]
    base: Any = _BASES[shelf]
    replaced: Any = _known_or_base(shelf, table[selector])
    own = types_of(replaced)  # of some a common name is another thing: the optimiser that MIME's clients mimic
    common = {key for key, hint in types_of(base).items() if hint == own.get(key)}
    defaults = {key.name: key.default for key in fields(replaced)}
    for key in [key for key in table if key != selector]:
        if key not in common or table[key] == defaults.get(key):
            del table[key]


def _keys(shelf: RegistryGroup, name: str) -> set[str]:
    return {key.name for key in fields(settings_class(shelf, name))}


#: remedies for what is no TOML: of a file that is meant to be, and of another one
_MEND, _IN_TOML = "mend it, or copy it again", "give the settings in a .toml file, as [run] and rounds = 2 below it"


def read_toml(path: Path) -> dict[str, Any]:
    """A configuration file as nested tables.

    Raises:
        FedscopeError: it does not exist, is no regular file, too long, or not TOML.
    """
    try:
        return foreign_files.read_toml(path, "a configuration", _MEND if _meant_as_toml(path) else _IN_TOML)
    except FileNotFoundError:
        raise FedscopeError(f"{path} cannot be read as a configuration: it does not exist; give a .toml file") from None
    except OSError as error:
        raise FedscopeError(
            f"{path} cannot be read as a configuration ({error.strerror}); give a .toml file"
        ) from error


def _meant_as_toml(path: Path) -> bool:
    """Check whether a file is one of TOML by its name, or by a section's line in its beginning."""
    if path.suffix == ".toml":
        return True
    try:
        if not path.is_file():  # opening a named pipe waits
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(4096)
    except (OSError, ValueError):
        return False
    return any(re.match(rf"\s*\[\s*({'|'.join(SECTIONS)})\b", line) for line in head.splitlines())


def read_assignments(texts: Iterable[str], example: str = "average.window=3") -> dict[str, dict[str, Any]]:
    """``section.key=value`` as nested tables; values are written as in TOML, bare words are strings. Of a setting that
    is given twice the last one counts, and a :class:`~fedscope.checkpoints.FedscopeWarning` says so.

    Raises:
        FedscopeError: a text of another form; it shows the ``example``.

    >>> read_assignments(["average.window=3", "record.clients=last:5", "model.hidden=[32]"])
    {'average': {'window': 3}, 'record': {'clients': 'last:5'}, 'model': {'hidden': [32]}}
    """
    tables: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, word = text.partition("=")
        section, dot, key = place.strip().partition(".")
        if not (equals and dot and section and key):
            offer = offer_setting(place.strip()) if equals and not dot else ""
            raise FedscopeError(
                f"--set {text!r} is not understood{offer or ';'} write section.key=value, as in {example}"
            )
        table, value = tables.setdefault(section, {}), parse_value(word)
        if key in table and differ(section, key, table[key], value):
            warn_of_two(f"--set {section}.{key}={table[key]}", f"--set {section}.{key}={value}", "the last one", value)
        table[key] = value
    return tables


def differ(section: str, key: str, one: Any, other: Any) -> bool:
    """Check whether two values of a setting differ; of arrays, which have no single answer, whether they are two.

    >>> differ("model", "hidden", (32,), [32]), differ("client", "method", "FedProx", "fedprox")
    (False, False)
    """
    if one is other:
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) != len(other) or any(differ(section, key, *pair) for pair in zip(one, other, strict=True))
    if isinstance(one, str) and isinstance(other, str) and section in METHOD_SECTIONS:
        shelf, selector, _ = METHOD_SECTIONS[section]
        if key == selector:
            return canonical(shelf, one) != canonical(shelf, other)
    try:
        return bool(one != other) and bool(one == one or other == other)  # a NaN is not equal to itself
    except (ValueError, RuntimeError, TypeError):
        return True


def warn_of_two(one: str, other: str, which: str, value: Any) -> None:
    """Warn of two ways in which the same setting is given; ``which`` of them counts, and the value that it gives."""
    warn_user(f"{one} and {other} are both given; {which} counts: {value}")


def methods_in(*layers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of nested tables the choices of methods and of a model alone.

    >>> methods_in({"client": {"method": "fedprox", "mu": 0.1}, "run": {"rounds": 3}})
    {'client': {'method': 'fedprox'}}
    """
    merged = merge(*layers)
    return {
        section: {selector: merged[section][selector]}
        for section, (_, selector, _) in METHOD_SECTIONS.items()
        if selector in merged.get(section, {})
    }


def merge(*layers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Nested tables laid over each other, later ones above.

    A layer that chooses another method or model drops the settings of the replaced one: the new one's default to its
    own paper's. What all methods of a section have (rates, epochs) stays, unless it is the replaced one's default.

    >>> merge({"average": {"method": "ima", "window": 3}}, {"average": {"method": "none"}})
    {'average': {'method': 'none'}}
    """
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, table in layer.items():
            if not isinstance(table, Mapping):
                raise FedscopeError(describe_outside(section, table))
            below = merged.setdefault(section, {})
            if section in METHOD_SECTIONS and METHOD_SECTIONS[section][1] in table:
                shelf, selector, _ = METHOD_SECTIONS[section]
                if not isinstance(name := table[selector], str):
                    raise FedscopeError(f"{section}.{selector} = {name!r} has the wrong type: it takes a string")
                table = {**table, selector: canonical(shelf, name)}
                if below.get(selector, table[selector]) != table[selector]:
                    _drop_own(section, below)
            below.update(table)
    return merged
