"""The calls of a strategy in which a round of Flower begins and ends, in either interface, put under watch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ..framework_evaluation import metrics_of_message, read_client_evaluations, read_evaluation
from .replies import Reply, arrays_of, of_messages, of_results, sent_in, sent_to, tensors_of
from .watch import SAMPLES, Watch


class MessageWatch(Watch):
    """A strategy of ``flwr.serverapp.strategy``."""

    _configures = "configure_train"
    _by_clients = _by_server = _started = False

    def attach(self) -> None:
        configure, aggregate = self.strategy.configure_train, self.strategy.aggregate_train
        start = getattr(self.strategy, "start", None)

        def configure_train(server_round: int, arrays: Any, *more: Any, **named: Any) -> Any:
            self.begins(server_round, arrays, arrays_of)
            messages = configure(server_round, arrays, *more, **named)
            if isinstance(messages, Iterator):  # which may be read but once
                messages = list(messages)
            self.sends(server_round, lambda: sent_in(messages, self._setting("arrayrecord_key", "arrays")), arrays_of)
            return messages

        def aggregate_train(server_round: int, replies: Any, *more: Any, **named: Any) -> Any:
            replies = list(replies)
            keys = self._setting("arrayrecord_key", "arrays"), self.weight_key
            kept = self.replied(server_round, lambda: of_messages(replies, *keys))
            made = aggregate(server_round, replies, *more, **named)
            self.aggregated(server_round, kept, made, arrays_of)
            return made

        def started(*given: Any, **named: Any) -> Any:
            self._started = True
            self.is_over()  # as after a start before this one
            try:
                given, named = self._with_evaluation(start, given, named)
                return start(*given, **named)  # type: ignore[misc]
            finally:
                self._started = False
                self.closed_by("strategy.start")

        self.replace(configure_train=configure_train, aggregate_train=aggregate_train)
        if callable(start):
            self.replace(start=started)
        self._attach_evaluation()

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation may come: of clients, or by the function that ``start`` was given."""
        return self._by_clients or self._by_server

    def _attach_evaluation(self) -> None:
        evaluate = getattr(self.strategy, "aggregate_evaluate", None)
        if not callable(evaluate):
            return

        def aggregate_evaluate(server_round: int, replies: Any, *more: Any, **named: Any) -> Any:
            replies = list(replies)
            answers = self.read_evaluation(
                lambda: [metrics_of_message(message) for message in replies if message.has_content()]
            )
            made = evaluate(server_round, replies, *more, **named)
            self.evaluated(server_round, lambda: read_client_evaluations(answers or [], made))
            if not self._started:  # by hand: nothing else of the round can come
                self.settle()
            return made

        self._by_clients = True
        self.replace(aggregate_evaluate=aggregate_evaluate)

    def _with_evaluation(
        self, start: Any, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of ``start`` with its ``evaluate_fn`` under watch, wherever it stands among them."""
        place = None
        with suppress(TypeError, ValueError):
            place = list(inspect.signature(start).parameters).index("evaluate_fn")
        function: Any = named.get("evaluate_fn", given[place] if place is not None and place < len(given) else None)
        self._by_server = callable(function)
        if not self._by_server:
            return given, named

        def evaluate_fn(*arguments: Any, **by_name: Any) -> Any:
            made = function(*arguments, **by_name)
            server_round: Any = arguments[0] if arguments else by_name.get("server_round")
            self.evaluated(server_round, lambda: read_evaluation(made))
            return made

        if "evaluate_fn" in named:
            return given, {**named, "evaluate_fn": evaluate_fn}
        return (*given[:place], evaluate_fn, *given[place + 1 :]), named  # type: ignore[operator]

    @property
    def weight_key(self) -> str:
        return self._setting("weighted_by_key", SAMPLES)

    def _setting(self, name: str, default: str) -> str:
        """Return a setting of the strategy, or of the one that it wraps."""
        strategy = self.strategy
        while strategy is not None and not hasattr(strategy, name):
            strategy = getattr(strategy, "strategy", None)
        return str(getattr(strategy, name, default))


class ResultWatch(Watch):
    """A strategy of ``flwr.server.strategy``, the older interface."""

    _configures = "configure_fit"
    #: what of a round's evaluation may still come
    _calls: frozenset[str] = frozenset()
    _lacking: frozenset[str] = frozenset()

    def attach(self) -> None:
        configure, aggregate = self.strategy.configure_fit, self.strategy.aggregate_fit

        def configure_fit(server_round: int, parameters: Any, *more: Any, **named: Any) -> Any:
            self.begins(server_round, parameters, tensors_of)
            asked = configure(server_round, parameters, *more, **named)
            self.sends(server_round, lambda: sent_to(asked), tensors_of)
            return asked

        def aggregate_fit(server_round: int, results: Any, *more: Any, **named: Any) -> Any:
            kept = self.replied(server_round, lambda: self._replies(results))
            made = aggregate(server_round, results, *more, **named)
            self.aggregated(server_round, kept, made, tensors_of)
            return made

        self.replace(configure_fit=configure_fit, aggregate_fit=aggregate_fit)
        self._attach_evaluation()

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation may come; asked as a round begins to wait for it."""
        self._lacking = self._calls
        return bool(self._calls)

    def _attach_evaluation(self) -> None:
        """Watch the server's own evaluation, and that of clients; a strategy may have either."""
        central = getattr(self.strategy, "evaluate", None)
        configure = getattr(self.strategy, "configure_evaluate", None)
        aggregate = getattr(self.strategy, "aggregate_evaluate", None)

        def evaluate(server_round: int, *more: Any, **named: Any) -> Any:
            made = central(server_round, *more, **named)  # type: ignore[misc]
            if made is not None:
                self.evaluated(server_round, lambda: read_evaluation(made[1], made[0]))
            self._note("central")
            return made

        def configure_evaluate(*given: Any, **named: Any) -> Any:
            made = configure(*given, **named)  # type: ignore[misc]
            if not made:  # nobody is asked
                self._note("clients")
            return made

        def aggregate_evaluate(server_round: int, results: Any, *more: Any, **named: Any) -> Any:
            answers = self.read_evaluation(lambda: [dict(result.metrics or {}) for _, result in results])
            made = aggregate(server_round, results, *more, **named)  # type: ignore[misc]
            self.evaluated(server_round, lambda: read_client_evaluations(answers or [], made[1] if made else None))
            self._note("clients")
            return made

        if callable(central):
            self.replace(evaluate=evaluate)
            self._calls |= {"central"}
        if callable(configure) and callable(aggregate):
            self.replace(configure_evaluate=configure_evaluate, aggregate_evaluate=aggregate_evaluate)
            self._calls |= {"clients"}

    def _note(self, which: str) -> None:
        """Note that a part of the evaluation is there; with the last one the round is recorded."""
        self._lacking -= {which}
        if not self._lacking:
            self.settle()

    def _replies(self, results: Any) -> list[Reply]:
        if len(results) > 1 and len({id(result.parameters) for _, result in results}) == 1:
            self.tell(
                f"{self.recorder.path}: all clients' models are one and the same, as secure aggregation gives their "
                "mean alone; questions about clients have no answer in this run"
            )
        return of_results(results)
