"""Rounds of Flower on their way into a run: who a client is, what it weighs, and what cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...io.errors import FedscopeError
from ..framework_evaluation import number_in
from ..framework_rounds import FrameworkRounds, WatchedCalls
from ..recorder import Recorder
from .replies import Arrays, Reply, bytes_of, distance_of, values_of

T = TypeVar("T")
#: under which name replies say how many samples they are of
SAMPLES = "num-examples"
#: ways to number clients, as run.json has them, in words
_BY_PARTITION, _BY_REPLY = "partition-id", "replies"
_WAYS = {
    _BY_PARTITION: "by their partition-id",
    _BY_REPLY: "in the order in which they replied",
    "": "in a way that run.json does not say",
}
#: how much larger the squared distance to what is sent has to be, so that rounding, as to half precision, decides
#: nothing
_FURTHER = 1.1


class Watch(FrameworkRounds):
    """A strategy whose rounds are recorded; whatever recording stumbles over is a warning, and the training goes on.

    A round waits for its evaluation, so that its numbers are in its file: until the next round begins, the strategy
    ends, or nothing of it can come any more.

    Args:
        named: whether the recorder has the names of models' arrays.
    """

    _numbering = ("_nodes", "_by_partition")
    _records = "fedscope.record"
    #: which call of the strategy is given the model that a round begins with
    _configures = ""

    def __init__(self, strategy: Any, recorder: Recorder, named: bool) -> None:
        super().__init__(recorder, "Flower")
        self.strategy, self._named = strategy, named
        #: the model that the strategy was given, and by node those that it sends in its place
        self._start: Arrays | None = None
        self._starts: Mapping[Any, Arrays] = {}
        self._begun: Any = None  # bytes of the first
        self._goes_on = recorder.accepted  # rounds of which another recording has numbered the clients
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

    def number_as(self, former: Watch) -> None:
        """Number clients as a former recording of the same run did."""
        self._nodes, self._by_partition = dict(former._nodes), former._by_partition

    def give_back(self) -> None:
        self._calls_of_strategy.restore()
        self.close()

    # --- a round ---

    def begins(self, server_round: int, model: Any, read: Callable[[Any], Arrays]) -> None:
        """Keep the model that a round begins with, before the strategy sends it or another one."""
        self.settle()
        self._start, self._starts, self._begun = None, {}, None
        both = self.of_round(server_round, lambda: (read(model), bytes_of(model)))
        if both is not None:
            self._start, self._begun = both

    def sends(
        self, server_round: int, find: Callable[[], list[tuple[Any, Any]]], read: Callable[[Any], Arrays]
    ) -> None:
        """Compare what clients are sent with what the round begins with; keep what each is sent where it is another.

        Args:
            find: gives pairs of a client's node and its model.
        """
        if self._start is not None:
            self.guarded("what clients were sent is not known", lambda: self._compare(server_round, find(), read))

    def _compare(self, server_round: int, sent: list[tuple[Any, Any]], read: Callable[[Any], Arrays]) -> None:
        assert self._start is not None
        by_id: dict[int, Arrays] = {}  # most clients are sent one and the same object
        seen: dict[Any, Arrays] = {}  # by their bytes and by their values
        for _, model in sent:
            if id(model) not in by_id:
                by_id[id(model)] = self._model_in(server_round, model, seen, read)
        if any(own is not self._start for own in by_id.values()):
            self._starts = {node: by_id[id(model)] for node, model in sent}

    def _model_in(
        self, server_round: int, model: Any, seen: dict[Any, Arrays], read: Callable[[Any], Arrays]
    ) -> Arrays:
        """Read the model that a client is sent: the very one that the round begins with, where it is the same, and
        where the message holds something else, as control variates beside the model, a part of it, or none."""
        assert self._start is not None
        own = () if model is None else bytes_of(model)
        if own == self._begun:
            return self._start
        if own not in seen:
            found = {} if model is None else read(model)
            if not seen:
                seen[values_of(self._start)] = self._start
            if _shapes(found) == _shapes(self._start):
                found = seen.setdefault(values_of(found), found)
            else:
                found = self._start
                self.tell(
                    f"{self.recorder.path}: clients are sent something else than a model of the round's names and "
                    f"shapes in round {server_round} of Flower, so start is the model given to {self._configures}"
                )
            seen[own] = found
        return seen[own]

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
            self.hold(server_round, lambda: self._round(server_round, replies, made, read))
        self._start, self._starts, self._begun = None, {}, None
        if not self.evaluates:
            self.settle()

    @property
    def evaluates(self) -> bool:
        """Whether an evaluation of the round may come."""
        raise NotImplementedError

    def _round(
        self, server_round: int, replies: Sequence[Reply], made: Any, read: Callable[[Any], Arrays]
    ) -> dict[str, Any]:
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
        self._tell_unnamed(replies[0].model)
        loss = number_in((metrics or {}).get("train_loss"))
        return {
            **self._sent(server_round, ids, replies),
            "clients": {k: self._given(reply.model) for k, reply in zip(ids, replies, strict=True)},
            # a strategy that gives nothing leaves the model as it was
            "global_": self._given(self._start if arrays is None else read(arrays)),
            "metrics": {} if loss is None else {"train_loss": loss},
            **self._weights(ids, replies),
        }

    def _sent(self, server_round: int, ids: Sequence[int], replies: Sequence[Reply]) -> dict[str, Any]:
        """Give the model that clients started from, or one each, as the recorder takes it."""
        assert self._start is not None
        own = [self._starts.get(reply.node, self._start) for reply in replies]
        if self._starts and (unknown := [reply.node for reply in replies if reply.node not in self._starts]):
            self.tell(
                f"{self.recorder.path}: it is not known which model node {unknown[0]} was sent in round {server_round} "
                f"of Flower, so its start is the model given to {self._configures}"
            )
        if self._are_further(own, replies):
            self.tell(
                f"{self.recorder.path}: clients' models in round {server_round} of Flower are further from what they "
                f"were sent than from the model given to {self._configures}, as where messages hold differences of "
                "models, so start is the model given"
            )
            own = [self._start]
        if len(set(map(id, own))) == 1:
            return {"start": self._given(own[0])}
        self.tell(
            f"{self.recorder.path}: clients are sent several models in round {server_round} of Flower, so the run "
            "has what each started from, as starts, and no one start; questions about one start leave such rounds "
            "out"
        )
        return {"starts": {k: self._given(model) for k, model in zip(ids, own, strict=True)}}

    def _are_further(self, own: Sequence[Arrays], replies: Sequence[Reply]) -> bool:
        """Check whether clients' models are further from what they were sent than from what the round begins with.

        A client's training moves its model a little from where it started. A message with the names and shapes of a
        model may hold another thing: the difference to the model of the round before, which clients add to theirs, or
        codes. So what was sent counts as the start unless the mean squared distance of the clients' models to it is
        larger than that to the model that the strategy was given.
        """
        assert self._start is not None
        moved = [(one, reply.model) for one, reply in zip(own, replies, strict=True) if one is not self._start]
        to_sent = sum(distance_of(model, one) for one, model in moved)
        to_given = sum(distance_of(model, self._start) for _, model in moved)
        return to_sent > _FURTHER * to_given

    def _tell_unnamed(self, model: Arrays) -> None:
        """Tell of arrays without names that nothing gives one."""
        name = self.recorder.model_name
        if name is not None and not self._named and list(model) == [str(i) for i in range(len(model))]:
            self.tell(
                f"{self.recorder.path}: clients send arrays without names, which the run has as 0, 1, 2, ... and "
                f"{name} cannot load; give the module or its class in place of its name, as model=Net"
            )

    def _given(self, model: Arrays) -> Any:
        """Return a model as the recorder takes it: in order, if it has no names but those that Flower makes up."""
        typed = {name: self.typed(name, array) for name, array in model.items()}
        unnamed = self._named and list(typed) == [str(i) for i in range(len(typed))]
        return list(typed.values()) if unnamed else typed

    def _numbers(self, replies: Sequence[Reply]) -> list[int]:
        """Return the clients' numbers in the run: all are partitions, or none is, as in the first round."""
        if self._by_partition is None:
            self._by_partition = all(reply.partition is not None for reply in replies)
            self._tell_numbering(replies)
            self.recorder.about["numbered_by"] = _BY_PARTITION if self._by_partition else _BY_REPLY
        ids = []
        for reply in replies:
            k = reply.partition if self._by_partition else self._nodes.setdefault(reply.node, len(self._nodes))
            if k is None:
                raise FedscopeError(
                    f"node {reply.node} does not say its partition, as clients did in the first round; "
                    f"{_remedy([reply])}"
                )
            if k in ids:
                raise FedscopeError(f"client {k} replied twice; give every node a partition-id of its own")
            ids.append(k)
        return ids

    def _tell_numbering(self, replies: Sequence[Reply]) -> None:
        """Tell what another run, or the rounds before a resume, number otherwise."""
        if not self._by_partition:
            others = ", and partition= gives them rows of others" if self.recorder.has_partition else ""
            self.tell(
                f"{self.recorder.path}: clients are numbered in the order in which they reply, which another run need "
                f"not repeat{others}; {_remedy(replies)}"
            )
        before = str(self.recorder.run_info.get("numbered_by", ""))
        now = _BY_PARTITION if self._by_partition else _BY_REPLY
        if self._goes_on and not (self._by_partition and before in (now, "")):
            self.tell(
                f"{self.recorder.path}: from round {self._goes_on + 1} on clients are numbered "
                f"{'anew ' if before == now else ''}{_WAYS[now]}, and before {_WAYS.get(before, _WAYS[''])}, so that "
                "one number may be of two clients; record these rounds to another path, or ask of either part alone, "
                f"as with --rounds {'1-' if self._goes_on > 1 else ''}{self._goes_on}"
            )

    def _weights(self, ids: Sequence[int], replies: Sequence[Reply]) -> dict[str, Any]:
        """Give the models' weights as the recorder takes them."""
        weights = [reply.weight for reply in replies if reply.weight is not None]
        if len(weights) < len(replies):
            self.tell(
                f"{self.recorder.path}: replies do not say how many samples clients have, so all weigh the same in the "
                f'run; send MetricRecord({{"{self.weight_key}": n}})'
            )
            return {}
        # of another key, as of batches or tokens, they count no samples
        counted = self.weight_key == SAMPLES and all(weight.is_integer() for weight in weights)
        return {"samples" if counted else "weights": dict(zip(ids, weights, strict=True))}

    @property
    def weight_key(self) -> str:
        """Under which name replies say what their models weigh."""
        return SAMPLES


def _shapes(model: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in model.items()}


def _remedy(replies: Sequence[Reply]) -> str:
    """Say how nodes without a partition say theirs."""
    if all(reply.has_mod for reply in replies if reply.partition is None):
        return (
            "partition_mod finds no whole number from 0 as partition-id in their node config; start each SuperNode "
            'with its own, as --node-config "partition-id=3"'
        )
    return "give every ClientApp(mods=[fedscope.partition_mod])"
