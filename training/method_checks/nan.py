"""The check that what is not finite is not averaged away: it must be seen where it came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ...checkpoints import FedscopeError, Weights
from ..methods.average_formula import members_of
from ..methods.base import AverageMethod, ServerMethod
from .averages import played
from .clients import tasks_after
from .outcome import CheckFailed, NotAsked
from .subject import Subject
from .synthetic import CLIENTS, made_up


def not_swallowed(subject: Subject) -> str:
    """Give NaN to one client, or in one round, and see what comes out."""
    return {"server": _of_server, "client": _of_client, "average": _of_average}[subject.kind](subject)


def _of_server(subject: Subject) -> str:
    server: ServerMethod = subject.method
    step = made_up(server, subject.federation.facts.layout)
    rows = step.clients.parameters.copy()
    rows[CLIENTS // 2] = np.nan
    try:
        with np.errstate(all="ignore"):
            served = replace(step, clients=Weights(step.start.layout, rows, {})).served(server)
    except FedscopeError as error:
        return f"a client that is NaN is refused: {error}"
    bad = int(np.count_nonzero(~np.isfinite(served.parameters)))
    if bad:
        return f"a client that is NaN makes {bad:,} of {served.parameters.size:,} parameters NaN"
    if server.validates_on is not None:
        return "a client that is NaN is not chosen: the server measures models before it takes them"
    raise CheckFailed(
        "a client that is NaN leaves a finite model, so that nobody learns of it; let NaN through, or raise "
        "FedscopeError with the client's id"
    )


def _of_client(subject: Subject) -> str:
    federation = subject.federation
    if not isinstance(federation.x, torch.Tensor) or not federation.x.is_floating_point():
        raise NotAsked("samples are no floating-point numbers")
    tasks = tasks_after(subject, 2)
    x = federation.x.clone()
    x[torch.from_numpy(np.asarray(tasks[0].indices))] = torch.nan
    tasks = [replace(task, x=x) for task in tasks[:2]]
    try:
        trained = subject.engine.train(federation.config.client, tasks, np.array([0.5, 0.5]))
    except FedscopeError as error:
        return f"samples that are NaN are refused: {error}"
    loss, finite = float(trained.loss[0]), bool(np.isfinite(trained.clients.parameters[0]).all())
    if np.isfinite(loss) and finite:
        raise CheckFailed(
            f"a client whose samples are NaN returns a finite model and the loss {loss:.3g}, so that nobody learns of "
            "it; return the loss as it is"
        )
    if not np.isfinite(trained.clients.parameters[1]).all():
        raise CheckFailed(
            f"client {tasks[1].client} is not finite after client {tasks[0].client} had samples that are NaN"
        )
    return f"a client whose samples are NaN returns the loss {loss:g}, and the next one is finite"


def _of_average(subject: Subject) -> str:
    method: AverageMethod = subject.method
    rounds = subject.config().run.rounds
    seen = 0
    for bad in range(1, rounds + 1):
        with np.errstate(all="ignore"):
            outcomes = played(subject, rounds, spoilt=bad).averaged
        for round in range(bad, rounds + 1):
            weights = outcomes[round]
            members = members_of(method, round)
            concerned = bad in members if members else round == bad
            if weights is None or not concerned:
                continue
            seen += 1
            if np.isfinite(weights.parameters).all():
                raise CheckFailed(
                    f"the global model of round {bad} is NaN, and the average of round {round} is finite, so that "
                    "nobody learns of it; let NaN through"
                )
    if not seen:
        raise NotAsked("there is no average in these rounds")
    return f"a global model that is NaN makes the average NaN in {seen} of {seen} cases"
