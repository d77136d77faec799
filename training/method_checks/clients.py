"""Checks of a client method: the order in which clients are trained, their random numbers, several trained at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...checkpoints import Weights
from ..local.engine import FEWEST, Engine, Trained
from ..local.local_training import LocalTask
from ..local.own_randomness import CLIENT_SEED
from ..local.vectorized_model import why_not_vectorised
from .in_memory import RoundsInMemory
from .outcome import CheckFailed, NotAsked, apart, digits, length, share
from .subject import Subject

#: of the norm: float32 products are added up in another order
TOGETHER = 1e-5


def tasks_after(subject: Subject, rounds: int) -> list[LocalTask]:
    """Return the tasks of all clients after some rounds, in which they have come to keep something."""
    federation = subject.federation
    played = RoundsInMemory.of(federation)
    played.play(rounds)
    position = played.position
    assert position.sent is not None, "a round was played"
    ids = np.arange(federation.config.data.clients)
    return federation.tasks(rounds + 1, ids, position.start, position.sent, position.last, played)


def order(subject: Subject) -> str:
    """The same clients, trained in another order."""
    tasks = tasks_after(subject, 2)
    p = subject.federation.weights([task.client for task in tasks])
    one = _train(subject.engine, subject, tasks, p)
    other = _train(subject.engine, subject, tasks[::-1], p[::-1])
    back = slice(None, None, -1)
    different = np.flatnonzero((one.clients.parameters != other.clients.parameters[back]).any(axis=1))
    if len(different):
        off = share(apart(one.clients.parameters, other.clients.parameters[back]), length(one.clients.parameters))
        raise CheckFailed(
            f"trained in another order, {len(different)} of {len(tasks)} clients come back with another model, by "
            f"{digits(off)} of their norm; train(task) must depend on the task alone"
        )
    for name, rows in one.states.items():
        if _values(rows).tobytes() != np.ascontiguousarray(_values(other.states[name])[back]).tobytes():
            raise CheckFailed(f"trained in another order, clients keep another {name}")
    sums = [share(apart(value, other.message[name]), length(value)) for name, value in one.message.items()]
    if sums and max(sums) > TOGETHER:
        raise CheckFailed(f"trained in another order, the mean message is off by {digits(max(sums))} of its norm")
    return f"{len(tasks)} clients trained in the reverse order come back the same, bit for bit"


def draws(subject: Subject) -> str:
    """One client, trained in one batch of all its samples, whose order is then none, with another seed, round, number
    and draw: noise that all but the draw change is the same in all replays of a round."""
    (task, *_) = tasks_after(subject, 1)
    method = replace(subject.federation.config.client, batch=max(1, len(task.indices)))

    def trained(**changes: Any) -> np.ndarray:
        found = subject.engine.train(method, [replace(task, augment="none", **changes)], np.ones(1))
        return np.asarray(found.clients.parameters - task.start.parameters)

    one = trained()
    off = {name: _off(one, trained(**{name: getattr(task, name) + 1})) for name in ("seed", "round", "client", "draw")}
    others = min(off["seed"], off["round"], off["client"])
    if not others > TOGETHER:
        raise NotAsked("it draws no random numbers of its own by seed, round and client")
    if not off["draw"] > TOGETHER:
        raise CheckFailed(
            f"another seed, round or client moves a client's update by {digits(others)} of its norm or more, another "
            f"draw by {digits(off['draw'])}: replays (decompose --draws local:R) would all meet the same noise; draw "
            f"from {CLIENT_SEED}"
        )
    return f"random numbers of its own move a client's update by {digits(off['draw'])} of its norm from draw to draw"


def vectorised(subject: Subject) -> str:
    """All clients trained in one pass, and one by one."""
    if not subject.type.vectorised:
        raise NotAsked("it does not say vectorised = True: clients are trained one by one")
    if why := why_not_vectorised(subject.engine.module, subject.data.samples("train")):
        raise NotAsked(f"the model cannot be vectorised: {why}")
    tasks = tasks_after(subject, 2)
    tasks = tasks[: max(FEWEST, len(tasks) // FEWEST * FEWEST)]
    p = subject.federation.weights([task.client for task in tasks])
    alone = _train(subject.engine, subject, tasks, p)
    together = _train(replace(subject.engine, kind="cohort"), subject, tasks, p)
    found = {"models": _off(alone.clients.parameters, together.clients.parameters)}
    if alone.states.keys() != together.states.keys() or alone.message.keys() != together.message.keys():
        raise CheckFailed("trained in one pass, clients keep or send something else than one by one")
    found |= {
        f"state {name}": _off(_values(rows), _values(together.states[name])) for name, rows in alone.states.items()
    }
    found |= {f"message {name}": _off(value, together.message[name]) for name, value in alone.message.items()}
    numbers = ("steps", "samples", "reach", "loss")
    found |= {name: _off(getattr(alone, name), getattr(together, name)) for name in numbers}
    worst = max(found, key=lambda name: found[name])
    said = f"{len(tasks)} clients in one pass: {worst} off by {digits(found[worst])} of the norm from one by one"
    if not found[worst] <= TOGETHER:
        raise CheckFailed(f"{said}, more than {digits(TOGETHER)}; write train(task) for rows, or leave vectorised out")
    return said


def _train(engine: Engine, subject: Subject, tasks: Sequence[LocalTask], p: np.ndarray) -> Trained:
    return engine.train(subject.federation.config.client, tasks, p)


def _values(rows: Any) -> np.ndarray:
    return np.ascontiguousarray(rows.parameters if isinstance(rows, Weights) else rows)


def _off(one: Any, other: Any) -> float:
    if np.shape(one) != np.shape(other):
        return float("inf")
    return share(apart(one, other), length(one))
