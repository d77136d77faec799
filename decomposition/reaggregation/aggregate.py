"""A recorded round aggregated again, by any server method, without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Round, Run, Weights, recorded_clients, recorded_matrix, refuse_own_starts
from ...checkpoints.io.errors import list_few
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.models.products import Adapters
from ...checkpoints.models.weights import stack
from ...checkpoints.runs.run import lacking_words
from ...evaluation.device import CPU, Compute
from ...evaluation.lazy_models import LazyModels
from ...evaluation.measured_statistics import Measured, MeasuredStatistics
from ...evaluation.samples import Samples
from ...evaluation.tied_parameters import tie_again, tied_names
from ...landscape.alignment.step import Aligning
from ...training.build import config_of, data_of, module_of, partition_of
from ...training.config.config import Config
from ...training.data.dataset import Dataset
from ...training.local.cohort_storage import put_aside
from ...training.local.resources import say_memory
from ...training.loop.federation import mean_buffers
from ...training.loop.run_history import config_at, method_start
from ...training.loop.server import step_server, validator_of
from ...training.loop.state import RunMemory
from ...training.methods.base import Cohort, State
from ...training.own_calls import ask
from ...training.settings.registry import find, method_name, names
from ..adapters.recorded_adapters import adapters_of_run, products_apart
from ..draws.divergence import diverged_rows
from ..matrix.losses import losses_at
from .conflicts import sign_conflict
from .layers import own_versions, step_parts
from .requested_servers import AskedServer, LayerPart, reaggregating_config
from .result import ClientRow, ModelRow, Reaggregation


@dataclass(frozen=True, eq=False)
class Reaggregated:
    """Models that a server method makes of a recorded round.

    Attributes:
        server: the method's name; settings: all of them, resolved.
        state: what it began with: ``none`` where it keeps nothing between rounds, ``fresh`` as in its first round, or
            ``recorded`` after the round before.
        weights: the model [P]; buffers are averaged with p, as in training.
        diverged: the clients of the round, by their ids, with a parameter or a buffer that is not finite.
        members: the clients, by their ids, whose mean the model is, where the server chooses among them.
        by_layer: the servers of layers that patterns name, each with its state as above.
        versions: each client's model, where clients keep layers of their own; made when it is called.
        client_ids: of the round.
    """

    server: str
    settings: dict[str, Any]
    state: Literal["none", "fresh", "recorded"]
    weights: Weights
    diverged: tuple[int, ...] = ()
    members: tuple[int, ...] | None = None
    by_layer: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[Callable[[], Weights], ...] = ()
    client_ids: tuple[int, ...] = ()


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
        configs: see :func:`reaggregating_config`.
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
    stepping = [config for config in used if not config.server.forgets_start]
    if stepping:
        which = f"reaggregate with {method_name(stepping[0].server)}"
        others = [name for name in names("servers") if find("servers", name).forgets_start]
        remedy = f"give a server that needs none ({', '.join(others)}), or "
        refuse_own_starts(run, [number], which, remedy=remedy)
    if "start" not in round_.models and stepping:
        remedy = "train with record.globals = 'all'"
        if run.is_foreign:
            others = [name for name in names("servers") if find("servers", name).forgets_start]
            remedy = f"a server that needs none: {', '.join(others)}"
        raise FedscopeError(
            f"{run.path}@{number} recorded its clients, but not the model they were sent (start), from which "
            f"{method_name(stepping[0].server)} steps; give another round, or {remedy}"
        )
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{run.path}@{number} has a cohort of one, so there is nothing to aggregate; {run.larger_cohorts}"
        )
    # servers that forget it are given one of the clients, and a state only where there is a start
    start = round_.read("start") if "start" in round_.models else round_.client(int(round_.client_ids[0]))
    # refused before clients are read
    begun = [
        [_begin(run, number, one, start, from_state) for one in _configs(config, own)]
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
        if own:
            made.append(_by_layer(run, round_, config, own, states, start, clients, diverged))
            continue
        ((state, kind),) = states
        cohort = recorded_cohort(run, round_, config)
        if config.server.validates_on is not None:
            measuring = measuring or EvaluationData.of(run)
            seed = 0 if run.config is None else config_of(run).run.seed
            at = (measuring.module, run.partition, seed, measuring.compute)
            cohort = replace(cohort, validator=validator_of(config.server, measuring.dataset, *at))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of clients that diverged, who are named
            served = step_server(config.server, state, start, clients, cohort)
            weights = Weights(clients.layout, served.parameters, mean_buffers(clients, cohort, served))
        table = config.tables()["server"]
        chosen = served.p is not None and config.server.validates_on is not None
        members = (
            None if served.p is None or not chosen else tuple(map(int, round_.client_ids[np.flatnonzero(served.p)]))
        )
        made.append(Reaggregated(table.pop("method"), table, kind, weights, diverged, members))
    return made


def _configs(config: Config, parts: Sequence[LayerPart]) -> list[Config]:
    return [part.config for part in parts] or [config]


def _by_layer(
    run: Run,
    round_: Round,
    config: Config,
    parts: Sequence[LayerPart],
    states: Sequence[tuple[State, Literal["none", "fresh", "recorded"]]],
    start: Weights,
    clients: Weights,
    diverged: tuple[int, ...],
) -> Reaggregated:
    """Let every part's server step from its layers."""
    steps = [
        (part, state, recorded_cohort(run, round_, part.config)) for part, (state, _) in zip(parts, states, strict=True)
    ]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # as of whole models
        weights = step_parts(steps, start, clients)
    kinds = {part.pattern: kind for part, (_, kind) in zip(parts, states, strict=True)}
    table = config.tables()["server"]
    return Reaggregated(
        table.pop("method"),
        table,
        kinds.get("", "none"),
        weights,
        diverged,
        by_layer={
            method_name(part.config.server): kinds[part.pattern] for part in parts if part.pattern and not part.personal
        },
        versions=own_versions(weights, clients, parts),
        client_ids=tuple(map(int, round_.client_ids)),
    )


