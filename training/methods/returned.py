"""Refusals of what methods of one's own return: another thing than the loop of rounds goes on with.

fedscope's own methods are not looked at, so that nothing is spent on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.io.errors import list_few
from ..import_string import describe_type
from ..settings.registry import method_name
from .base import Averaged, AverageMethod, ClientMethod, Served, ServerMethod, State

if TYPE_CHECKING:
    from ..local.local_training import LocalUpdate

#: fedscope itself
_ROOT = __name__.partition(".")[0]
#: kinds of numbers that a round's file holds
_KINDS = "biuf"
#: names in a round's file that are not the server's
_TAKEN = ("sent", "average")


class ReturnedError(FedscopeError):
    """A method has returned what the loop of rounds cannot go on with.

    Attributes:
        check: which check of ``fedscope check-method`` is about it.
    """

    def __init__(self, sentence: str, check: str = "plays") -> None:
        super().__init__(sentence)
        self.check = check

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.check)


def is_own(method: object) -> bool:
    """Check whether a method is somebody's own, and not one of fedscope's.

    >>> from fedscope.training.methods.servers.fma import FMA
    >>> is_own(FMA())
    False
    """
    return type(method).__module__.partition(".")[0] != _ROOT


def refuse_begun(method: ServerMethod | ClientMethod, state: Any) -> None:
    """Refuse a first state that a round's file cannot hold.

    Raises:
        ReturnedError: names the method and what it returned.
    """
    _refuse_unwritable(f"{method_name(method)}.{'init' if isinstance(method, ServerMethod) else 'begin'}", state)


def refuse_served(server: ServerMethod, served: Any, before: tuple[State, Weights, Weights], round: int) -> None:
    """Refuse what a server's step returned.

    Args:
        before: the state, the model that was sent, and the clients' models.

    Raises:
        ReturnedError: no :class:`Served`; parameters of another length or type, or NaN of finite clients; a state that
            cannot be written, or that changes its form.
    """
    state, start, clients = before
    place, size = f"{method_name(server)}.step", start.layout.size
    if not isinstance(served, Served):
        raise ReturnedError(
            f"{place} returned {describe_type(served)} in round {round}; return Served(parameters, state)"
        )
    _refuse_vector(f"{place} returned parameters", served.parameters, start.layout, round)
    if not np.isfinite(served.parameters).all() and _all_finite([start.parameters, *clients.parameters], state):
        bad = int(np.count_nonzero(~np.isfinite(served.parameters)))
        raise ReturnedError(
            f"{place} made {bad:,} of {size:,} parameters NaN or infinite in round {round}, though the model that was "
            "sent and all clients are finite; look for a division by 0 or a step that is too long"
        )
    if served.p is not None and (np.shape(served.p) != (len(clients),) or not np.isfinite(served.p).all()):
        raise ReturnedError(
            f"{place} returned p of shape {list(np.shape(served.p))} in round {round}; return one finite weight for "
            f"each of the {len(clients)} clients, or leave p out"
        )
    _refuse_unwritable(place, served.state)
    if named := [name for name in served.state if name in _TAKEN]:
        raise ReturnedError(
            f"{place} keeps a state named {named[0]!r}, which is taken in a round's file; give it another name", "state"
        )
    if _forms(served.state) != _forms(state):
        _refuse_changed(place, state, served.state, round, server.init(start.parameters), len(clients))


def refuse_update(method: ClientMethod, update: Any, layout: Layout, round: int, client: int) -> None:
    """Refuse what a client's training returned.

    Raises:
        ReturnedError: no ``LocalUpdate``; a model of another layout; messages or states that cannot be written.
    """
    refuse_no_update(method, update, round, client)
    place = f"{method_name(method)}.train"
    weights, where = update.weights, f"round {round}, client {client}"
    if not isinstance(weights, Weights):
        raise ReturnedError(
            f"{place} returned the weights as {describe_type(weights)} ({where}); return those of local_sgd, or "
            "Weights(task.start.layout, parameters, task.start.buffers)"
        )
    if weights.layout != layout or weights.buffers.keys() != {entry.name for entry in layout.buffers}:
        raise ReturnedError(
            f"{place} returned a model of another layout than the one that was sent ({where}: "
            f"{weights.layout.size:,} parameters, not {layout.size:,}, or other names); return task.start's"
        )
    _refuse_vector(f"{place} returned weights", weights.parameters, layout, round, f", client {client}")
    for what in ("samples", "steps", "loss", "reach"):
        if np.ndim(getattr(update, what)) != 0:
            raise ReturnedError(
                f"{place} returned {what} of shape {list(np.shape(getattr(update, what)))} ({where}); return a number"
            )
    _refuse_unwritable(place, update.message, "message", where)
    _refuse_unwritable(place, update.state, "state", where, models=True)


def refuse_no_update(method: ClientMethod, update: Any, round: int, client: int) -> None:
    """Refuse what is no ``LocalUpdate``. Raises as :func:`refuse_update`."""
    from ..local.local_training import LocalUpdate

    if not isinstance(update, LocalUpdate):
        raise ReturnedError(
            f"{method_name(method)}.train returned {describe_type(update)} (round {round}, client {client}); return a "
            "LocalUpdate, as local_sgd(task, self) does"
        )


def refuse_unlike(method: ClientMethod, one: LocalUpdate, other: LocalUpdate, round: int) -> None:
    """Refuse two clients of a round whose messages or states have other names or shapes: they are stored as one array.

    Raises:
        ReturnedError: names the first difference.
    """
    for what in ("message", "state"):
        first, second = (_forms(getattr(update, what)) for update in (one, other))
        if first != second:
            raise ReturnedError(
                f"{method_name(method)}.train returned another {what} for client {other.client} than for client "
                f"{one.client} in round {round} ({_difference(first, second)}); names and shapes must be the same for "
                "all clients",
                "state",
            )


def refuse_shared(method: ClientMethod, sent: State, shared: Any, round: int) -> None:
    """Refuse what is to be sent with the model in the next round.

    Raises:
        ReturnedError: what cannot be written; other names or shapes than before.
    """
    place = f"{method_name(method)}.share"
    _refuse_unwritable(place, shared)
    if sent and _forms(sent) != _forms(shared):
        raise ReturnedError(_changed(place, "what is sent", sent, shared, round), "state")


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
                f"{place} returned a model of another layout in round {round} ({weights.layout.size:,} parameters, not "
                f"{layout.size:,}, or other names); return global_'s"
            )
        _refuse_vector(f"{place} returned weights", weights.parameters, layout, round)
    _refuse_unwritable(place, found.state, models=True)
    if "clients_mean" in found.state:
        raise ReturnedError(
            f"{place} keeps a state named 'clients_mean', which is taken in a round's file; give it another name",
            "state",
        )
    own = {name: value for name, value in state.items() if name != "clients_mean"}
    if own and _forms(own) != _forms(found.state):
        raise ReturnedError(_changed(place, "the state", own, found.state, round), "state")


def _refuse_vector(what: str, values: Any, layout: Layout, round: int, more: str = "") -> None:
    where = f"in round {round}{more}"
    if not isinstance(values, np.ndarray):
        raise ReturnedError(f"{what} as {describe_type(values)} {where}; return a NumPy array [{layout.size:,}]")
    if values.shape != (layout.size,):
        raise ReturnedError(
            f"{what} of shape {list(values.shape)} {where}, but the model has {layout.size:,} parameters; return one "
            f"vector [{layout.size:,}]"
        )
    if values.dtype != layout.dtype:
        raise ReturnedError(
            f"{what} as {values.dtype} {where}, but the model is {layout.dtype}; compute in float64 and end with "
            ".astype(start.layout.dtype)"
        )


def _refuse_unwritable(place: str, state: Any, what: str = "state", where: str = "", *, models: bool = False) -> None:
    """Refuse a state that a round's file cannot hold.

    Args:
        models: whether it may hold models.
    """
    at = f" ({where})" if where else ""
    if not isinstance(state, Mapping):
        raise ReturnedError(
            f"{place} returned {describe_type(state)} as its {what}{at}; return a dictionary of arrays by name", "state"
        )
    for name, value in state.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise ReturnedError(
                f"{place} names a part of its {what} {name!r}{at}; give it a word without / as its name", "state"
            )
        if models and isinstance(value, Weights):
            continue
        if isinstance(value, bool | int | float):
            continue
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in _KINDS:
            held = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe_type(value)
            raise ReturnedError(
                f"{place} returned {what} {name!r} as {held}{at}, which a round's file cannot hold; keep NumPy arrays "
                "of numbers, as in np.array(3)",
                "state",
            )


def _refuse_changed(place: str, before: State, after: State, round: int, begun: State, cohort: int) -> None:
    """Refuse a state of another form than before, unless the one before was the first, or only sizes that are the
    cohort's differ: a branch may have another."""
    if _forms(before) == _forms(begun):
        lost = [name for name in before if name not in after or np.shape(before[name]) != np.shape(after[name])]
        if not lost:
            return
    elif before.keys() == after.keys() and all(_same_but_cohort(before[name], after[name], cohort) for name in after):
        return
    raise ReturnedError(_changed(place, "the state", before, after, round), "state")


