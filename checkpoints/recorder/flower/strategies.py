"""The calls of a strategy in which a round of Flower begins and ends, in either interface, put under watch."""

from __future__ import annotations

from typing import Any

from .replies import Reply, arrays_of, of_messages, of_results, tensors_of
from .watch import Watch


class MessageWatch(Watch):
    """A strategy of ``flwr.serverapp.strategy``."""

    def attach(self) -> None:
        configure, aggregate = self.strategy.configure_train, self.strategy.aggregate_train
        start = getattr(self.strategy, "start", None)

        def configure_train(server_round: int, arrays: Any, *more: Any, **named: Any) -> Any:
            self.sent(server_round, lambda: arrays_of(arrays))
            return configure(server_round, arrays, *more, **named)

        def aggregate_train(server_round: int, replies: Any, *more: Any, **named: Any) -> Any:
            replies = list(replies)
            keys = self._setting("arrayrecord_key", "arrays"), self._setting("weighted_by_key", "num-examples")
            kept = self.replied(server_round, lambda: of_messages(replies, *keys))
            made = aggregate(server_round, replies, *more, **named)
            self.aggregated(server_round, kept, made, arrays_of)
            return made

        def started(*given: Any, **named: Any) -> Any:
            try:
                return start(*given, **named)  # type: ignore[misc]
            finally:
                self.close()

        self.replace(configure_train=configure_train, aggregate_train=aggregate_train)
        if callable(start):
            self.replace(start=started)

    def _setting(self, name: str, default: str) -> str:
        """Return a setting of the strategy, or of the one that it wraps."""
        strategy = self.strategy
        while strategy is not None and not hasattr(strategy, name):
            strategy = getattr(strategy, "strategy", None)
        return str(getattr(strategy, name, default))


class ResultWatch(Watch):
    """A strategy of ``flwr.server.strategy``, the older interface."""

    def attach(self) -> None:
        configure, aggregate = self.strategy.configure_fit, self.strategy.aggregate_fit

        def configure_fit(server_round: int, parameters: Any, *more: Any, **named: Any) -> Any:
            self.sent(server_round, lambda: tensors_of(parameters))
            return configure(server_round, parameters, *more, **named)

        def aggregate_fit(server_round: int, results: Any, *more: Any, **named: Any) -> Any:
            kept = self.replied(server_round, lambda: self._replies(results))
            made = aggregate(server_round, results, *more, **named)
            self.aggregated(server_round, kept, made, tensors_of)
            return made

        self.replace(configure_fit=configure_fit, aggregate_fit=aggregate_fit)

    def _replies(self, results: Any) -> list[Reply]:
        if len(results) > 1 and len({id(result.parameters) for _, result in results}) == 1:
            self.tell(
                f"{self.recorder.path}: all clients' models are one and the same, as secure aggregation gives their "
                "mean alone; questions about clients have no answer in this run"
            )
        return of_results(results)
