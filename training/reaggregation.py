"""A recorded round aggregated again, by any server method, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..checkpoints import FedscopeError, Round, Run, Weights, recorded_clients
from ..decomposition.cohort.divergence import diverged_rows
from ..landscape import Evaluator, Samples
from ..landscape.evaluation.compute import CPU, Compute
from .building import module_of, partition_of
from .config import Config, merge
from .lineage import began, config_at
from .methods import Cohort, State
from .one_round import mean_buffers
from .reaggregation_result import ModelRow, Reaggregation
from .registry import method_name
from .run_state import RunMemory


@dataclass(frozen=True, eq=False)
class Reaggregated:
    """What a server method makes of a recorded round.

    Attributes:
        server: the method's name; settings: all of them, resolved.
        state: what it began with: ``none`` where it keeps nothing between rounds, ``fresh`` as in its first round, or
            ``recorded`` after the round before.
        weights: the model [P]; buffers are averaged with p, as in training.
        diverged: the clients of the round, by their ids, with a parameter or a buffer that is not finite.
    """

    server: str
    settings: dict[str, Any]
    state: Literal["none", "fresh", "recorded"]
    weights: Weights
    diverged: tuple[int, ...] = ()


def reaggregating_config(run: Run, number: int, server: str, settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration that made a round, with another server method and no average over rounds.

    As in a branch, the run's own method keeps the run's settings, and another one begins with its paper's; what all
    servers have (``weighting``) stays.

    Raises:
        FedscopeError: a run of another program; an unknown method or setting; a method that does not go with the
            clients that the round was trained with, with the reason.
    """
    run.require("config.toml")
    before = config_at(run, number).tables()
    chosen = {"server": {"method": server, **dict(settings or {})}, "average": {"method": "none"}}
    return Config.read(merge(before, chosen))


def reaggregate(run: Run, number: int, configs: Sequence[Config], *, from_state: bool = False) -> list[Reaggregated]:
    """Let the servers of some configurations step from the recorded clients of a round, each on its own.

    w⁺ and the buffers as the round loop makes them: ``server.step(state, start, clients, cohort)`` in its own
    arithmetic, so that the run's own server, begun with the recorded state, gives the recorded ``global`` bit for bit.
    No server method of this package reads what clients send beside their models. How far each client could have gone
    (FedNova's a_i) follows from its recorded number of steps. The average over rounds is left out.

    Args:
        configs: see :func:`reaggregating_config`.
        from_state: begin with the state that the run's server had after the round before, instead of anew from the
            round's ``start``. Nothing else is possible for a method that keeps no state, and nothing is needed.

    Raises:
        FedscopeError: a round without its clients or ``start`` (says which have them), or of a single client; a state
            that is another method's, or was not recorded.
    """
    round_ = recorded_clients(run, number, start=False)
    if "start" not in round_.models:
        raise FedscopeError(
            f"{run.path}@{number} recorded its clients, but not the model they were sent (start), from which servers "
            "step; give another round, or train with record.globals = 'all'"
        )
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{run.path}@{number} has a cohort of one, so there is nothing to aggregate; train with more "
            "clients a round (--clients, --participation)"
        )
    start = round_.read("start")
    begun = [_begin(run, number, config, start, from_state) for config in configs]  # refused before clients are read
    clients = round_.clients()
    diverged = tuple(int(k) for k in round_.client_ids[diverged_rows(clients)])
    made = []
    for config, (state, kind) in zip(configs, begun, strict=True):
        cohort = recorded_cohort(run, round_, config)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of clients that diverged, who are named
            served = config.server.step(state, start, clients, cohort)
            weights = Weights(clients.layout, served.parameters, mean_buffers(clients, cohort))
        table = config.tables()["server"]
        made.append(Reaggregated(table.pop("method"), table, kind, weights, diverged))
    return made


