"""Checks of a server's step: of clients who have not moved, of their order, and of one who weighs nothing."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import numpy as np

from ...checkpoints import Weights
from ..loop.server import look_ahead
from ..methods.base import Served
from .outcome import CheckFailed, apart, digits, length, share
from .subject import Subject
from .synthetic import CLIENTS, ServerCall, made_up

#: Of the update's norm. Sums of another order differ by 1e-15 of it in float64 and by 1e-6 in float32; a client that is
#: mistaken for another changes a tenth of it.
BOUND = 1e-5
#: Of the model's norm: float32 numbers are rounded once, to 6e-8 of themselves.
ROUNDING = 2.0**-23


def identical_clients(subject: Subject) -> str:
    """A first step from clients who all are where the model is."""
    server = subject.method
    first = made_up(server, subject.federation.facts.layout, rounds=0)
    rows = np.repeat(first.start.parameters[None], CLIENTS, axis=0)
    served = replace(first, clients=Weights(first.start.layout, rows, {})).served(server)
    made = Weights(first.start.layout, served.parameters, {})
    ahead = look_ahead(server, served.state, made, 1).parameters
    if not (np.isfinite(served.parameters).all() and np.isfinite(ahead).all()):
        raise CheckFailed(
            "clients who all equal the model that was sent give NaN: something is divided by how far they went"
        )
    moved, whole = apart(ahead, first.start.parameters), length(first.start.parameters)
    if moved <= ROUNDING * whole:
        return (
            f"clients who all equal the model leave it where it is (off by {digits(share(moved, whole))} of its norm)"
        )
    return f"clients who all equal the model move it by {digits(share(moved, whole))} of its norm"


def order(subject: Subject) -> str:
    """The same clients in another order."""
    server = subject.method
    step = made_up(server, subject.federation.facts.layout)
    one, other = step.served(server), step.ordered(_mixed()).served(server)
    off = _away(step, one, other)
    name, kept = _worst_state(one, other)
    said = f"another order of the clients changes {digits(off)} of the update"
    if server.ties_by_order:
        return f"{said}; equal candidates go by their order (ties_by_order)"
    if off > _bound(step, one):
        raise CheckFailed(
            f"{said}, more than rounding ({digits(_bound(step, one))}); the order says nothing but the ids'"
        )
    if kept > BOUND:
        raise CheckFailed(
            f"another order of the clients changes {digits(kept)} of the state {name}, more than rounding"
        )
    return said + (f" and {digits(kept)} of the state" if name else "")


def weight_0(subject: Subject) -> str:
    """A client of weight 0 and without samples, and the cohort without it."""
    server = subject.method
    whole = made_up(server, subject.federation.facts.layout)
    place = CLIENTS // 2
    rows = whole.clients.parameters.copy()
    rows[place] = whole.start.parameters + 10 * (rows[place] - whole.start.parameters)
    p, samples, counts = whole.cohort.p.copy(), whole.cohort.samples.copy(), whole.cohort.label_counts.copy()
    p[place] = samples[place] = counts[place] = 0
    p /= p.sum()
    cohort = replace(whole.cohort, p=p, samples=samples, label_counts=counts)
    step = ServerCall(whole.state, whole.start, Weights(whole.start.layout, rows, {}), cohort)
    one = step.served(server)
    other = step.ordered(np.flatnonzero(np.arange(CLIENTS) != place)).served(server)
    off = _away(step, one, other)
    said = f"a client of weight 0, far away, changes {digits(off)} of the update"
    if server.unweighted:
        if off <= _bound(step, one):
            raise CheckFailed(f"{said}, but the class says that clients count alike; leave unweighted out")
        return f"{said}: clients count alike, as the class says (unweighted)"
    if off > _bound(step, one):
        raise CheckFailed(
            f"{said}, more than rounding ({digits(_bound(step, one))}); weigh clients with cohort.p, or say unweighted "
            "= True where the formula counts them alike"
        )
    return said


def _mixed() -> np.ndarray:
    return np.roll(np.arange(CLIENTS)[::-1], 2)


def _away(step: ServerCall, one: Served, other: Served) -> float:
    """How far two outcomes are from each other, as a share of the update."""
    return share(apart(one.parameters, other.parameters), apart(one.parameters, step.start.parameters))


def _bound(step: ServerCall, one: Served) -> float:
    update = apart(one.parameters, step.start.parameters)
    return BOUND + share(ROUNDING * length(one.parameters), update)


def _worst_state(one: Served, other: Served) -> tuple[str, float]:
    """The state that differs most, of those that have no axis of clients, and by what share of its norm; of
    states that hold a NaN none is known."""
    found = {
        name: share(apart(value, other.state[name]), length(value))
        for name, value in one.state.items()
        if CLIENTS not in np.shape(value) and np.asarray(value).dtype.kind in "fiu"
    }
    return max(found.items(), key=lambda item: -1.0 if isnan(item[1]) else item[1]) if found else ("", 0.0)
