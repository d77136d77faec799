"""What a server is given of a recorded round besides the models: its cohort, and the state that it begins with."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...checkpoints import FedscopeError, Round, Run, Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.runs.run import lacking_words
from ...training.build import partition_of
from ...training.config.config import Config
from ...training.guards.own_calls import ask
from ...training.guards.returned_arrays import is_own_method
from ...training.loop.run_history import config_at, method_start
from ...training.loop.state import RunMemory
from ...training.methods.base import Cohort, State
from ...training.settings.registry import method_name

#: whose state a server begins with: it keeps none, as in its first round, or as the run's own had it
Begun = Literal["none", "fresh", "recorded"]


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
    partition = partition_of(run)
    held = np.array([len(partition.clients[int(k)]) for k in round_.client_ids])  # a client may have used fewer
    return Cohort(
        round=round_.number,
        client_ids=round_.client_ids,
        samples=round_.client_samples,
        steps=round_.client_steps,
        p=ask(config.server, config.server.weights, held),
        clients=before.data.clients,
        lr=lr,
        reach=_reach(round_.client_steps, lr, before),
        label_counts=partition.counts_of(round_.client_ids),
        adapters=settings_of_run(run.info),
        seed=before.run.seed,
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


def begun_state(run: Run, number: int, config: Config, start: Weights, from_state: bool) -> tuple[State, Begun]:
    """A server's state before the round, and whose it is. Raises as
    :func:`~fedscope.decomposition.reaggregation.aggregate.reaggregate`."""
    fresh, name = ask(config.server, config.server.init, start.parameters), method_name(config.server)
    if not fresh and not (from_state and is_own_method(config.server) and _made_by(run, number, name)):
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
    memory = RunMemory(run)
    kept = memory.kept(number - 1).server
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
    # its first state says nothing of what it keeps
    if not kept and not memory.tells_state(number - 1) and not memory.left_nothing("server", number - 1):
        raise FedscopeError(
            f"--from-state: what {name} kept after round {number - 1} of {run.path} was not recorded, because "
            f"record.globals leaves that round out; leave --from-state out, and {name} starts with an empty state"
        )
    return kept, "recorded" if kept else "none"


def _made_by(run: Run, number: int, server: str) -> bool:
    """Check whether a server made a round."""
    return run.config is not None and method_name(config_at(run, number).server) == server