def measure_servers(
    run: Run,
    number: int,
    asked: Sequence[tuple[Config, str]],
    samples: Samples,
    *,
    from_state: bool = False,
    compute: Compute = CPU,
    attrs: Mapping[str, Any] | None = None,
) -> Reaggregation:
    """The recorded model of a round, plain FMA and what other servers make of it, on samples.

    Args:
        asked: configurations, see :func:`reaggregating_config`, and what they are called.
        attrs: provenance of the result.

    Raises:
        FedscopeError: as :func:`reaggregate`.
    """
    plain = reaggregating_config(run, number, "fma")
    every = [*asked] if any(config.server == plain.server for config, _ in asked) else [(plain, "fma"), *asked]
    made = reaggregate(run, number, [config for config, _ in every], from_state=from_state)
    recorded = RunMemory(run).read(number, "global")  # record.globals may leave it out
    models = [one.weights for one in made]
    about: list[tuple[str, str, str]] = [
        (label, one.server, one.state) for (_, label), one in zip(every, made, strict=True)
    ]
    if recorded is not None:
        models, about = [recorded, *models], [("recorded", "", ""), *about]
    losses, errors = Evaluator(module_of(run), samples, compute=compute).models(models)
    rows = tuple(
        ModelRow(*names, float(loss), float(error), *compared(model, recorded))
        for names, model, loss, error in zip(about, models, losses, errors, strict=True)
    )
    own = {one.server: one.weights for one in made[len(made) - len(asked) :]}
    return Reaggregation(rows, {**(attrs or {}), "diverged": list(made[0].diverged)}, own)


def compared(weights: Weights, recorded: Weights | None) -> tuple[float | None, bool | None]:
    """The distance to the recorded model, and whether it is the same bit for bit."""
    if recorded is None:
        return None, None
    with np.errstate(over="ignore", invalid="ignore"):  # of models that diverged
        moved = np.subtract(weights.parameters, recorded.parameters, dtype=np.float64)
    ours, theirs = weights.arrays(), recorded.arrays()
    same = all(ours[name].tobytes() == theirs[name].tobytes() for name in weights.layout.names)
    return float(np.linalg.norm(moved)), same


def recorded_cohort(run: Run, round_: Round, config: Config) -> Cohort:
    """What a server of ``config`` would have seen of a recorded round besides the models.

    Raises:
        FedscopeError: the run has no partition.
    """
    before = config_at(run, round_.number)
    lr = before.average.explore_pace(round_.number, before.client.pace(round_.number), before.client).lr
    return Cohort(
        round=round_.number,
        client_ids=round_.client_ids,
        samples=round_.client_samples,
        steps=round_.client_steps,
        p=config.server.weights(round_.client_samples),
        clients=before.data.clients,
        lr=lr,
        reach=_reach(round_.client_steps, lr, before),
        label_counts=partition_of(run).label_counts[round_.client_ids],
    )


def _reach(steps: np.ndarray, lr: float, before: Config) -> np.ndarray:
    """Σ_k η (1 − β^k)/(1 − β) over each client's steps, [C], added up in the order in which local training does.

    NaN where the rate changes inside a round, which the record does not tell; servers that need it refuse such clients.
    """
    if before.client.changing_rate:
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
    fresh, name = config.server.init(start.parameters), method_name(config.server)
    if not fresh:
        return fresh, "none"
    own = method_name(config_at(run, number).server)
    if not from_state:
        return fresh, "fresh"
    if name != own:
        raise FedscopeError(
            f"--from-state: round {number} of {run.path} was made with --server {own}, so there is no state of {name} "
            f"({config.server.about.keeps}); leave --from-state out, and {name} starts anew"
        )
    if number == began(run, "server", number) + 1:
        return fresh, "fresh"
    kept = RunMemory(run).kept(number - 1).server
    if missing := sorted(fresh.keys() - kept.keys()):
        raise FedscopeError(
            f"--from-state: what {name} kept after round {number - 1} of {run.path} ({', '.join(missing)}) was not "
            f"recorded, because record.globals leaves that round out; leave --from-state out, and {name} starts anew"
        )
    return kept, "recorded"
