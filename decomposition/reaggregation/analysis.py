"""Analysis: another server method on a recorded round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, one
from ...analysis.execution import Execution
from ...analysis.runs import Rounds, RunLike, identity, one_round
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Run
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)

if TYPE_CHECKING:
    from ...training import Config
    from .result import Reaggregation


@analysis
def reaggregate(
    run: RunLike,
    servers: Any,
    *,
    rounds: Rounds = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    from_state: bool = False,
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Reaggregation]:
    """Aggregate a recorded round's clients by another server method; nothing is trained.

    Gives the models, and compares their loss and error with the recorded global model's and plain FMA's; see
    :func:`~fedscope.decomposition.reaggregation.aggregate.reaggregate` for what a server is given. A server that keeps
    a state starts with an empty state unless ``from_state`` is given. Averages over rounds are left out. All clients
    are read at once.

    Args:
        run: ``RUN@40``, or a run with ``rounds=40``.
        servers: names of server methods, a row each; your own as ``module:Class``, a class, or an object of one.
        rounds: the one round.
        settings: of those servers that have them, ``{"quantile": 0.99}`` or ``["server.quantile=0.99"]``.
        from_state: begin with the state that the run's own server had before the round, instead of anew.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``train``
            takes all clients' training data.

    Raises:
        FedscopeError: no round, or one without clients or the model they were sent, or with a single client; an unknown
            server or setting; a state that was not recorded.
    """
    from ...training.settings.own_code import short_name
    from .result import Reaggregation, model_suffixes

    source = EvaluationConfig.of("test", measured)
    opened, round_ = one_round(run, rounds)
    number = round_.number
    given = servers if isinstance(servers, list | tuple) else [servers]
    names, changes = servers_of(given), settings_of(settings)
    asked = configs_of(opened, number, names, changes)

    def prepare() -> SettingsAndCompute[Reaggregation]:
        dataset = dataset_of([opened], source)
        samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
        known: dict[str, Any] = {
            "run": identity(opened),
            "round": number,
            "servers": list(map(str, names)),
            "settings": [config.tables()["server"] for config, _ in asked],
            "from_state": from_state,
            **({"keeps": keeps} if (keeps := kept_by_others(names, asked)) else {}),
            **(given_settings([opened], source) if opened.is_foreign else {}),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": source.precision,
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Reaggregation:
            from .aggregate import EvaluationData, measure_servers

            attrs = {**attrs, **averaged_statistics([opened])}
            measuring = EvaluationData(module, dataset, source.compute)
            return measure_servers(
                opened, number, asked, samples, measuring=measuring, from_state=from_state, attrs=attrs
            )

        return known, compute

    words = [str(number), *map(short_name, names), *(f"{key}-{value}" for key, value in changes.items())]
    name = f"reaggregate-{'-'.join(words)}{'-from-state' if from_state else ''}"
    return one(Reaggregation, opened.path / "figures", name, prepare, model_suffixes(list(names)))


def kept_by_others(names: Mapping[str, Any], asked: Sequence[tuple[Config, str]]) -> dict[str, str]:
    """Say what servers that are not fedscope's keep: a result that is read later does not import them."""
    from ...training.settings.own_code import OwnCode
    from ...training.settings.registry import is_known

    servers = zip(names, asked, strict=True)
    return {
        str(name): config.server.about.keeps or "a state"
        for name, (config, _) in servers
        if isinstance(name, OwnCode) or not is_known("servers", name)
    }


def servers_of(given: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return servers by name, each with the settings that were given with it: ``FedX(beta=0.5)``.

    Raises:
        FedscopeError: what is no server.
    """
    from ...training.settings.code_kinds import KINDS
    from ...training.settings.registry import canonical
    from ...training.user_code.resolve import handed_code
    from ...training.user_code.typed import typed_tables

    kind, found = KINDS["server"], dict[str, dict[str, Any]]()
    for server in given:
        if isinstance(server, str):
            table = typed_tables({"server": {"method": canonical("servers", server)}})["server"]
            name = table.pop("method")
        else:
            name, settings = handed_code(kind, server, "servers=")
            table = dict(settings)
        found.setdefault(name, table)
    return found


def settings_of(given: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Settings of servers by their names, or as ``server.KEY=VALUE``.

    Raises:
        FedscopeError: a setting of something else, or the choice of a method.
    """
    from ...training import read_assignments

    tables = {"server": dict(given)} if isinstance(given, Mapping) else read_assignments(given, "server.quantile=0.99")
    for section, table in tables.items():
        for key, value in table.items():
            if section != "server":
                raise FedscopeError(
                    f"--set {section}.{key}={value}: nothing is trained here, so only the server has settings; give "
                    "server.KEY=VALUE, or train a branch: fedscope train --from RUN@ROUND"
                )
            if key == "method":
                raise FedscopeError(f"--set server.method={value} chooses a server; give --server {value} instead")
    return tables.get("server", {})


def configs_of(
    run: Run, number: int, names: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[tuple[Config, str]]:
    """A configuration of each server and what it is called; a setting goes to the servers that have it.

    Args:
        names: the servers, each with settings of its own.

    Raises:
        FedscopeError: an unknown server, or a setting that none of them has.
    """
    from dataclasses import fields

    from ...training.settings.registry import canonical, find
    from ...training.settings.registry import names as names_on
    from .aggregate import reaggregating_config

    for name in names:
        of_clients = canonical("clients", name) in names_on("clients")
        if name not in names_on("servers") and (of_clients or canonical("averages", name) in names_on("averages")):
            what = "clients do" if of_clients else "is averaged over rounds"
            raise FedscopeError(
                f"--server {name}: that is what {what}, and only servers can be exchanged afterwards; give one of "
                f"{', '.join(names_on('servers'))}, or train a branch: fedscope train --from {run.path}@{number}"
            )
    known = {name: {key.name for key in fields(find("servers", name))} for name in names}
    nobody = {key for key in settings if not any(key in own for own in known.values())}
    configs = []
    for name in names:
        given = {key: value for key, value in settings.items() if key in known[name] or key in nobody}
        own = {**names[name], **given}
        words = ", ".join(f"{key}={value}" for key, value in given.items())
        configs.append((reaggregating_config(run, number, name, own), f"{name} ({words})" if words else name))
    return configs
