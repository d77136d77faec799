"""What client methods of one's own return, looked at before a round takes it in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .local_training import LocalTask, LocalUpdate

if TYPE_CHECKING:
    from ..methods.base import ClientMethod


def refused_updates(
    method: ClientMethod, tasks: Sequence[LocalTask], updates: Iterable[tuple[int, LocalUpdate]]
) -> Iterable[tuple[int, LocalUpdate]]:
    """Return updates with the places of their tasks; those of somebody's own method are looked at as they come.

    Raises:
        FedscopeError: on going through them, what :mod:`fedscope.training.methods.returned` refuses.
    """
    from ..methods.returned import is_own

    return _looked_at(method, tasks, updates) if is_own(method) else updates


def _looked_at(
    method: ClientMethod, tasks: Sequence[LocalTask], updates: Iterable[tuple[int, LocalUpdate]]
) -> Iterable[tuple[int, LocalUpdate]]:
    from ..methods.returned import refuse_unlike, refuse_update

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
    from ..methods.returned import is_own, refuse_no_update

    if is_own(method):
        refuse_no_update(method, update, task.round, task.client)
    return update
