"""Analysis: another server method on a recorded round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, analysis, single_result
from ...analysis.rounds import Rounds
from ...analysis.runs import RunLike, one_round
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.models.layer_selections import layers_file_word
from ...checkpoints.models.unsaid_scale import unsaid_scale
from ...checkpoints.recorder.file_order import refuse_recorded_order
from ...landscape.alignment.step import refuse_unknown_align
from ...training.inputs.given_servers import servers_of, settings_of
from ...training.inputs.statistics import refuse_unknown_statistics, statistics_word
from ...training.methods.servers.checkpoints import INSTEAD, NO_CHECKPOINTS, is_in_time
from ...training.settings.own_code import short_name
from .request import ReaggregationRequest
from .requested_servers import layers_given
from .resolved_servers import (
    all_servers,
    configs_of,
    or_branch,
    patterns_of,
    refuse_unasked,
    server_of_rest,
    servers_of_layers,
    with_layers,
)
from .result import Reaggregation, model_suffixes


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
    a state starts with an empty state unless ``from_state`` is given. Averages over rounds are left out. Clients
    of more than half a GB stay in the round's file, and servers are given blocks of their columns where they take them.

    Args:
        run: ``RUN@40``, or a run with ``rounds=40``.
        servers: names of server methods, a row each; your own as ``module:Class``, a class, or an object of one. With
            ``layers`` the run's own by default.
        rounds: the one round.
        layers: ``{"head": "personal", "conv*": "fedadam"}`` or ``["head=personal"]``: these layers are aggregated by
            servers of their own, and the others by each of ``servers``. ``personal`` leaves them each client's: loss
            and error are then the means over clients, with 1/C each, of those of every client's own model on the data
            asked for. See :func:`~fedscope.checkpoints.models.layers.chosen_layers` for patterns.
        settings: of those servers that have them, ``{"quantile": 0.99}``, ``{"server.quantile": 0.99}`` or
            ``["server.quantile=0.99"]``.
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
            of the run's own server that was not given, or is another; a server that takes the order of clients as time,
            and clients that were imported from a list which was sorted as text.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> list(fedscope.reaggregate(run, servers=("fma", "fedsa")).models)
    ['fma', 'fedsa']
    >>> folder.cleanup()
    """
    source = EvaluationConfig.of("test", measured)
    refuse_unknown_statistics(normalization)
    refuse_unknown_align(align)
    opened, round_ = one_round(run, rounds)
    number = round_.number
    given = list(servers) if isinstance(servers, list | tuple) else [] if servers is None else [servers]
    by_layer = layers_given(layers)
    if not given and not by_layer:
        raise FedscopeError("there is no server to aggregate by; give --server fedavgm, or --layers head=personal")
    changes = settings_of(settings, or_branch(opened, number))
    patterns = [pattern for pattern, _ in by_layer]
    names = servers_of(given) if given else server_of_rest(opened, number, source, patterns)
    refuse_unasked(opened, number, source, own=not given)
    of_layers = servers_of_layers(by_layer)
    configs = configs_of(opened, number, all_servers(names, of_layers), changes)
    for server, (config, _) in configs.items():
        if is_in_time(config.server):
            refuse_recorded_order(
                opened.info.get("imported"), number, f"{opened.path}@{number}", f"--server {short_name(server)}"
            )
            if not opened.is_foreign:
                warn_user(f"{NO_CHECKPOINTS}; {INSTEAD}")
    request = ReaggregationRequest(
        opened,
        number,
        list(map(str, names)),
        with_layers(opened, number, configs, len(names), of_layers, chosen=bool(given)),
        configs,
        source,
        from_state=from_state,
        align=align,
        normalization=normalization,
    )
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
    lacking = unsaid_scale("the file of a model", opened.layout, settings_of_run(opened.info))
    return single_result(
        Reaggregation, opened.path / "figures", name, request.ready, model_suffixes(list(names)), note=lacking
    )
