"""Servers that somebody named for clients that are trained already, with their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ..config.config import SECTIONS, read_assignments
from ..settings.code_kinds import KINDS
from ..settings.own_code import OwnCode
from ..settings.registry import canonical, names
from ..user_code.resolve import handed_code
from ..user_code.typed import typed_tables


def servers_of(given: Sequence[Any], place: str = "servers=") -> dict[str, dict[str, Any]]:
    """Return servers by name, each with the settings that were given with it: ``FedX(beta=0.5)``.

    Args:
        place: the keyword by which an object was given, for sentences.

    Raises:
        FedscopeError: what is no server; one that is given twice, with other settings.
    """
    kind, found = KINDS["server"], dict[str, dict[str, Any]]()
    for server in given:
        if isinstance(server, str):
            table = typed_tables({"server": {"method": canonical("servers", server)}})["server"]
            name = table.pop("method")
        else:
            name, settings = handed_code(kind, server, place)
            table = dict(settings)
        add_server(found, name, table)
    return found


def add_server(found: dict[str, dict[str, Any]], name: str, table: dict[str, Any]) -> None:
    """Add a server to others; one that is there with the same settings stays.

    Raises:
        FedscopeError: one of its name is there with other settings, or with other code: of two, one would be left out.
    """
    if name not in found:
        found[name] = table
        return
    there = next(key for key in found if key == name)
    if _is_other_code(there, name):
        raise FedscopeError(f"--server {name} is given twice, as two classes of one name; rename one of them")
    keys = [key for key in {**found[name], **table} if found[name].get(key) != table.get(key)]
    if keys:
        one, other = (
            ", ".join(f"{key}={own[key]}" for key in keys if key in own) or "no settings"
            for own in (found[name], table)
        )
        raise FedscopeError(
            f"--server {name} is given twice, with {one} and with {other}, and a result calls each server by its name; "
            "ask for one after the other"
        )


def _is_other_code(one: str, other: str) -> bool:
    if not isinstance(one, OwnCode) or not isinstance(other, OwnCode):
        return type(one) is not type(other)
    # a file that is named twice is read twice
    return one.thing is not other.thing and (one.source != other.source or not one.source.sha256)


def settings_of(given: Mapping[str, Any] | Sequence[str], otherwise: str = "") -> dict[str, Any]:
    """Return settings of servers by their names, which may stand below their section, or as ``server.KEY=VALUE``.

    Args:
        otherwise: what else may be done where a setting is no server's, for the sentence.

    Raises:
        FedscopeError: a setting of something else, or the choice of a method.
    """
    tables = _by_section(given) if isinstance(given, Mapping) else read_assignments(given, "server.quantile=0.99")
    for section, table in tables.items():
        for key, value in table.items():
            if section != "server":
                raise FedscopeError(
                    f"--set {section}.{key}={value}: nothing is trained here, so only the server has settings; give "
                    f"server.KEY=VALUE{otherwise}"
                )
            if key == "method":
                raise FedscopeError(
                    f"--set server.method={value} chooses a server; give --server {quoted(value)} instead"
                )
    return tables.get("server", {})


def _by_section(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings as tables by section, as those of a configuration may be written: ``{"server.lr": 1}``,
    ``{"server": {"lr": 1}}``; a name alone is a server's.

    >>> _by_section({"lr": 1, "server.tau": 0.1, "client": {"mu": 0}})
    {'server': {'lr': 1, 'tau': 0.1}, 'client': {'mu': 0}}
    """
    tables: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        section, dot, key = str(name).partition(".")
        if dot:
            tables.setdefault(section, {})[key] = value
        elif name in SECTIONS and isinstance(value, Mapping):
            tables.setdefault(name, {}).update(value)
        else:
            tables.setdefault("server", {})[name] = value
    return tables


def refuse_no_server(name: str, otherwise: str = "") -> None:
    """Refuse the name of what clients do, or of an average over rounds.

    Args:
        otherwise: what else may be done, for the sentence.

    Raises:
        FedscopeError: names the servers.

    >>> refuse_no_server("fma")
    """
    of_clients = canonical("clients", name) in names("clients")
    if name not in names("servers") and (of_clients or canonical("averages", name) in names("averages")):
        what = "clients do" if of_clients else "is averaged over rounds"
        raise FedscopeError(
            f"--server {name}: that is what {what}, and only servers can be exchanged afterwards; give one of "
            f"{', '.join(names('servers'))}{otherwise}"
        )
