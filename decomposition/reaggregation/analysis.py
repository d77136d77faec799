"""Analysis: another server method on a recorded round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result
from ...analysis.execution import Execution
from ...analysis.runs import Rounds, RunLike, identity, one_round
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError, Run, Weights
from ...checkpoints.io.shell_words import command_line, quoted
from ...checkpoints.models.layer_selections import layers_file_word
from ...landscape.alignment.step import align_weights, calibration_samples, refuse_unknown_align
from ...training.inputs.samples import (
    averaged_statistics,
    common_samples,
    dataset_of,
    describe_samples,
    given_settings,
    module_for,
)
from ...training.inputs.statistics import (
    measured_statistics,
    refuse_unknown_statistics,
    statistics_settings,
    statistics_word,
)

if TYPE_CHECKING:
    from ...training import Config
    from .requested_servers import AskedServer
    from .result import Reaggregation


@analysis
def reaggregate(
    run: RunLike,
    servers: Any = None,
    *,
    rounds: Rounds = None,
    layers: Mapping[str, Any] | Sequence[str] | str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    from_state: bool = False,
    align: str = "none",
    normalization: str = "averaged",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Reaggregation]:
    """Aggregate a recorded round's clients by another server method; nothing is trained.

    Gives the models, and compares their loss and error with the recorded global model's and plain FMA's; see
    :func:`~fedscope.decomposition.reaggregation.aggregate.reaggregate` for what a server is given. A server that keeps
    a state starts with an empty state unless ``from_state`` is given. Averages over rounds are left out. All clients
    are read at once.

    Args:
        run: ``RUN@40``, or a run with ``rounds=40``.
        servers: names of server methods, a row each; your own as ``module:Class``, a class, or an object of one. With
            ``layers`` the run's own by default.
        rounds: the one round.
        layers: ``{"head": "personal", "conv*": "fedadam"}`` or ``["head=personal"]``: these layers are aggregated by
            servers of their own, and the others by each of ``servers``. ``personal`` leaves them each client's: loss
            and error are then the means over clients, with 1/C each, of those of every client's own model on the data
            asked for. See :func:`~fedscope.checkpoints.models.layers.chosen_layers` for patterns.
        settings: of those servers that have them, ``{"quantile": 0.99}`` or ``["server.quantile=0.99"]``.
        from_state: begin with the state that the run's own server had before the round, instead of anew.
        align: bring the clients' units into the order of the model that they were sent, or without it of the first one,
            before, by their ``weights`` or their ``activations``; see :func:`fedscope.align`.
        normalization: where averages have BatchNorm statistics from: ``averaged`` as the weights are, or
            ``re-estimate``, measured on 2,000 training samples, or ``limit``; in files, too.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``train``
            takes all clients' training data.

    Raises:
        FedscopeError: no round, or one without clients or the model they were sent, or with a single client; an unknown
            server or setting; a server that is given twice, with other settings; a state that was not recorded; a
            pattern that names no layer; a layer that two name; a server that looks at whole models, for layers; code
            of the run's own server that was not given, or is another.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> list(fedscope.reaggregate(run, servers=("fma", "fedsa")).models)
    ['fma', 'fedsa']
    >>> folder.cleanup()
    """
    from ...training.inputs.given_servers import servers_of, settings_of
    from ...training.settings.own_code import short_name
    from .result import Reaggregation, model_suffixes

    source = EvaluationConfig.of("test", measured)
    refuse_unknown_statistics(normalization)
    refuse_unknown_align(align)
    opened, round_ = one_round(run, rounds)
    number = round_.number
    from .requested_servers import layers_given

    given = list(servers) if isinstance(servers, list | tuple) else [] if servers is None else [servers]
    by_layer = layers_given(layers)
    if not given and not by_layer:
        raise FedscopeError("there is no server to aggregate by; give --server fedavgm, or --layers head=personal")
    changes = settings_of(settings, ", or train a branch: fedscope train --from RUN@ROUND")
    names = servers_of(given) if given else own_server(opened, number, source)
    refuse_unasked(opened, number, source, own=not given)
    of_layers = servers_of_layers(by_layer)
    made = configs_of(opened, number, all_servers(names, of_layers), changes)
    asked = with_layers(opened, number, made, len(names), of_layers, chosen=bool(given))

    def prepare() -> SettingsAndCompute[Reaggregation]:
        from ...evaluation.tied_parameters import tied_names
        from .requested_servers import refuse_torn

        dataset = dataset_of([opened], source)
        samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
        for server in asked:
            refuse_torn(server.parts, tied_names(module))
        known: dict[str, Any] = {
            "run": identity(opened, [number - 1, number] if from_state else [number]),
            "round": number,
            "servers": list(map(str, names)),
            "settings": [one.config.tables()["server"] for one in asked],
            **(described(asked) if by_layer else {}),
            "from_state": from_state,
            **({"align": align} if align != "none" else {}),
            **statistics_settings(source, normalization),
            **({"keeps": keeps} if (keeps := kept_by_others(made)) else {}),
            **({"code": code} if (code := sources_of(made)) else {}),
            **given_settings([opened], source, module=module),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": source.precision,
        }

        def aligned(models: list[Weights]) -> list[Weights]:
            names = [f"client {k}" for k in round_.client_ids]
            labels = ["the start", *names][-len(models) :]
            calibration = calibration_samples(dataset, samples, source)
            return align_weights(module, calibration, models, labels, align, source.compute)

        def compute(attrs: dict[str, Any], work: Execution) -> Reaggregation:
            from .aggregate import EvaluationData, measure_servers

            statistics = measured_statistics(module, dataset, source, normalization)
            attrs = {**attrs, **averaged_statistics([opened], statistics)}
            measuring = EvaluationData(module, dataset, source.compute)
            return measure_servers(
                opened,
                number,
                asked,
                samples,
                measuring=measuring,
                from_state=from_state,
                attrs=attrs,
                measured=statistics,
                aligned=None if align == "none" else aligned,
            )

        return known, compute

    cuts = [f"layers-{layers_file_word(f'{pattern}={server}')}" for pattern, server in patterns_of(of_layers)]
    words = [
        str(number),
        *map(short_name, names),
        *cuts,
        *([] if align == "none" else [f"aligned-{align}"]),
        *statistics_word(normalization),
        *(f"{key}-{value}" for key, value in changes.items()),
    ]
    name = f"reaggregate-{'-'.join(words)}{'-from-state' if from_state else ''}"
    return single_result(Reaggregation, opened.path / "figures", name, prepare, model_suffixes(list(names)))


def kept_by_others(made: Mapping[str, tuple[Config, str]]) -> dict[str, str]:
    """Say what servers that are not fedscope's keep: a result that is read later does not import them."""
    return {name: config.server.about.keeps or "a state" for name, config in _of_others(made)}