def measure_servers(
    run: Run,
    number: int,
    asked: Sequence[AskedServer],
    samples: Samples,
    *,
    measuring: EvaluationData,
    from_state: bool = False,
    attrs: Mapping[str, Any] | None = None,
    measured: MeasuredStatistics | None = None,
    aligned: Aligning | None = None,
) -> Reaggregation:
    """Measure the recorded model of a round, plain FMA and what other servers make of it, on samples.

    Where clients keep layers of their own there is a model a client, and loss and error are their means with 1/C each.

    Args:
        measuring: the architecture, and the data for servers that compare models.
        attrs: provenance of the result.
        measured: measures the running statistics of every model but the recorded one; None: they are averaged.
        aligned: see :func:`reaggregate`.

    Raises:
        FedscopeError: as :func:`reaggregate`.
    """
    plain = reaggregating_config(run, number, "fma")
    there = [k for k, one in enumerate(asked) if one.config.server == plain.server and not one.parts]
    every = [*asked] if there else [AskedServer(plain, "fma"), *asked]
    made = reaggregate(
        run,
        number,
        [one.config for one in every],
        from_state=from_state,
        measuring=measuring,
        layers=[one.parts for one in every],
        aligned=aligned,
    )
    tied = tied_names(measuring.module)
    made = [replace(one, weights=tie_again(one.weights, tied)) for one in made]
    if measured is not None:
        made = [_with_statistics(one, measured) for one in made]
    recorded, adapters = recorded_global(run, number), adapters_of_run(run)
    # of a recorded model, and of each that was made, those that are measured
    groups: list[Sequence[Callable[[], Weights]]] = [one.versions or [partial(_given, one.weights)] for one in made]
    names = [_names(*both) for both in zip(every, made, strict=True)]
    results: list[Reaggregated | None] = [*made]
    if recorded is not None:
        groups, names = [[partial(_given, recorded)], *groups], [("recorded", "", ""), *names]
        results = [None, *made]
    makers = [model for group in groups for model in group]
    flat = LazyModels(len(makers), lambda i: makers[i]())
    ends = np.cumsum([len(group) for group in groups])
    fma = int(ends[(recorded is not None) + (there[0] if there else 0)]) - 1
    pairs = [(k, fma, 0) for k in range(len(flat))]
    _, means, against = losses_at(
        measuring.module, samples, flat, None, pairs, number=number, compute=measuring.compute
    )
    start = run.round(number).read("start") if "start" in run.round(number).models and adapters is None else None
    rows: list[ModelRow] = []
    own_rows: list[ClientRow] = []
    for about, result, group, end in zip(names, results, groups, ends, strict=True):
        of = slice(int(end) - len(group), int(end))
        loss, error = means.loss[of, 0], means.error[of, 0]
        if result is not None and result.versions:
            ids = result.client_ids
            own_rows += [ClientRow(about[0], *own) for own in zip(ids, loss.tolist(), error.tolist(), strict=True)]
            apart: tuple[Any, ...] = (None, None, len(ids), _stderr(loss), _stderr(error))
            paired = [(each.mean(), _stderr(each)) for each in (against.loss[of], against.error[of])]
            place: tuple[float | None, float | None] = (None, None)
        else:
            model = flat[of.start]
            apart = (*compare(model, recorded, adapters), None, None, None)
            differences = (against.loss, against.loss_stderr), (against.error, against.error_stderr)
            paired = [(mean[of.start], stderr[of.start]) for mean, stderr in differences]
            place = place_by_step(model, start, flat[fma])
        differing = [_number(value) for pair in paired for value in pair]
        rows.append(
            ModelRow(
                *about,
                float(loss.mean()),
                float(error.mean()),
                *apart,
                *[*differing, *place],
            )
        )
    own = {one.server: one.weights for one in made[len(made) - len(asked) :]}
    chosen = {one.server: list(one.members) for one in made if one.members is not None}
    states = {server: kind for one in made for server, kind in one.by_layer.items()}
    kept = {**(attrs or {}), "diverged": list(made[0].diverged)}
    if (conflict := sign_conflict(run.round(number), adapters)) is not None and np.isfinite(conflict):
        kept |= {"sign_conflict": conflict} | ({} if adapters is None else {"conflict_of": "products"})
    more = {**({"members": chosen} if chosen else {}), **({"layer_states": states} if states else {})}
    return Reaggregation(tuple(rows), kept | more, own, tuple(own_rows))


