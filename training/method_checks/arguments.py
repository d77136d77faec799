"""The check that a method leaves what it is given as it was: others read it afterwards, and a run records it."""

from __future__ import annotations

from ..guards.own_calls import watched, watching_everyone
from ..local.local_training import LocalTask
from ..methods.base import AverageMethod, ClientMethod
from .averages import played
from .clients import tasks_after
from .in_memory import RoundsInMemory
from .subject import Subject

#: after two of which every method keeps what it keeps
ROUNDS = 3


def left_alone(subject: Subject) -> str:
    """Play some rounds, in which every argument of every function is compared with what it was before."""
    with watching_everyone():
        RoundsInMemory.of(subject.federation).play(ROUNDS)
    method = subject.method
    if isinstance(method, ClientMethod) and method.personal:
        tasks = tasks_after(subject, ROUNDS)

        def work(task: LocalTask) -> object:
            return watched(method, method.personalise, task, task.state)

        list(subject.engine.each(work, tasks))
    if isinstance(method, AverageMethod):
        watched(method, method.recover, ROUNDS, played(subject, ROUNDS).history)
    return f"what its functions are given is as before, bit for bit, in {ROUNDS} rounds"
