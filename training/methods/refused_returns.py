"""Refusals of what servers and averages of one's own return, and of what clients are sent: another thing than the loop
of rounds goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...checkpoints import Layout, Weights
from ..guards.returned_arrays import (
    ReturnedError,
    changed,
    difference,
    forms,
    layout_difference,
    refuse_buffers,
    refuse_unwritable,
    refuse_vector,
)
from ..import_string import describe_type
from ..settings.registry import method_name
from .base import Averaged, AverageMethod, ClientMethod, Served, ServerMethod, State

#: how far the sum of weights may be from 1, be they float32: what a round's file is read with
MOST_OFF = 1e-5
#: names in a round's file that are not the server's
_TAKEN = ("sent", "average")


def refuse_begun(method: ServerMethod | ClientMethod, state: Any) -> None:
    """Refuse a first state that a round's file cannot hold.

    Raises:
        ReturnedError: names the method and what it returned.
    """
    refuse_unwritable(f"{method_name(method)}.{'init' if isinstance(method, ServerMethod) else 'begin'}", state)


def refuse_weights(server: ServerMethod, p: Any, count: int) -> None:
    """Refuse weights of a cohort that are not those of a mean.

    Raises:
        ReturnedError: no array [C] of finite numbers, none of them negative and their sum 1.
    """
    _refuse_p(f"{method_name(server)}.weights returned p", p, count, f"for {count} clients")


def _refuse_p(what: str, p: Any, count: int, where: str, more: str = "") -> None:
    each = f"return one finite weight for each of the {count} clients{more}"
    if not isinstance(p, np.ndarray) or p.dtype.kind not in "fiub":
        raise ReturnedError(f"{what} as {describe_type(p)} {where}; {each}, in a NumPy array of numbers")
    if p.shape != (count,) or not np.isfinite(p).all():
        held = f"of shape {list(p.shape)}" if p.shape != (count,) else "with NaN or infinity"
        raise ReturnedError(f"{what} {held} {where}; {each}")
    if (p < 0).any():
        raise ReturnedError(f"{what} with {p.min():g} {where}; no weight is negative, and their sum is 1")
    total = float(p.sum(dtype=np.float64))
    if abs(total - 1) > MOST_OFF:
        remedy = "divide them by it" if total else "give at least one client another weight than 0"
        raise ReturnedError(
            f"{what} of sum {total:g} {where}, and the weights of a mean have the sum 1; {remedy}{more}"
        )


def refuse_served(server: ServerMethod, served: Any, before: tuple[State, Weights, Weights], round: int) -> None:
    """Refuse what a server's step returned.

    Args:
        before: the state, the model that was sent, and the clients' models.

    Raises:
        ReturnedError: no :class:`Served`; parameters of another length or type, or NaN of finite clients; weights that
            are not those of a mean; a state that cannot be written, or that changes its form.
    """
    state, start, clients = before
    place, size = f"{method_name(server)}.step", start.layout.size
    if not isinstance(served, Served):
        raise ReturnedError(
            f"{place} returned {describe_type(served)} in round {round}; return Served(parameters, state)"
        )
    refuse_vector(f"{place} returned parameters", served.parameters, start.layout, round)
    if not np.isfinite(served.parameters).all() and _all_finite([start.parameters, *clients.parameters], state):
        bad = int(np.count_nonzero(~np.isfinite(served.parameters)))
        raise ReturnedError(
            f"{place} made {bad:,} of {size:,} parameters NaN or infinite in round {round}, though the model that was "
            "sent and all clients are finite; look for a division by 0 or a step that is too long"
        )
    if served.p is not None:
        _refuse_p(f"{place} returned p", served.p, len(clients), f"in round {round}", ", or leave p out")
    refuse_unwritable(place, served.state)
    if named := [name for name in served.state if name in _TAKEN]:
        raise ReturnedError(
            f"{place} keeps a state named {named[0]!r}, which is taken in a round's file; give it another name", "state"
        )
    if forms(served.state) != forms(state):
        _refuse_changed(place, state, served.state, round, server.init(start.parameters), len(clients))


def rounded_ahead(server: ServerMethod, ahead: Any, layout: Layout, round: int) -> np.ndarray:
    """Return what a server sends in place of a model, in the model's type: of a wider one, as float64, rounded once.

    Raises:
        ReturnedError: no vector of all parameters; another type, which has lost digits.
    """
    if isinstance(ahead, np.ndarray) and ahead.dtype.kind == "f" and ahead.dtype.itemsize > layout.dtype.itemsize:
        ahead = ahead.astype(layout.dtype)
    refuse_vector(f"{method_name(server)}.look_ahead returned w", ahead, layout, round, kind="w.dtype")
    found: np.ndarray = ahead
    return found


def refuse_shared(method: ClientMethod, sent: State, shared: Any, round: int) -> None:
    """Refuse what is to be sent with the model in the next round.

    Raises:
        ReturnedError: what cannot be written; other names or shapes than before.
    """
    place = f"{method_name(method)}.share"
    refuse_unwritable(place, shared)
    if sent and forms(sent) != forms(shared):
        raise ReturnedError(changed(place, "what is sent", sent, shared, round), "state")


def refuse_averaged(method: AverageMethod, found: Any, state: Mapping[str, Any], layout: Layout, round: int) -> None:
    """Refuse what an average over rounds returned.

    Args:
        state: that it was given.

    Raises:
        ReturnedError: no :class:`Averaged`; a model of another layout; a state that cannot be written, or that changes
            its form.
    """
    place = f"{method_name(method)}.average"
    if not isinstance(found, Averaged):
        raise ReturnedError(
            f"{place} returned {describe_type(found)} in round {round}; return Averaged(weights, state), or "
            "Averaged(None, state) before there is an average"
        )
    weights = found.weights
    if weights is not None and not isinstance(weights, Weights):
        raise ReturnedError(
            f"{place} returned the weights as {describe_type(weights)} in round {round}; return "
            "Weights(global_.layout, parameters, global_.buffers), or None before there is an average"
        )
    if weights is not None:
        if weights.layout != layout:
            raise ReturnedError(
                f"{place} returned a model of another layout in round {round} "
                f"({layout_difference(weights.layout, layout)}); return global_'s"
            )
        kind = "global_.layout.dtype"
        refuse_vector(f"{place} returned weights", weights.parameters, layout, round, kind=kind)
        refuse_buffers(f"{place} returned weights", weights, f"in round {round}", "global_.buffers")
    refuse_unwritable(place, found.state, layout=layout)
    if "clients_mean" in found.state:
        raise ReturnedError(
            f"{place} keeps a state named 'clients_mean', which is taken in a round's file; give it another name",
            "state",
        )
    if state and forms(state) != forms(found.state):
        raise ReturnedError(changed(place, "the state", state, found.state, round), "state")


def refuse_recovered(method: AverageMethod, found: Any, state: State, layout: Layout, round: int) -> None:
    """Refuse what an average over rounds made of the state that its ``recover`` gave.

    Raises:
        ReturnedError: as :func:`refuse_averaged`; a state of another form than it keeps itself.
    """
    refuse_unwritable(f"{method_name(method)}.recover", state, layout=layout)
    refuse_averaged(method, found, {}, layout, round)
    if state and forms(state) != forms(found.state):
        raise ReturnedError(
            f"{method_name(method)}.recover({round - 1}) gives a state of another form than average() keeps "
            f"({difference(forms(state), forms(found.state))}); return from recover() what average() keeps, or let "
            "AverageMethod.recover do it",
            "state",
        )


def _refuse_changed(place: str, before: State, after: State, round: int, begun: State, cohort: int) -> None:
    """Refuse a state of another form than before, unless the one before was the first, or only sizes that are the
    cohort's differ: a branch may have another."""
    if forms(before) == forms(begun):
        lost = [name for name in before if name not in after or np.shape(before[name]) != np.shape(after[name])]
        if not lost:
            return
    elif before.keys() == after.keys() and all(_same_but_cohort(before[name], after[name], cohort) for name in after):
        return
    raise ReturnedError(changed(place, "the state", before, after, round), "state")


def _same_but_cohort(before: Any, after: Any, cohort: int) -> bool:
    one, other = np.shape(before), np.shape(after)
    return len(one) == len(other) and all(a == b or b == cohort for a, b in zip(one, other, strict=True))


def _all_finite(rows: Sequence[np.ndarray], state: State) -> bool:
    known = [np.asarray(value) for value in state.values()]
    return all(bool(np.isfinite(values).all()) for values in [*rows, *known])
