"""Checks that the same run is the same, bit for bit: trained again, by other workers, resumed, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...checkpoints import Run
from ..local.own_randomness import SERVER_SEED
from ..loop.federation import Unwatched
from ..loop.train import resume
from .outcome import CheckFailed, apart, digits, length, share
from .subject import Subject
from .synthetic import made_up

#: of a round's file, what depends on how long it took
_TIMED = ("checksums",)


def same_seed(subject: Subject) -> str:
    """Train twice with one seed; take one step of a server twice."""
    if subject.kind == "server":
        _step_twice(subject)
    return compare_runs(subject.run, subject.train(), "trained twice with one seed")


def _step_twice(subject: Subject) -> None:
    """Compare two outcomes of a server's step, which depends on what it is given alone."""
    server = subject.method
    step = made_up(server, subject.federation.facts.layout)
    one, other = step.served(server), step.served(server)
    if one.parameters.tobytes() != other.parameters.tobytes():
        off = share(apart(one.parameters, other.parameters), length(one.parameters))
        raise CheckFailed(
            f"one step, taken twice, gives another model the second time, off by {digits(off)} of its norm; draw from "
            f"{SERVER_SEED}, and keep what lasts in the state that step returns"
        )


def workers(subject: Subject) -> str:
    """Train with one worker and with three."""
    return compare_runs(subject.run, subject.train(workers=3), "trained with 1 and with 3 workers")


class Interrupted(Unwatched):
    """A watcher that presses Ctrl-C in the middle of a round."""

    def __init__(self, round: int) -> None:
        self.at = round

    def client(self, round: int, done: int, of: int) -> None:
        """See :class:`~fedscope.training.loop.federation.Watcher`."""
        if round == self.at and done == min(2, of):
            raise KeyboardInterrupt


def resumed(subject: Subject) -> str:
    """Interrupt a training in the middle of a round, and resume it."""
    config = subject.config()
    at = max(1, (config.run.rounds + 1) // 2)
    before = set(subject.folder.iterdir())
    try:
        subject.train(watcher=Interrupted(at))
    except KeyboardInterrupt:
        pass
    else:
        raise CheckFailed(
            f"the training went on although Ctrl-C was pressed in round {at}: it swallows KeyboardInterrupt"
        )
    (place,) = set(subject.folder.iterdir()) - before
    resume(place, workers=1, code=subject.code(config) or None)
    return compare_runs(subject.run, Run.open(place), f"interrupted in round {at} and resumed")


def replayed(subject: Subject) -> str:
    """Compute the clients of every round again from what is recorded."""
    run = subject.run
    code = subject.code()
    for number in run.rounds:
        recorded = run.round(number).clients()
        again = subject.replay(run, number, code)
        different = [
            int(client)
            for client, one, other in zip(
                run.round(number).client_ids, recorded.parameters, again.parameters, strict=True
            )
            if one.tobytes() != other.tobytes()
        ]
        if different:
            off = share(apart(recorded.parameters, again.parameters), length(recorded.parameters))
            raise CheckFailed(
                f"round {number} replayed gives another model of {len(different)} of {len(recorded)} clients, by "
                f"{digits(off)} of their norm; training must depend on the task alone"
            )
    return f"{len(run.rounds)} rounds replayed give the recorded clients, bit for bit"


def compare_runs(one: Run, other: Run, how: str) -> str:
    """Return how many arrays of two runs are the same.

    Raises:
        CheckFailed: names the first round that differs, what of it, and by how much.
    """
    first, second = (dict(arrays_of(run.path)) for run in (one, other))
    for place in sorted({*first, *second}):
        if place not in first or place not in second:
            raise CheckFailed(f"{how}, only one of both runs has {place}")
        if first[place].tobytes() != second[place].tobytes():
            raise CheckFailed(f"{how}, {place} differs{_how_far(first[place], second[place])}")
    return f"{how}: {len(first)} arrays of {len(one.rounds)} rounds are the same, bit for bit"


def arrays_of(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """All arrays of a run's rounds, with those kept beside them, by file and place."""
    for path in sorted(folder.rglob("*.h5")):
        if path.name == "partition.h5":
            continue
        found: list[tuple[str, np.ndarray]] = []

        def take(name: str, item: Any, found: list[tuple[str, np.ndarray]] = found) -> None:
            if isinstance(item, h5py.Dataset) and name not in _TIMED:
                found.append((name, np.asarray(item[()])))

        with h5py.File(path, "r") as file:
            file.visititems(take)
        yield from ((f"{path.relative_to(folder)}: {name}", values) for name, values in found)


def _how_far(one: np.ndarray, other: np.ndarray) -> str:
    if one.shape != other.shape:
        return f", of shape {list(one.shape)} and {list(other.shape)}"
    if one.dtype.kind not in "fiu":
        return ""
    return f" by {digits(share(apart(one, other), length(one)))} of its norm"