def _same_but_cohort(before: Any, after: Any, cohort: int) -> bool:
    one, other = np.shape(before), np.shape(after)
    return len(one) == len(other) and all(a == b or b == cohort for a, b in zip(one, other, strict=True))


def _changed(place: str, what: str, before: Mapping[str, Any], after: Mapping[str, Any], round: int) -> str:
    return (
        f"{place} changes the form of {what} in round {round} ({_difference(_forms(before), _forms(after))}); keep the "
        "same names and shapes in every round, so that a run can be resumed and its files stay as large as they are"
    )


def _forms(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes; of a model its parameters'."""
    return {name: np.shape(value.parameters if isinstance(value, Weights) else value) for name, value in state.items()}


def _difference(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> str:
    clauses = [
        f"{name} had shape {list(before[name])} and has {list(after[name])}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    new, gone = [name for name in after if name not in before], [name for name in before if name not in after]
    clauses += [f"{list_few(new, 4)} is new"] if new else []
    clauses += [f"{list_few(gone, 4)} is gone"] if gone else []
    return ", ".join(clauses[:3])


def _all_finite(rows: Sequence[np.ndarray], state: State) -> bool:
    known = [np.asarray(value) for value in state.values()]
    return all(bool(np.isfinite(values).all()) for values in [*rows, *known])
