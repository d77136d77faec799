"""Rounds of Flower on their way into a run: who a client is, what it weighs, and what cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ..framework_rounds import FrameworkRounds
from ..recorder import Recorder
from .evaluation import NoShareError
from .replies import Arrays, Reply

T = TypeVar("T")


class Watch(FrameworkRounds):
    """A strategy whose rounds are recorded; whatever recording stumbles over is a warning, and the training goes on.

    A round waits for its evaluation, so that its numbers are in its file: until the next round begins, the strategy
    ends, or nothing of it can come any more.

    Args:
        named: whether the recorder has the names of models' arrays.
    """

    def __init__(self, strategy: Any, recorder: Recorder, named: bool) -> None:
        super().__init__(recorder, "Flower")
        self.strategy, self._named = strategy, named
        self._start: Arrays | None = None
        self._nodes: dict[Any, int] = {}
        self._by_partition: bool | None = None
        self._own: dict[str, Any] = {}
        self._held: tuple[int, dict[str, Any]] | None = None  # a round that waits for its evaluation
        self._evaluated: dict[str, float] = {}
        strategy.recorder, strategy._fedscope = recorder, self
        recorder.waiting = self.settle
        self.attach()

    def attach(self) -> None:
        """Put watched calls in the place of this one strategy's."""
        raise NotImplementedError

    def replace(self, **calls: Callable[..., Any]) -> None:
        """Put these in the place of the strategy's own."""
        for name, call in calls.items():
            self._own[name] = vars(self.strategy).get(name)
            setattr(self.strategy, name, call)

    def end(self) -> None:
        """Give the strategy its own calls back; a second time does nothing."""
        while self._own:
            name, own = self._own.popitem()
            if own is None:
                delattr(self.strategy, name)
            else:
                setattr(self.strategy, name, own)
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
            given = self.of_round(server_round, lambda: self._round(replies, made, read))
            self._held = None if given is None else (server_round, given)
        self._start = None
        if not self.evaluates:
            self.settle()

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation of the round may come."""
        raise NotImplementedError

    def evaluated(self, server_round: int, read: Callable[[], dict[str, float]]) -> None:
        """Take numbers of the round that waits; those of another one, as of the model before all rounds, are left
        out."""
        if self._held is None or self._held[0] != server_round:
            return
        self._evaluated.update(self.read_evaluation(read) or {})

    def read_evaluation(self, read: Callable[[], T]) -> T | None:
        """Read a part of an evaluation; None where it is something else than is known, which is told."""
        try:
            return read()
        except NoShareError as error:
            self._evaluated.update(error.numbers)
            self.tell(f"{self.recorder.path}: Flower's evaluation gives {error}; give a share")
        except Exception as error:  # whatever a program's own metrics are
            self.tell(f"{self.recorder.path}: Flower's evaluation is not recorded: {type(error).__name__}: {error}")
        return None

    def settle(self) -> None:
        """Record the round that waits, with what its evaluation said."""
        held, self._held = self._held, None
        numbers, self._evaluated = self._evaluated, {}
        if held is not None:
            server_round, given = held
            metrics = {**given.pop("metrics"), **numbers}
            self.of_round(server_round, lambda: self.recorder.round(**given, metrics=metrics))

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
                self.tell(
                    f"{self.recorder.path}: clients are numbered in the order in which they reply, which another run "
                    "need not repeat; give their ClientApp(mods=[fedscope.partition_mod])"
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
