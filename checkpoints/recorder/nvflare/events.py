"""Rounds of NVFlare, read off the events that its controllers fire on the server.

Source: nvflare 2.9.0, ``app_common/workflows``: ``ScatterAndGather`` and its Scaffold, ``ModelController`` with
``FedAvg``, ``BaseFedAvg`` and ``Scaffold``. All of them fire the events below, some also ``ROUND_STARTED``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from ...io.errors import FedscopeError
from ...io.warn_user import warn_user
from ..framework_rounds import Contribution, NamedRounds, copied
from ..recorder import Recorder
from .messages import (
    DIFF,
    OK,
    added,
    answered_round,
    factors_of,
    round_of,
    steps_in,
    train_loss_in,
    weights_in,
    weights_told,
)

#: events, by their values
START_RUN, END_RUN = "_start_run", "_end_run"
TASK = "_before_train_task"
ARRIVED, ACCEPTED = "_before_process_submission", "_after_contribution_accept"
AGGREGATED, UPDATED = "_after_aggregation", "_after_model_update"
#: properties of the context, likewise
SENT, RESULT, YES = "_train_shareable_", "__task_result__", "_aggregation_accepted"
MEAN, GLOBAL = "_aggregation_result", "global_model"


class EventRounds:
    """The rounds of a job.

    The clients' models are copied as they arrive, before an aggregator may change them. They count once the controller
    says that it accepts them.

    Args:
        open_: opens the recorder, on the server.
        clients: the clients' names in the order of their numbers.
    """

    def __init__(self, open_: Callable[[], Recorder], clients: Collection[str] | None = None) -> None:
        self._open, self._clients = open_, clients
        self._rounds: NamedRounds | None = None
        self._lock = threading.Lock()  # clients are answered in threads of their own
        self._number: int | None = None
        self._any = False
        self._stage: str | None = None  # of the round: open, averaged, lost; None between rounds
        self._start: dict[str, Any] | None = None
        self._arrived: tuple[str, Any, dict[str, Any], float] | None = None
        self._weights: dict[str, float] = {}
        self._metrics: dict[str, float] = {}
        self._factors: dict[str, float] = {}
        self._has_aggregator = False
        self._does = {
            TASK: self._task,
            ARRIVED: self._arrive,
            ACCEPTED: self._accept,
            AGGREGATED: self._aggregate,
            UPDATED: self._update,
            END_RUN: self._end,
        }

    def handle(self, event: str, context: Any) -> None:
        """Take an event; others than those of a round are left alone."""
        if event == START_RUN:
            self._begin(context)
        elif (rounds := self._rounds) is not None and (work := self._does.get(event)) is not None:
            with self._lock:
                if not rounds.succeeds(self._number, lambda: work(rounds, context)):
                    self._stage, self._start, self._arrived = "lost", None, None
                    rounds.begin(None)

    def _begin(self, context: Any) -> None:
        try:
            self._rounds = NamedRounds(self._open(), "NVFlare", self._clients)
        except FedscopeError as error:  # the job was sent long ago, and is not to end for this
            warn_user(f"this job of NVFlare is not recorded: {error}")
            return
        engine = context.get_engine()
        aggregator = engine.get_component("aggregator") if engine is not None else None
        self._has_aggregator, self._factors = aggregator is not None, factors_of(aggregator)

    def _task(self, rounds: NamedRounds, context: Any) -> None:
        """A client is about to be sent a task: with the first one of a round it begins."""
        message = context.get_prop(SENT)
        found = weights_in(message)
        if found is None or (self._stage is not None and round_of(message) == self._number):
            return
        self._number, self._stage = round_of(message), "open"
        self._start = self._arrived = None
        self._weights, self._metrics = {}, {}
        rounds.begin(None)  # before the copy, so that not two are held
        self._start = copied(found[1])
        rounds.begin(self._start)

    def _arrive(self, rounds: NamedRounds, context: Any) -> None:
        self._arrived = None
        message = context.get_prop(RESULT)
        found = weights_in(message) if self._stage == "open" else None
        if found is None or message.get_return_code(OK) != OK:
            return
        kind, data, meta = found
        model = copied(data)
        if kind == DIFF:
            # from a counter's mean, which is a float, to what the client has
            model = {name: rounds.typed(name, array) for name, array in added(self._start, model).items()}
        steps = steps_in(meta, by_aggregator=self._has_aggregator)
        self._arrived = (context.get_peer_context().get_identity_name(), message, model, steps)

    def _accept(self, rounds: NamedRounds, context: Any) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is None or self._stage != "open" or not context.get_prop(YES):
            return
        name, message, model, steps = arrived
        answered = answered_round(message)
        if answered is not None and answered != self._number:
            rounds.tell(
                f"{rounds.recorder.path}: client {name} answers round {answered} in round {self._number}, and its "
                "model is averaged all the same; the run leaves it out, since it began from another model"
            )
            return
        self._any = True
        rounds.add(Contribution(name, model, steps * self._factors.get(name, 1.0)))

    def _aggregate(self, rounds: NamedRounds, context: Any) -> None:
        if self._stage != "open":
            return
        self._stage = "averaged"  # what is accepted from now on is not in the mean
        result = context.get_prop(MEAN)
        self._weights, self._metrics = weights_told(result), train_loss_in(result)

    def _update(self, rounds: NamedRounds, context: Any) -> None:
        stage, self._stage, self._start = self._stage, None, None
        if stage not in ("open", "averaged"):
            return
        learnable = context.get_prop(GLOBAL)
        rounds.end(self._number, copied(learnable["weights"]), self._weights, self._metrics)
        rounds.settle()  # NVFlare evaluates nothing then

    def _end(self, rounds: NamedRounds, context: Any) -> None:
        if self._any and not rounds.ended:
            rounds.tell(
                f"{rounds.recorder.path}: clients sent models, and no round of NVFlare ended; have the controller call "
                "update_model, as FedAvg and ScatterAndGather do"
            )
        rounds.close()
