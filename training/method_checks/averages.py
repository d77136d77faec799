"""Checks of an average over rounds: that what it says of its members, its beginning and its looks back is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Weights
from ..build import initial_model
from ..guards.own_calls import ask
from ..guards.returned_arrays import is_own_method
from ..methods.average_formula import is_said
from ..methods.base import AverageMethod, History
from ..methods.refused_returns import refuse_averaged
from .outcome import CheckFailed, NotAsked, apart, digits, length, share
from .same_bits import arrays_of
from .subject import Subject

#: of the norm: float32 models are rounded to 6e-8
MEAN = 1e-6


@dataclass(frozen=True)
class Played:
    """An average over rounds' outcomes by round.

    Attributes:
        averaged: None where there was none; states: what it kept.
        farthest: how many rounds it looked back at most, and the first round in which it did.
    """

    globals_: Mapping[int, Weights]
    averaged: Mapping[int, Weights | None]
    states: Mapping[int, Mapping[str, Any]]
    farthest: tuple[int, int]
    history: History


def played(subject: Subject, rounds: int, *, spoilt: int = 0) -> Played:
    """Average made-up ``global``s.

    Args:
        spoilt: the round whose ``global`` is NaN.
    """
    method: AverageMethod = subject.method
    first = initial_model(subject.engine.module)
    draw = np.random.default_rng(3)
    globals_: dict[int, Weights] = {}
    looked = [(0, 0)]
    now = 0

    def row(round: int) -> Weights:
        if not 1 <= round < now:
            raise CheckFailed(f"in round {now} it asks the history for round {round}; there are 1 to {now - 1}")
        looked.append((now - round, now))
        return globals_[round]

    history = History(row, subject.federation.facts)
    state: Mapping[str, Any] = {}
    averaged: dict[int, Weights | None] = {}
    states: dict[int, Mapping[str, Any]] = {}
    for now in range(1, rounds + 1):
        values = first.parameters + draw.normal(scale=0.1, size=first.parameters.shape).astype(first.layout.dtype)
        globals_[now] = Weights(first.layout, np.full_like(values, np.nan) if now == spoilt else values, first.buffers)
        found = ask(method, method.average, state, now, globals_[now], history)
        if is_own_method(method):
            refuse_averaged(method, found, state, first.layout, now)
        state, averaged[now] = found.state, found.weights
        states[now] = state
    now = rounds + 1
    return Played(globals_, averaged, states, max(looked, key=itemgetter(0)), history)


def members(subject: Subject) -> str:
    """``members(round)``: the rounds of which ``averaged`` is the plain mean."""
    method: AverageMethod = subject.method
    if not is_said(method, "members"):
        raise NotAsked("members() is of a class above average(), and counts for no plain mean; define it where it is")
    rounds, worst, counted = subject.config().run.rounds, 0.0, 0
    outcome = played(subject, rounds)
    for round in range(1, rounds + 1):
        named, weights = method.members(round), outcome.averaged[round]
        if not named:
            continue
        if list(named) != sorted(set(named)) or not all(1 <= t <= round for t in named):
            raise CheckFailed(f"members({round}) = {named}: rounds are 1 to {round}, ascending, each once")
        if weights is None:
            raise CheckFailed(f"members({round}) = {named}, but there is no average in that round")
        mean = np.mean([outcome.globals_[t].parameters.astype(np.float64) for t in named], axis=0)
        off = share(apart(weights.parameters, mean), length(mean))
        worst, counted = max(worst, off), counted + 1
        if not off <= MEAN:
            raise CheckFailed(
                f"members({round}) = {named}, but the average is off by {digits(off)} of its norm from the mean of "
                "these; return () where it is no plain mean"
            )
    if not counted:
        raise NotAsked(f"members() is empty: it is no plain mean in {rounds} rounds")
    return f"the average is the mean of members() in {counted} rounds, off by {digits(worst)} of its norm"


def begins(subject: Subject) -> str:
    """``begins()``: nothing that is recorded differs before."""
    method: AverageMethod = subject.method
    first = method.begins()
    without = subject.train({"average": {"method": "none"}})
    rounds = subject.run.rounds
    one, other = (dict(arrays_of(run.path)) for run in (subject.run, without))
    checked = [t for t in rounds if first is None or t < first]
    for t in checked:
        mine, theirs = ({name: v for name, v in of.items() if f"{t:05d}.h5" in name} for of in (one, other))
        if different := sorted(
            n for n in {*mine, *theirs} if n not in mine or n not in theirs or mine[n].tobytes() != theirs[n].tobytes()
        ):
            raise CheckFailed(
                f"begins() = {first}, but round {t} differs from one without an average: {different[0]}; say the first "
                "round that does"
            )
    if first is None:
        return f"begins() is None, and all {len(rounds)} rounds are as without it, bit for bit"
    if not checked:
        return f"begins() = {first}: nothing is said of earlier rounds"
    return f"begins() = {first}, and the {len(checked)} rounds before are as without it, bit for bit"


def looks_back(subject: Subject) -> str:
    """``reaches_back()`` and ``window_size()``: the rounds that are looked at are those that it says."""
    method: AverageMethod = subject.method
    rounds = subject.config().run.rounds
    outcome = played(subject, rounds)
    far, when = outcome.farthest
    held, back = method.window_size(), method.reaches_back()
    if far > max(held, back):
        raise CheckFailed(
            f"in round {when} it looks {far} rounds back, but reaches_back() = {back}; a resumed run would not find "
            "them"
        )
    said = f"it looks {far} rounds back at most; reaches_back() = {back}, window_size() = {held}"
    return said + _recovered(method, outcome, rounds)


def _recovered(method: AverageMethod, outcome: Played, rounds: int) -> str:
    """Say whether a branch goes on with the average of its history."""
    if not outcome.states[rounds]:
        return ""
    try:
        state = ask(method, method.recover, rounds - 1, outcome.history)
    except FedscopeError as error:
        return f"; recover() refuses: {error}"
    again = ask(method, method.average, state, rounds, outcome.globals_[rounds], outcome.history).weights
    weights = outcome.averaged[rounds]
    if weights is None or again is None:
        if (weights is None) != (again is None):
            raise CheckFailed("recover() gives a state from which there is an average where there was none, or none")
        return ""
    off = share(apart(weights.parameters, again.parameters), length(weights.parameters))
    if not off <= MEAN:
        raise CheckFailed(f"recover({rounds - 1}) gives a state whose next average is off by {digits(off)} of its norm")
    return f"; recover() gives the same average, off by {digits(off)}"
