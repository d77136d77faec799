"""Options of a training that are no settings of the run: how it is watched, where it computes, when it stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..user_code.provided_code import Given
from .federation import Unwatched, Watcher

if TYPE_CHECKING:
    from ..local.profile import Profile


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of :func:`~fedscope.training.train`, :func:`~fedscope.training.resume` and
    :func:`~fedscope.training.branch` besides a configuration.

    Attributes:
        force: replace an existing run, and train although the disk is too small for what will be recorded.
        keep_going: go on when a client's loss is no longer a number.
        watcher: is told of rounds and clients.
        workers: worker threads, one a core by default.
        engine: ``ray``, ``ray:2`` or ``ray:ADDRESS``, a cluster whose workers train; None for this machine.
        task: what is learnt, where the configuration does not say it.
        until: stop after this round; None for the last one.
        profile: where the rounds' times are left.
        code: of the user's own that a run names, by kind; code_changed: whether it may be another than the run's.
        device: on which a run goes on, of the kind that it has; None for the same.
        data: where the data lie that a run was trained on; None for where it says.
    """

    force: bool = False
    keep_going: bool = False
    watcher: Watcher = field(default_factory=Unwatched)
    workers: int | None = None
    engine: str | None = None
    task: Any = None
    until: int | None = None
    profile: Profile | None = None
    code: Given = field(default_factory=dict)
    code_changed: bool = False
    device: str | None = None
    data: Any = None