def _names(asked: AskedServer, made: Reaggregated) -> tuple[str, str, str]:
    """Return the model, server and state of a row."""
    based = not asked.parts or not asked.parts[-1].pattern
    return asked.label, made.server if based else "", made.state if based else ""


def _with_statistics(made: Reaggregated, measured: Measured) -> Reaggregated:
    """Return models whose running statistics are measured on each."""

    def again(version: Callable[[], Weights]) -> Weights:
        return measured(version())

    return replace(made, weights=measured(made.weights), versions=tuple(partial(again, one) for one in made.versions))


def _given(model: Weights) -> Weights:
    return model


def _stderr(values: np.ndarray) -> float:
    """Return the standard error of a mean over clients; NaN where a value is not finite."""
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) / np.sqrt(len(values)))


def _number(value: float) -> float | None:
    """Return a mean or its error; None where there is none."""
    return None if np.isnan(value) else float(value)


def recorded_global(run: Run, number: int) -> Weights | None:
    """Return the global model of a round, which ``record.globals`` may have left out of its file, or another
    program."""
    if run.is_foreign:
        round_ = run.round(number)
        return round_.read("global") if "global" in round_.models else None
    return RunMemory(run).read(number, "global")


def compare(
    weights: Weights, recorded: Weights | None, adapters: Adapters | None = None
) -> tuple[float | None, bool | None]:
    """Compute the distance to the recorded model, of adapters between their products, and whether it is the same bit
    for bit."""
    if recorded is None:
        return None, None
    with np.errstate(over="ignore", invalid="ignore"):  # of models that diverged
        moved = np.subtract(weights.parameters, recorded.parameters, dtype=np.float64)
    ours, theirs = weights.arrays(), recorded.arrays()
    same = all(ours[name].tobytes() == theirs[name].tobytes() for name in weights.layout.names)
    far = float(np.linalg.norm(moved)) if adapters is None else products_apart(adapters, weights, recorded)
    return far, same


