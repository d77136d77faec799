"""From servers as they are given, for whole models or for layers, to the rows that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ...analysis.runs import cannot_replay
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.code_words import code_words
from ...checkpoints.io.shell_words import command_line, quoted
from ...checkpoints.models.layers import chosen_layers, layers_of
from ...training.config.config import Config
from ...training.inputs.given_servers import add_server, refuse_no_server, servers_of
from ...training.loop.run_history import config_at
from ...training.settings.code_kinds import KINDS
from ...training.settings.own_code import short_name
from ...training.settings.registry import find
from ...training.user_code.kept_source import code_named, refuse_unnamed
from ...training.user_code.provided_code import code_of_objects, names_code
from .requested_servers import PERSONAL, AskedServer, parts_of, reaggregating_config, refuse_unknown


def own_server(run: Run, number: int, source: EvaluationConfig) -> dict[str, dict[str, Any]]:
    """Name the server that made a round, with its settings where it is code of the user's own; that is the code which
    was given for it, because nothing that a run's files name is imported.

    Raises:
        FedscopeError: a run of another program, which does not say; code that was not given, or is another.
    """
    table = server_table(run, number)
    if table is None:
        raise FedscopeError(
            f"{run.path} was recorded by {run.info['source']} and does not say its server, which aggregates the other "
            "layers; give --server NAME, too"
        )
    name = str(table.pop("method"))
    given = code_of_objects(source.code)
    code = code_named(run, KINDS["server"], name, given, changed=source.code_changed, rounds=[number])
    return {name: {}} if code is None else {code: {} if code == name else table}  # of its name it keeps the run's


def server_of_rest(
    run: Run, number: int, source: EvaluationConfig, patterns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Name the server of the layers that no pattern names, which is the run's own; where none is left nobody has to
    know it, and plain FMA stands in its place.

    Raises:
        FedscopeError: as :func:`own_server`, of layers that are left; a pattern that names no layer.
    """
    table, named = server_table(run, number), {one.name for p in patterns for one in chosen_layers(run.layout, p)}
    unknown = table is None or names_code(KINDS["server"], str(table["method"]))
    asked = "server" in code_of_objects(source.code) or source.code_changed
    if unknown and not asked and all(layer.name in named for layer in layers_of(run.layout)):
        return {"fma": {}}
    return own_server(run, number, source)


def server_table(run: Run, number: int) -> dict[str, Any] | None:
    """Return the settings of the server that made a round; None of a run that does not say."""
    if run.is_foreign and run.config is None:
        return None
    run.require("config.toml")
    return dict(config_at(run, number).tables()["server"])


def refuse_unasked(run: Run, number: int, source: EvaluationConfig, *, own: bool) -> None:
    """Refuse code that nothing asks for, which would be without effect.

    Args:
        own: whether the run's own server aggregates.

    Raises:
        FedscopeError: code of a server where others were named; code of what the run does not name; leave to take
            another source, and no code.
    """
    given = code_of_objects(source.code)
    for key, code in given.items():
        if key == "server" and not own:
            raise FedscopeError(
                f"--code server={code} is for the server that {run.path} names, and --server names others; leave it "
                f"out, or give --server {quoted(code)} to aggregate by it"
            )
    refuse_unnamed(run, given)
    if source.code_changed:
        name = (server_table(run, number) or {}).get("method", "fma")
        if not own or not names_code(KINDS["server"], name):
            raise FedscopeError(
                "--code-changed is for code of your own that the run's server is, and nothing asks for it here; leave "
                "it out"
            )


#: a pattern, and its server with settings of its own; none where clients keep the layers
LayerServers = list[tuple[str, list[tuple[str, dict[str, Any]]]]]


def servers_of_layers(given: Sequence[tuple[str, Any]]) -> LayerServers:
    """Return the servers that patterns name; see :func:`~fedscope.training.inputs.given_servers.servers_of`.

    Raises:
        FedscopeError: what is no server.
    """
    found: LayerServers = []
    for pattern, server in given:
        refuse_unknown(pattern, server)
        found.append((pattern, [] if server == PERSONAL else list(servers_of([server]).items())))
    return found


def all_servers(names: Mapping[str, dict[str, Any]], of_layers: LayerServers) -> dict[str, dict[str, Any]]:
    """Return the servers of rows and of layers, each once.

    Raises:
        FedscopeError: as :func:`~fedscope.training.inputs.given_servers.add_server`.
    """
    every = dict(names)
    for _, own in of_layers:
        for name, table in own:
            add_server(every, name, table)
    return every


def patterns_of(of_layers: LayerServers) -> list[tuple[str, str]]:
    """Return the patterns with their servers' short names, or ``personal``."""
    return [(pattern, short_name(own[0][0]) if own else PERSONAL) for pattern, own in of_layers]


def with_layers(
    run: Run,
    number: int,
    made: Mapping[str, tuple[Config, str]],
    count: int,
    of_layers: LayerServers,
    *,
    chosen: bool,
) -> list[AskedServer]:
    """Return the rows that are asked for: each of the first ``count`` servers, by layer where patterns are given.

    Args:
        made: configurations and labels by server, those of layers behind the others.
        chosen: whether the user has named the servers.

    Raises:
        FedscopeError: see :func:`~fedscope.decomposition.reaggregation.requested_servers.parts_of`.
    """
    rows = list(made.values())[:count]
    if not of_layers:
        return [AskedServer(*row) for row in rows]
    plain = reaggregating_config(run, number, "fma")
    servers = [(pattern, made[own[0][0]][0] if own else plain, not own) for pattern, own in of_layers]
    cut = ", ".join(f"{pattern}={made[own[0][0]][1] if own else PERSONAL}" for pattern, own in of_layers)
    asked = []
    for config, label in rows:
        parts = parts_of(run.layout, config, servers, base_given=chosen)
        asked.append(AskedServer(config, f"{label}, {cut}" if not parts[-1].pattern else cut, parts))
    return asked


def or_branch(run: Run, number: int) -> str:
    """Say in a clause how a round is gone on from with other settings; of a run that was not trained here why not."""
    if cannot_replay([run]):
        return f"; {run.path} was recorded by {run.info['source']}, and only its own loop trains its clients otherwise"
    branch = command_line("train", "--from", f"{run.path}@{number}", *code_words(run.info, run.config))
    return f", or train a branch: {branch}"


def configs_of(
    run: Run, number: int, names: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, tuple[Config, str]]:
    """A configuration of each server, by its name, and what it is called; a setting goes to the servers that have it.

    Args:
        names: the servers, each with settings of its own.

    Raises:
        FedscopeError: an unknown server, or a setting that none of them has.
    """
    for name in names:
        refuse_no_server(name, or_branch(run, number))
    known = {name: {key.name for key in fields(find("servers", name))} for name in names}
    nobody = {key for key in settings if not any(key in own for own in known.values())}
    configs = {}
    for name in names:
        given = {key: value for key, value in settings.items() if key in known[name] or key in nobody}
        own = {**names[name], **given}
        words = ", ".join(f"{key}={value}" for key, value in {**_chosen(name, names[name]), **given}.items())
        configs[name] = reaggregating_config(run, number, name, own), f"{name} ({words})" if words else str(name)
    return configs


def _chosen(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a server that are not its defaults: an object has all of them."""
    usual = {key.name: key.default for key in fields(find("servers", name))}
    usual = {key: list(value) if isinstance(value, tuple) else value for key, value in usual.items()}
    return {key: value for key, value in settings.items() if key not in usual or value != usual[key]}
