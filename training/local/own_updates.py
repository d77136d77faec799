"""What client methods of one's own return, looked at before a round takes it in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.io.errors import list_few
from ..guards.returned_arrays import (
    ReturnedError,
    difference,
    forms,
    is_own_method,
    layout_difference,
    refuse_buffers,
    refuse_unwritable,
    refuse_vector,
)
from ..import_string import describe_type
from ..settings.registry import method_name
from .local_training import LocalTask, LocalUpdate
from .optimisers import PREFIX

if TYPE_CHECKING:
    from ..methods.base import ClientMethod


def refused_updates(
    method: ClientMethod, tasks: Sequence[LocalTask], updates: Iterable[tuple[int, LocalUpdate]]
) -> Iterable[tuple[int, LocalUpdate]]:
    """Return updates with the places of their tasks; those of somebody's own method are looked at as they come.

    Raises:
        FedscopeError: on going through them, what :func:`refuse_update` and :func:`refuse_unlike` refuse.
    """
    return _looked_at(method, tasks, updates) if is_own_method(method) else updates


def _looked_at(
    method: ClientMethod, tasks: Sequence[LocalTask], updates: Iterable[tuple[int, LocalUpdate]]
) -> Iterable[tuple[int, LocalUpdate]]:
    first = None
    for k, update in updates:
        task = tasks[k]
        refuse_update(method, update, task.start.layout, task.round, task.client)
        first = first or update
        refuse_unlike(method, first, update, task.round)
        yield k, update


def refuse_group(method: ClientMethod, task: LocalTask, update: LocalUpdate) -> LocalUpdate:
    """Return the update of a group of clients.

    Raises:
        FedscopeError: it is none.
    """
    if is_own_method(method):
        refuse_no_update(method, update, task.round, task.client)
    return update


def refuse_update(method: ClientMethod, update: Any, layout: Layout, round: int, client: int) -> None:
    """Refuse what a client's training returned.

    Raises:
        ReturnedError: no ``LocalUpdate``; a model of another layout; messages or states that cannot be written.
    """
    refuse_no_update(method, update, round, client)
    place, where = f"{method_name(method)}.train", f"round {round}, client {client}"
    _refuse_model(place, update.weights, layout, where, "those of local_sgd")
    refuse_vector(f"{place} returned weights", update.weights.parameters, layout, round, f", client {client}")
    for what in ("samples", "steps", "loss", "reach"):
        if np.ndim(getattr(update, what)) != 0:
            raise ReturnedError(
                f"{place} returned {what} of shape {list(np.shape(getattr(update, what)))} ({where}); return a number"
            )
    refuse_unwritable(place, update.message, "message", where)
    refuse_unwritable(place, update.state, "state", where, layout=layout)


def refuse_personal(method: ClientMethod, made: Any, layout: Layout, round: int, client: int) -> None:
    """Refuse what is no model that a client can use, of any type of numbers.

    Raises:
        ReturnedError: names what it is.
    """
    place, where = f"{method_name(method)}.personalise", f"round {round}, client {client}"
    _refuse_model(place, made, layout, where, "a model that the client keeps")
    if np.shape(made.parameters) != (layout.size,):
        raise ReturnedError(
            f"{place} returned weights of shape {list(np.shape(made.parameters))} ({where}), but the model has "
            f"{layout.size:,} parameters; return one vector [{layout.size:,}]"
        )


def _refuse_model(place: str, weights: Any, layout: Layout, where: str, given: str) -> None:
    """Refuse what is no model of a layout, with its buffers. Raises ReturnedError."""
    if not isinstance(weights, Weights):
        raise ReturnedError(
            f"{place} returned the weights as {describe_type(weights)} ({where}); return {given}, or "
            "Weights(task.start.layout, parameters, task.start.buffers)"
        )
    if weights.layout != layout:
        raise ReturnedError(
            f"{place} returned a model of another layout than the one that was sent ({where}: "
            f"{layout_difference(weights.layout, layout)}); return task.start's"
        )
    refuse_buffers(f"{place} returned weights", weights, f"({where})", "task.start.buffers, or the client's own")


def refuse_survey(method: ClientMethod, found: Any, first: Any, task: LocalTask) -> None:
    """Refuse what is no survey, or has another form than that of the cohort's first client: they are averaged.

    Raises:
        ReturnedError: names the client.
    """
    place, where = f"{method_name(method)}.survey", f"round {task.round}, client {task.client}"
    if not isinstance(found, Mapping):
        raise ReturnedError(
            f"{place} returned {describe_type(found)} ({where}); return a dictionary of arrays by name", "state"
        )
    if forms(found) != forms(first):
        raise ReturnedError(
            f"{place} returned arrays of other names or shapes than for the first client "
            f"({where}: {difference(forms(first), forms(found))}); they are averaged over the cohort",
            "state",
        )


def refuse_no_update(method: ClientMethod, update: Any, round: int, client: int) -> None:
    """Refuse what is no ``LocalUpdate``. Raises as :func:`refuse_update`."""
    if not isinstance(update, LocalUpdate):
        raise ReturnedError(
            f"{method_name(method)}.train returned {describe_type(update)} (round {round}, client {client}); return a "
            "LocalUpdate, as local_sgd(task, self) does"
        )


def refuse_sometimes(method: ClientMethod, states: Collection[str], round: int, *, before: bool) -> None:
    """Refuse clients that keep a state in some rounds alone: what is in no file of a round may have been lost.

    Args:
        states: names of what the round's clients keep, an optimiser's among them; before: whether those of the last
            round kept anything.

    Raises:
        ReturnedError: nothing is kept any more, or something that was not.
    """
    own = [name for name in states if not name.startswith(PREFIX)]
    if states if before else not own:
        return
    now, then = (f"a state ({list_few(own, 4)})", "none") if own else ("no state", "one")
    raise ReturnedError(
        f"{method_name(method)}.train returns {now} in round {round}, and {then} in the round before; return the same "
        "names in every round, as task.state has them, with zeros before there is anything to keep",
        "state",
    )


def refuse_unrecorded(method: ClientMethod, states: Collection[str], round: int, run: str = "") -> None:
    """Refuse clients that keep a state after rounds of which no file tells what they kept: they would begin anew.

    Args:
        states: names of what the round's clients keep, an optimiser's among them.
        run: the history's folder, where it is known.

    Raises:
        FedscopeError: they keep something.
    """
    lacks = f"none of the files of {run}" if run else "no file"
    if own := [name for name in states if not name.startswith(PREFIX)]:
        raise FedscopeError(
            f"{method_name(method)}.train keeps a state ({list_few(own, 4)}), and what clients kept up to round "
            f"{round - 1} is in {lacks}, because record.clients leaves it out; train those rounds again with "
            "record.clients = 'all', and go on from that run"
        )


def refuse_unlike(method: ClientMethod, one: LocalUpdate, other: LocalUpdate, round: int) -> None:
    """Refuse two clients of a round whose messages or states have other names or shapes, or of which one keeps a model
    and the other an array: they are stored as one array.

    Raises:
        ReturnedError: names the first difference.
    """
    for what in ("message", "state"):
        first, second = (forms(getattr(update, what)) for update in (one, other))
        if first != second:
            raise ReturnedError(
                f"{method_name(method)}.train returned another {what} for client {other.client} than for client "
                f"{one.client} in round {round} ({difference(first, second)}); names and shapes must be the same for "
                "all clients",
                "state",
            )
    for name, value in one.state.items():
        before, after = _kind(value), _kind(other.state[name])
        if before != after:
            raise ReturnedError(
                f"{method_name(method)}.train keeps {name!r} as {after} for client {other.client} and as {before} for "
                f"client {one.client} in round {round}; keep the same for all clients",
                "state",
            )


def _kind(value: Any) -> str:
    """A model, whose type is that of all clients', or an array, whose type may be another's."""
    return f"a model of {value.parameters.dtype}" if isinstance(value, Weights) else "an array"