def place_by_step(model: Weights, start: Weights | None, stepped: Weights) -> tuple[float | None, float | None]:
    """Compute how far a model lies along a step from ``start`` and how far across it, in lengths of the step.

    With d = w − start and u = stepped − start, a = ⟨d, u⟩ / ‖u‖² and ‖d − a u‖ / ‖u‖, in float64. (None, None) without
    a start, where the step has no length, and where a value is not finite.

    >>> from fedscope.checkpoints import Layout, TensorEntry
    >>> layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    >>> start, fma, model = (Weights(layout, np.float32(w), {}) for w in ([1, 1], [3, 1], [2, 4]))
    >>> place_by_step(model, start, fma)
    (0.5, 1.5)
    """
    if start is None:
        return None, None
    origin = start.parameters.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of models that diverged
        step, moved = stepped.parameters - origin, model.parameters - origin
        long = float(step @ step)
        along = float(moved @ step) / long if long else np.nan
        across = float(np.linalg.norm(moved - along * step)) / math.sqrt(long) if long else np.nan
    return (along, across) if math.isfinite(along) and math.isfinite(across) else (None, None)


def recorded_cohort(run: Run, round_: Round, config: Config) -> Cohort:
    """Collect what a server of ``config`` would have seen of a recorded round besides the models.

    Of a run of another program the weights p are the recorded ones, or equal with ``weighting = "uniform"``.

    Raises:
        FedscopeError: the run has no partition.
    """
    if run.is_foreign and run.config is None:
        ids = round_.client_ids
        return Cohort(
            round=round_.number,
            client_ids=ids,
            samples=round_.client_samples if round_.has("client_samples") else np.ones(len(ids), np.int64),
            steps=np.zeros(len(ids), np.int64),
            p=np.full(len(ids), 1 / len(ids)) if config.server.weighting == "uniform" else round_.weights,
            clients=run.info.get("clients", len(ids)),
            adapters=settings_of_run(run.info),
        )
    before = config_at(run, round_.number)
    lr = before.average.explore_pace(round_.number, before.client.pace(round_.number), before.client).lr
    return Cohort(
        round=round_.number,
        client_ids=round_.client_ids,
        samples=round_.client_samples,
        steps=round_.client_steps,
        p=ask(config.server, config.server.weights, round_.client_samples),
        clients=before.data.clients,
        lr=lr,
        reach=_reach(round_.client_steps, lr, before),
        label_counts=partition_of(run).counts_of(round_.client_ids),
    )


def _reach(steps: np.ndarray, lr: float, before: Config) -> np.ndarray:
    """Σ_k η (1 − β^k)/(1 − β) over each client's steps, [C], added up in the order in which local training does.

    NaN where the rate changes inside a round, which the record does not tell, or the optimiser is not SGD; servers that
    need it refuse such clients.
    """
    if before.client.changing_rate or before.client.local_optimiser != "sgd":
        return np.full(len(steps), np.nan)
    velocity, reach = 0.0, [0.0]
    for _ in range(int(steps.max(initial=0))):
        velocity = before.client.momentum * velocity + 1
        reach.append(reach[-1] + lr * velocity)
    far: np.ndarray = np.array(reach)[steps]
    return far


def _begin(
    run: Run, number: int, config: Config, start: Weights, from_state: bool
) -> tuple[State, Literal["none", "fresh", "recorded"]]:
    """A server's state before the round, and whose it is. Raises as :func:`reaggregate`."""
    fresh, name = ask(config.server, config.server.init, start.parameters), method_name(config.server)
    if not fresh:
        return fresh, "none"
    if not from_state:
        return fresh, "fresh"
    if run.is_foreign and run.config is None:
        raise FedscopeError(
            f"--from-state: {run.path} was recorded by {run.info['source']}, which keeps no server's state; leave "
            f"--from-state out, and {name} starts with an empty state"
        )
    own = method_name(config_at(run, number).server)
    if name != own:
        raise FedscopeError(
            f"--from-state: round {number} of {run.path} was made with --server {own}, so there is no state of {name} "
            f"({config.server.about.keeps}); leave --from-state out, and {name} starts with an empty state"
        )
    if number == method_start(run, "server", number) + 1:
        return fresh, "fresh"
    kept = RunMemory(run).kept(number - 1).server
    if number - 1 in run.lacking:
        raise FedscopeError(
            f"--from-state: {run.path} {lacking_words(run)}, so what {name} kept after round {number - 1} is gone; "
            "restore its file from a copy, or leave --from-state out"
        )
    if missing := sorted(fresh.keys() - kept.keys()):
        raise FedscopeError(
            f"--from-state: what {name} kept after round {number - 1} of {run.path} ({list_few(missing)}) was not "
            f"recorded, because record.globals leaves that round out; leave --from-state out, and {name} starts with "
            "an empty state"
        )
    return kept, "recorded"
