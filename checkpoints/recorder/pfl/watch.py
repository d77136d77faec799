"""The calls of pfl's algorithms in which users train and the model is updated, put under watch.

Source: pfl 0.6.0, ``algorithm/base.py`` and ``aggregate/simulate.py``.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ...io.errors import FedscopeError
from ..framework_evaluation import read_evaluation
from ..framework_rounds import Contribution, NamedRounds, Tensors, WatchedCalls, copied
from ..recorder import Recorder

#: a part of the names of postprocessors that clip what users send, or add noise
_PRIVATE = "PrivacyMechanism"


class AlgorithmWatch(NamedRounds):
    """An algorithm whose rounds are recorded; pfl calls them central iterations.

    A user's model is read as local training ends, before pfl puts the server's back: the statistics that pfl sends are
    rounded differences. What it weighs is read as the aggregator gets them, after all postprocessors.

    Args:
        clients: the users' names in the order of their numbers.
    """

    _records = "fedscope.record_pfl"

    def __init__(self, algorithm: Any, recorder: Recorder, clients: Collection[str] | None) -> None:
        super().__init__(recorder, "pfl", clients)
        self._algorithm = WatchedCalls(algorithm)
        self._number: int | None = None
        self._open = self._lost = False
        self._user: Contribution | None = None  # who has trained, and is not aggregated yet
        self._place = 0
        train, run = algorithm.train_one_user, algorithm.run
        update = algorithm.process_aggregated_statistics_from_all_contexts

        def train_one_user(initial: Any, model: Any, user_dataset: Any, central_context: Any, **named: Any) -> Any:
            counts = getattr(getattr(central_context, "population", None), "value", "train") == "train"
            number = getattr(central_context, "current_central_iteration", None)
            if counts:
                self._guard(number, lambda: self._begin(number, model))
            made = train(initial, model, user_dataset, central_context, **named)
            if counts and not self._lost:
                self._guard(number, lambda: self._trained(model, user_dataset))
            return made

        def process(stats_context_pairs: Any, aggregate_metrics: Any, model: Any) -> Any:
            self._flush()
            made = update(stats_context_pairs, aggregate_metrics, model)
            if self._open and not self._lost:
                self._guard(self._number, lambda: self.end(self._number, model_of(made[0])))
            self._open = False
            return made

        def run_watched(*given: Any, **named: Any) -> Any:
            bound = inspect.signature(run).bind(*given, **named)
            refuse_ranks()
            self.is_over()  # as after a run before this one
            callbacks = bound.arguments["callbacks"] = list(bound.arguments.get("callbacks") or ())
            others = self._watch_others(bound.arguments.get("backend"), callbacks)
            try:
                return run(*bound.args, **bound.kwargs)
            finally:
                for one in others:
                    one.restore()
                self.closed_by("algorithm.run")

        self._algorithm.replace(
            train_one_user=train_one_user,
            process_aggregated_statistics_from_all_contexts=process,
            run=run_watched,
        )

    def give_back(self) -> None:
        self._algorithm.restore()
        self.close()

    def _watch_others(self, backend: Any, callbacks: Collection[Any]) -> list[WatchedCalls]:
        """Watch the aggregator, which says what users weigh, and the callbacks, of which some evaluate."""
        for postprocessor in getattr(backend, "_postprocessors", None) or ():
            if any(_PRIVATE in parent.__name__ for parent in type(postprocessor).__mro__):
                self.tell(
                    f"{type(postprocessor).__name__} clips what users send or adds noise to it: the run holds users' "
                    "models as they were trained, and global is not their mean"
                )
        others = []
        if callable(getattr(getattr(backend, "_aggregator", None), "accumulate", None)):
            others.append(self._watch_aggregator(backend._aggregator))
        for callback in callbacks:
            if callable(getattr(callback, "after_central_iteration", None)):
                others.append(self._watch_callback(callback))
        return others

    def _watch_aggregator(self, aggregator: Any) -> WatchedCalls:
        own, watched = aggregator.accumulate, WatchedCalls(aggregator)

        def accumulate(*given: Any, **named: Any) -> Any:
            self._flush(getattr(named.get("user_stats", given[-1] if given else None), "weight", None))
            return own(*given, **named)

        watched.replace(accumulate=accumulate)
        return watched

    def _watch_callback(self, callback: Any) -> WatchedCalls:
        own, watched = callback.after_central_iteration, WatchedCalls(callback)

        def after_central_iteration(*given: Any, **named: Any) -> Any:
            made = own(*given, **named)
            self.evaluated(self._number, lambda: read_evaluation(made[1].to_simple_dict()))
            return made

        watched.replace(after_central_iteration=after_central_iteration)
        return watched

    # --- a round ---

    def _guard(self, number: int | None, work: Callable[[], None]) -> None:
        """Do a part of a round; what fails loses this round alone."""
        if self._lost and self._open:
            return
        if not self.succeeds(number, work):
            self._lost, self._user = True, None
            self.begin(None)

    def _begin(self, number: int | None, model: Any) -> None:
        if self._open:
            return
        self.settle()
        self._number, self._open, self._lost = number, True, self.is_over()
        self._user, self._place = None, 0
        self.begin(None if self._lost else model_of(model))

    def _trained(self, model: Any, user_dataset: Any) -> None:
        self._flush()
        name = getattr(user_dataset, "user_id", None)
        if name is None:
            name = self._place
            self.tell(
                f"{self.recorder.path}: data sets have no user_id, so users are numbered by their place in the round, "
                "and client 3 is another user in each; give Dataset(..., user_id=...)"
            )
        self._place += 1
        self._user = Contribution(str(name), model_of(model), 1.0, len(user_dataset))

    def _flush(self, weight: float | None = None) -> None:
        """Take the user who has trained, with its weight; 1 where nobody says one."""
        user, self._user = self._user, None
        if user is not None and not self._lost:
            told = user if weight is None else replace(user, weight=float(weight))
            self._guard(self._number, lambda: self.add(told))


def model_of(model: Any) -> Tensors:
    """Copy what a model of pfl holds: all of its module, or what it calls its parameters."""
    module: Any = getattr(model, "pytorch_model", None)
    if callable(getattr(module, "state_dict", None)):
        return copied(module.state_dict())
    return copied(dict(model.get_parameters().items()))


def refuse_ranks() -> None:
    """Refuse a simulation in several processes, each of which has some of the users.

    Raises:
        FedscopeError: there are several.
    """
    ranks = world_size()
    if ranks > 1:
        raise FedscopeError(
            f"pfl simulates in {ranks} processes, each of which sees some of the users, so none can record a round; "
            "start one process, python instead of torchrun"
        )


def world_size() -> int:
    """Return the number of processes that simulate, as far as pfl or the environment says it."""
    told = [os.environ.get(name, "1") for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")]
    ranks = max((int(one) for one in told if one.isdigit()), default=1)
    selector = sys.modules.get("pfl.internal.ops.selector")
    module = getattr(selector, "_framework_module", None)
    own = getattr(getattr(module, "distributed", None), "world_size", 1)
    return max(ranks, own if isinstance(own, int) else 1)
