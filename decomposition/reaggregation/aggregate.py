"""A recorded round aggregated again, by any server method, without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from ...analysis.rounds import larger_cohort
from ...checkpoints import FedscopeError, Round, Run, Weights, recorded_clients, recorded_matrix, refuse_own_starts
from ...checkpoints.models.weights import stack
from ...evaluation.device import CPU, Compute
from ...landscape.alignment.step import Aligning
from ...training.build import config_of, data_of, module_of
from ...training.config.config import Config
from ...training.data.dataset import Dataset
from ...training.data.membership import refuse_outside
from ...training.guards.returned_arrays import is_own_method
from ...training.local.cohort_storage import put_aside
from ...training.local.resources import say_memory
from ...training.loop.federation import mean_buffers
from ...training.loop.server import step_server, validator_of
from ...training.methods.base import Cohort, ServerMethod, State
from ...training.settings.registry import find, method_name, names
from ..draws.divergence import diverged_rows
from .layers import own_versions, step_parts
from .requested_servers import LayerPart
from .server_inputs import Begun, begun_state, recorded_cohort


@dataclass(frozen=True, eq=False)
class Reaggregated:
    """Models that a server method makes of a recorded round.

    Attributes:
        server: the method's name; settings: all of them, resolved.
        state: what it began with: ``none`` where it keeps nothing between rounds, ``fresh`` as in its first round, or
            ``recorded`` after the round before.
        weights: the model [P]; buffers are averaged with p, as in training.
        diverged: the clients of the round, by their ids, with a parameter or a buffer that is not finite.
        outside: those of them that have no part in the model: their weight is 0, and the server counts with weights, or
            the server has not chosen them. Of a server of somebody's own that is known only where its model is finite.
        members: the clients, by their ids, whose mean the model is, where the server chooses among them.
        by_layer: the servers of layers that patterns name, each with its state as above.
        versions: each client's model, where clients keep layers of their own; made when it is called.
        client_ids: of the round.
        weighing: the names of servers that average by weights of their own, BatchNorm's statistics, too.
        chooser: the name of the server that has chosen the members; "" where none has.
    """

    server: str
    settings: dict[str, Any]
    state: Begun
    weights: Weights
    diverged: tuple[int, ...] = ()
    members: tuple[int, ...] | None = None
    by_layer: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[Callable[[], Weights], ...] = ()
    client_ids: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()
    weighing: tuple[str, ...] = ()
    chooser: str = ""


@dataclass(frozen=True)
class EvaluationData:
    """Inputs of an evaluation: the architecture and the data of a run.

    Attributes:
        compute: where.
    """

    module: nn.Module
    dataset: Dataset
    compute: Compute = CPU

    @classmethod
    def of(cls, run: Run) -> EvaluationData:
        """Take what the run itself says. Raises as :func:`fedscope.training.build.data_of`."""
        return cls(module_of(run), data_of(run))


def reaggregate(
    run: Run,
    number: int,
    configs: Sequence[Config],
    *,
    from_state: bool = False,
    measuring: EvaluationData | None = None,
    layers: Sequence[tuple[LayerPart, ...]] = (),
    aligned: Aligning | None = None,
) -> list[Reaggregated]:
    """Let the servers of some configurations step from the recorded clients of a round, each on its own.

    w⁺ and the buffers as the round loop makes them: ``server.step(state, start, clients, cohort)`` in its own
    arithmetic, so that the run's own server, begun with the recorded state, gives the recorded ``global`` bit for bit.
    No server method of this package reads what clients send in addition to their models. How far each client could have
    gone (FedNova's a_i) follows from its recorded number of steps. The average over rounds is left out.

    Clients of more than half a GB stay in the round's file: servers are given blocks of their columns, see
    :func:`fedscope.training.loop.server.step_server`, and one that holds a layer of all says how much that is.

    Args:
        configs: see :func:`~fedscope.decomposition.reaggregation.requested_servers.reaggregating_config`.
        from_state: begin with the state that the run's server had after the round before, instead of anew from the
            round's ``start``. Nothing else is possible for a method that keeps no state, and nothing is needed.
        measuring: for servers that compare models; the run's own by default.
        layers: of each configuration the parts of the model, each with a server of its own, see
            :func:`~fedscope.decomposition.reaggregation.requested_servers.parts_of`; () where it aggregates the whole.
        aligned: brings the clients' units into the order of ``start``'s before, where it was recorded, else of the
            first client's.

    Raises:
        FedscopeError: a round without its clients or ``start`` (says which have them), or of a single client; a state
            that is another method's, or was not recorded; a server that holds more than there is memory.
    """
    round_ = recorded_clients(run, number, start=False)
    parts = layers or [()] * len(configs)
    used = [one for config, own in zip(configs, parts, strict=True) for one in _configs(config, own)]
    _refuse_without_start(run, round_, [config for config in used if not config.server.forgets_start])
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{run.path}@{number} has a cohort of one, so there is nothing to aggregate; {larger_cohort(run)}"
        )
    # servers that forget it are given one of the clients, and a state only where there is a start
    start = round_.read("start") if "start" in round_.models else round_.client(int(round_.client_ids[0]))
    # refused before clients are read
    begun = [
        [begun_state(run, number, one, start, from_state) for one in _configs(config, own)]
        for config, own in zip(configs, parts, strict=True)
    ]
    count, layout = len(round_.client_ids), round_.layout
    for config in used:
        say_memory(config.server, layout, count, f"all {count} clients of {run.path}@{number}")
    clients = recorded_matrix(round_) if put_aside(count, layout.size, layout.dtype) else round_.clients()
    diverged = tuple(int(k) for k in round_.client_ids[diverged_rows(clients)])
    if aligned is not None:
        rows = [clients.row(k) for k in range(count)]
        clients = stack(aligned([start, *rows])[1:] if "start" in round_.models else aligned(rows))
    made = []
    for config, own, states in zip(configs, parts, begun, strict=True):
        if any(one.server.validates_on is not None for one in _configs(config, own)):
            measuring = measuring or EvaluationData.of(run)
        cohorts = [_cohort(run, round_, one, measuring) for one in _configs(config, own)]
        if own:
            made.append(_by_layer(round_, config, own, states, cohorts, start, clients, diverged))
        else:
            (state,), (cohort,) = states, cohorts
            made.append(_whole(round_, config, state, cohort, start, clients, diverged))
    return made


def _refuse_without_start(run: Run, round_: Round, stepping: Sequence[Config]) -> None:
    """Refuse a round without the one start that servers step from.

    Raises:
        FedscopeError: names the first of these servers, and those that need no start.
    """
    if not stepping:
        return
    server = method_name(stepping[0].server)
    others = ", ".join(name for name in names("servers") if find("servers", name).forgets_start)
    remedy = f"give a server that needs none ({others}), or "
    refuse_own_starts(run, [round_.number], f"reaggregate with {server}", remedy=remedy)
    if "start" not in round_.models:
        remedy = f"a server that needs none: {others}" if run.is_foreign else "train with record.globals = 'all'"
        raise FedscopeError(
            f"{run.path}@{round_.number} recorded its clients, but not the model they were sent (start), from which "
            f"{server} steps; give another round, or {remedy}"
        )


def _cohort(run: Run, round_: Round, config: Config, measuring: EvaluationData | None) -> Cohort:
    """As :func:`~.server_inputs.recorded_cohort`; of a server that compares models with what measures them."""
    cohort = recorded_cohort(run, round_, config)
    if config.server.validates_on is None:
        return cohort
    assert measuring is not None
    if config.server.validates_on[0] == "train" and run.partition is not None:  # of data that were accepted
        refuse_outside(run.partition, len(measuring.dataset.y_train), str(run.path), measuring.dataset.name)
    seed = 0 if run.config is None else config_of(run).run.seed
    at = (measuring.module, run.partition, seed, measuring.compute)
    return replace(cohort, validator=validator_of(config.server, measuring.dataset, *at))


@dataclass(frozen=True)
class _Entered:
    """What a server makes, of which clients have a part or none.

    Attributes:
        server: None where the layers stay each client's, so that everybody's model is measured.
        p: the weights [C] with which it counted.
        names: of its parameters and buffers; None: all.
    """

    server: ServerMethod | None
    p: np.ndarray
    names: frozenset[str] | None = None

    def lets_in(self, k: int, own: Weights, made: Weights) -> bool:
        """Tell whether values of client k that are not finite have a part.

        Args:
            own: the client's model.
            made: by the servers.
        """
        parameters = any(not np.isfinite(own.parameters[where]).all() for where in self._slices(own))
        buffers = any(not np.isfinite(values).all() for name, values in own.buffers.items() if self._has(name))
        if self.server is None or self.p[k] != 0:
            return parameters or buffers
        if not parameters:  # buffers are averaged with p, whatever the server
            return False
        # what the formula of somebody's own makes of a client of weight 0, its model alone can tell
        spoilt = is_own_method(self.server) and any(
            not np.isfinite(made.parameters[where]).all() for where in self._slices(made)
        )
        return self.server.unweighted or spoilt

    def _slices(self, model: Weights) -> list[slice]:
        return [where for name, where in model.layout.slices.items() if self._has(name)]

    def _has(self, name: str) -> bool:
        return self.names is None or name in self.names


def _outside(
    diverged: Sequence[int], round_: Round, entered: Sequence[_Entered], clients: Weights, made: Weights
) -> tuple[int, ...]:
    """Tell which clients that diverged have no part in the model with what is not finite of them."""
    outside = []
    for k in map(int, np.flatnonzero(np.isin(round_.client_ids, diverged))):
        own = clients.row(k)
        if not any(one.lets_in(k, own, made) for one in entered):
            outside.append(int(round_.client_ids[k]))
    return tuple(outside)


def _configs(config: Config, parts: Sequence[LayerPart]) -> list[Config]:
    return [part.config for part in parts] or [config]


def _whole(
    round_: Round,
    config: Config,
    begun: tuple[State, Begun],
    cohort: Cohort,
    start: Weights,
    clients: Weights,
    diverged: tuple[int, ...],
) -> Reaggregated:
    """Let one server step from whole models."""
    state, kind = begun
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of clients that diverged, who are named
        served = step_server(config.server, state, start, clients, cohort)
        weights = Weights(clients.layout, served.parameters, mean_buffers(clients, cohort, served))
    table = config.tables()["server"]
    chosen = served.p is not None and config.server.validates_on is not None
    members = None if served.p is None or not chosen else tuple(map(int, round_.client_ids[np.flatnonzero(served.p)]))
    whole = _Entered(config.server, cohort.p if served.p is None else served.p)
    outside = _outside(diverged, round_, [whole], clients, weights)
    weighing = () if served.p is None else (method_name(config.server),)
    name, chooser = table.pop("method"), method_name(config.server) if chosen else ""
    return Reaggregated(
        name, table, kind, weights, diverged, members, outside=outside, weighing=weighing, chooser=chooser
    )


def _by_layer(
    round_: Round,
    config: Config,
    parts: Sequence[LayerPart],
    states: Sequence[tuple[State, Begun]],
    cohorts: Sequence[Cohort],
    start: Weights,
    clients: Weights,
    diverged: tuple[int, ...],
) -> Reaggregated:
    """Let every part's server step from its layers."""
    steps = [(part, state, cohort) for part, (state, _), cohort in zip(parts, states, cohorts, strict=True)]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # as of whole models
        weights, own_p = step_parts(steps, start, clients)
    entered = [
        _Entered(None if part.personal else part.config.server, cohort.p if p is None else p, part.names)
        for part, cohort, p in zip(parts, cohorts, own_p, strict=True)
    ]
    # whole numbers are one client's, so no sentence on averages is about them
    averaged = {entry.name for entry in clients.layout.buffers if clients.buffers[entry.name].dtype.kind == "f"}
    own = [(part, p) for part, p in zip(parts, own_p, strict=True) if p is not None]
    weighing = [method_name(part.config.server) for part, _ in own if part.names & averaged]
    # one that chooses among clients looks at whole models, and so has all layers
    chosen = next((one for one in own if one[0].config.server.validates_on is not None), None)
    kinds = {part.pattern: kind for part, (_, kind) in zip(parts, states, strict=True)}
    table = config.tables()["server"]
    return Reaggregated(
        table.pop("method"),
        table,
        kinds.get("", "none"),
        weights,
        diverged,
        members=None if chosen is None else tuple(map(int, round_.client_ids[np.flatnonzero(chosen[1])])),
        by_layer={
            method_name(part.config.server): kinds[part.pattern] for part in parts if part.pattern and not part.personal
        },
        versions=own_versions(weights, clients, parts),
        client_ids=tuple(map(int, round_.client_ids)),
        outside=_outside(diverged, round_, entered, clients, weights),
        weighing=tuple(dict.fromkeys(weighing)),
        chooser="" if chosen is None else method_name(chosen[0].config.server),
    )