def sources_of(made: Mapping[str, tuple[Config, str]]) -> dict[str, str]:
    """Return the SHA-256 of the sources of servers that are not fedscope's: these may change, and keep their names."""
    from ...training.settings.code_source import source_of

    kinds = {name: type(config.server) for name, config in _of_others(made)}
    return {name: source_of(kind).sha256 for name, kind in kinds.items() if not kind.__module__.startswith("fedscope.")}


def _of_others(made: Mapping[str, tuple[Config, str]]) -> list[tuple[str, Config]]:
    """Return the servers that are not fedscope's: of packages, and the user's own."""
    from ...training.settings.own_code import OwnCode
    from ...training.settings.registry import is_known

    return [
        (str(name), config)
        for name, (config, _) in made.items()
        if isinstance(name, OwnCode) or not is_known("servers", name)
    ]


def own_server(run: Run, number: int, source: EvaluationConfig) -> dict[str, dict[str, Any]]:
    """Name the server that made a round, with its settings where it is code of the user's own; that is the code which
    was given for it, because nothing that a run's files name is imported.

    Raises:
        FedscopeError: a run of another program, which does not say; code that was not given, or is another.
    """
    from ...training.settings.code_kinds import KINDS
    from ...training.user_code.kept_source import code_named
    from ...training.user_code.provided_code import code_of_objects

    table = server_table(run, number)
    if table is None:
        raise FedscopeError(
            f"{run.path} was recorded by {run.info['source']} and does not say its server, which aggregates the other "
            "layers; give --server NAME, too"
        )
    name = str(table.pop("method"))
    code = code_named(run, KINDS["server"], name, code_of_objects(source.code), changed=source.code_changed)
    return {name: {}} if code is None else {code: {} if code == name else table}  # of its name it keeps the run's


def server_table(run: Run, number: int) -> dict[str, Any] | None:
    """Return the settings of the server that made a round; None of a run that does not say."""
    from ...training.loop.run_history import config_at

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
    from ...training.settings.code_kinds import KINDS
    from ...training.user_code.kept_source import refuse_unnamed
    from ...training.user_code.provided_code import code_of_objects, names_code

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
    from ...training.inputs.given_servers import servers_of
    from .requested_servers import PERSONAL, refuse_unknown

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
    from ...training.inputs.given_servers import add_server

    every = dict(names)
    for _, own in of_layers:
        for name, table in own:
            add_server(every, name, table)
    return every


def patterns_of(of_layers: LayerServers) -> list[tuple[str, str]]:
    """Return the patterns with their servers' short names, or ``personal``."""
    from ...training.settings.own_code import short_name
    from .requested_servers import PERSONAL

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
    from .requested_servers import PERSONAL, AskedServer, parts_of, reaggregating_config

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


def described(asked: Sequence[AskedServer]) -> dict[str, Any]:
    """Describe the parts for a result's provenance: patterns with their servers, and these servers' settings."""
    from ...training.settings.registry import method_name
    from .requested_servers import PERSONAL

    parts = [part for part in asked[0].parts if part.pattern]
    return {
        "layers": [[one.pattern, PERSONAL if one.personal else method_name(one.config.server)] for one in parts],
        "layer_settings": [{} if one.personal else one.config.tables()["server"] for one in parts],
    }


def configs_of(
    run: Run, number: int, names: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, tuple[Config, str]]:
    """A configuration of each server, by its name, and what it is called; a setting goes to the servers that have it.

    Args:
        names: the servers, each with settings of its own.

    Raises:
        FedscopeError: an unknown server, or a setting that none of them has.
    """
    from dataclasses import fields

    from ...training.inputs.given_servers import refuse_no_server
    from ...training.settings.registry import find
    from .requested_servers import reaggregating_config

    branch = command_line("train", "--from", f"{run.path}@{number}")
    for name in names:
        refuse_no_server(name, f", or train a branch: {branch}")
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
    from dataclasses import fields

    from ...training.settings.registry import find

    usual = {key.name: key.default for key in fields(find("servers", name))}
    usual = {key: list(value) if isinstance(value, tuple) else value for key, value in usual.items()}
    return {key: value for key, value in settings.items() if key not in usual or value != usual[key]}
