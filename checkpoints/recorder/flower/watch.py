"""Rounds of Flower on their way into a run: who a client is, what it weighs, and what cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ..framework_rounds import FrameworkRounds, WatchedCalls
from ..recorder import Recorder
from .replies import Arrays, Reply

T = TypeVar("T")


class Watch(FrameworkRounds):
    """A strategy whose rounds are recorded; whatever recording stumbles over is a warning, and the training goes on.

    A round waits for its evaluation, so that its numbers are in its file: until the next round begins, the strategy
    ends, or nothing of it can come any more.

    Args:
        named: whether the recorder has the names of models' arrays.
    """

    _numbering = ("_nodes", "_by_partition")

    def __init__(self, strategy: Any, recorder: Recorder, named: bool) -> None:
        super().__init__(recorder, "Flower")
        self.strategy, self._named = strategy, named
        self._start: Arrays | None = None
        self._nodes: dict[Any, int] = {}
        self._by_partition: bool | None = None
        self._calls_of_strategy = WatchedCalls(strategy)
        strategy.recorder, strategy._fedscope = recorder, self
        self.attach()

    def attach(self) -> None:
        """Put watched calls in the place of this one strategy's."""
        raise NotImplementedError

    def replace(self, **calls: Callable[..., Any]) -> None:
        """Put these in the place of the strategy's own."""
        self._calls_of_strategy.replace(**calls)

    def give_back(self) -> None:
        self._calls_of_strategy.restore()
        self.close()

    # --- a round ---

    def sent(self, server_round: int, read: Callable[[], Arrays]) -> None:
        """Keep the model that a round starts from."""
        self.settle()
        self._start = self.of_round(server_round, read)

    def replied(self, server_round: int, read: Callable[[], list[Reply]]) -> list[Reply] | None:
        """Read the clients' replies; to be called before they are aggregated, since some strategies empty the
        replies."""
        return self.of_round(server_round, read)

    def aggregated(
        self, server_round: int, replies: list[Reply] | None, made: Any, read: Callable[[Any], Arrays]
    ) -> None:
        """Hold a round, given the strategy's arrays and metrics, until its evaluation is there."""
        self.settle()
        if replies is not None:
            self.hold(server_round, lambda: self._round(replies, made, read))
        self._start = None
        if not self.evaluates:
            self.settle()

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation of the round may come."""
        raise NotImplementedError

    def _round(self, replies: Sequence[Reply], made: Any, read: Callable[[Any], Arrays]) -> dict[str, Any]:
        """A round as the recorder takes it."""
        arrays, metrics = made
        if self._start is None:
            raise FedscopeError("it is not known which model was sent")
        if not replies:
            raise FedscopeError("no client sent a model")
        ids = self._numbers(replies)
        self.learn_types(replies[0].model)
        for k, reply in zip(ids, replies, strict=True):
            self.tell_other_types(k, reply.model)
        loss = (metrics or {}).get("train_loss")
        return {
            "start": self._given(self._start),
            "clients": {k: self._given(reply.model) for k, reply in zip(ids, replies, strict=True)},
            # a strategy that gives nothing leaves the model as it was
            "global_": self._given(self._start if arrays is None else read(arrays)),
            "metrics": {"train_loss": float(loss)} if isinstance(loss, int | float) else {},
            **self._weights(ids, replies),
        }

    def _given(self, model: Arrays) -> Any:
        """Return a model as the recorder takes it: in order, if it has no names but those that Flower makes up."""
        typed = {name: self.typed(name, array) for name, array in model.items()}
        unnamed = self._named and list(typed) == [str(i) for i in range(len(typed))]
        return list(typed.values()) if unnamed else typed

    def _numbers(self, replies: Sequence[Reply]) -> list[int]:
        """Return the clients' numbers in the run: all are partitions, or none is, as in the first round."""
        if self._by_partition is None:
            self._by_partition = all(reply.partition is not None for reply in replies)
            if not self._by_partition:
                others = ", and partition= gives them rows of others" if self.recorder.has_partition else ""
                self.tell(
                    f"{self.recorder.path}: clients are numbered in the order in which they reply, which another run "
                    f"need not repeat{others}; give their ClientApp(mods=[fedscope.partition_mod])"
                )
        ids = []
        for reply in replies:
            k = reply.partition if self._by_partition else self._nodes.setdefault(reply.node, len(self._nodes))
            if k is None:
                raise FedscopeError(
                    f"node {reply.node} does not say its partition, as clients did in the first round; give every "
                    "ClientApp(mods=[fedscope.partition_mod])"
                )
            if k in ids:
                raise FedscopeError(f"client {k} replied twice; give every node a partition-id of its own")
            ids.append(k)
        return ids

    def _weights(self, ids: Sequence[int], replies: Sequence[Reply]) -> dict[str, Any]:
        """Give the models' weights as the recorder takes them."""
        counts = [reply.samples for reply in replies if reply.samples is not None]
        if len(counts) < len(replies):
            self.tell(
                f"{self.recorder.path}: replies do not say how many samples clients have, so all weigh the same in the "
                'run; send MetricRecord({"num-examples": n})'
            )
            return {}
        whole = all(count.is_integer() for count in counts)
        return {"samples" if whole else "weights": dict(zip(ids, counts, strict=True))}
