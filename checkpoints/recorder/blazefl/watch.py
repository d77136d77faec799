"""The calls of BlazeFL's server handlers in which a round begins, is aggregated and is evaluated, put under watch.

Source: blazefl 2.0.3, ``core/server_handler.py`` and ``contrib/fedavg.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...io.errors import FedscopeError
from ..framework_evaluation import read_evaluation
from ..framework_rounds import NamedRounds, Tensors, WatchedCalls, copied, same_models
from ..recorder import Recorder
from .packages import contribution_in, model_in, number_of_client, state_as_in

#: what a handler has to have, and what some have besides
NEEDED, FURTHER = ("downlink_package", "load", "global_update"), ("sample_clients", "if_stop", "get_summary")


class HandlerWatch(NamedRounds):
    """A handler whose rounds are recorded.

    A round begins as its package for clients is made, and its clients are those of the buffer that ``global_update`` is
    given: whom the handler did not let in is not in its mean.
    """

    _records = "fedscope.record_blazefl"

    def __init__(self, handler: Any, recorder: Recorder) -> None:
        super().__init__(recorder, "BlazeFL")
        self._handler = handler
        self._calls = WatchedCalls(handler)
        self._open = False
        self._number = 0  # of the round that is open, or was the last
        self._count = 0
        self._sent: Tensors | None = None
        self._sampled: set[str] = set()
        self._loaded: set[int] = set()  # packages of the open round, by id
        self._late: set[int] = set()  # packages of former rounds that nothing was made of
        watched = {"downlink_package": self._watch_downlink(), "load": self._watch_load()}
        watched |= {"global_update": self._watch_update()}
        watched |= {
            name: watch()
            for name, watch in zip(FURTHER, (self._watch_cohort, self._watch_stop, self._watch_summary), strict=True)
            if callable(getattr(handler, name, None))
        }
        self._calls.replace(**watched)

    def give_back(self) -> None:
        self._calls.restore()
        self.close()

    def close(self) -> None:
        """Write what is waiting; says so where models came and no round was made of them."""
        if self._loaded and not self._count:
            self.tell(
                f"{self.recorder.path}: clients sent models, and no round of BlazeFL ended; have load call "
                "self.global_update(buffer) once all are there, as FedAvgBaseServerHandler does"
            )
        super().close()

    # --- the calls ---

    def _watch_downlink(self) -> Any:
        own = self._handler.downlink_package

        def downlink_package(*given: Any, **named: Any) -> Any:
            package = own(*given, **named)
            self._send(package)
            return package

        return downlink_package

    def _watch_cohort(self) -> Any:
        own = self._handler.sample_clients

        def sample_clients(*given: Any, **named: Any) -> Any:
            cohort = own(*given, **named)
            if isinstance(cohort, Collection):  # what may be read but once is left to the loop
                self.guarded("whom a round is sent is not known", lambda: self._draw(cohort))
            return cohort

        return sample_clients

    def _watch_load(self) -> Any:
        own = self._handler.load

        def load(payload: Any, *given: Any, **named: Any) -> Any:
            before, open_ = self._count, self._open
            if open_:  # else it answers a round before
                self.is_over()
            self._late.discard(id(payload))  # a number of one that is gone
            (self._loaded if open_ else self._late).add(id(payload))
            ended = own(payload, *given, **named)
            if ended is True and self._count == before:
                self._loaded.clear()
                self.tell(
                    f"{self.recorder.path}: load says that a round of BlazeFL is over, and global_update was not "
                    "called, so nothing is recorded; have load call self.global_update(buffer)"
                )
            return ended

        return load

    def _watch_update(self) -> Any:
        own = self._handler.global_update

        def global_update(buffer: Any, *given: Any, **named: Any) -> Any:
            number = self._number if self._open else self._round_number()
            taken = self.succeeds(number, lambda: self._take(buffer))
            made = own(buffer, *given, **named)
            if taken:
                self._end()
            self._close_round(buffer)
            return made

        return global_update

    def _watch_summary(self) -> Any:
        own = self._handler.get_summary

        def get_summary(*given: Any, **named: Any) -> Any:
            summary = own(*given, **named)
            self.evaluated(self._number, lambda: read_evaluation(summary))
            if self._evaluated.numbers:
                self.settle()
            return summary

        return get_summary

    def _watch_stop(self) -> Any:
        own = self._handler.if_stop

        def if_stop(*given: Any, **named: Any) -> Any:
            stops = own(*given, **named)
            if stops:
                self.closed_by("if_stop")
            return stops

        return if_stop

    # --- a round ---

    def _round_number(self) -> int:
        """The handler's own number of the round, else how many there were."""
        number = getattr(self._handler, "round", None)
        return number if isinstance(number, int) and not isinstance(number, bool) else self._count

    def _state(self) -> Tensors:
        """The tensors of the handler's model.

        Raises:
            FedscopeError: it has none.
        """
        model: Any = getattr(self._handler, "model", None)
        if not callable(getattr(model, "state_dict", None)):
            raise FedscopeError(
                f"{type(self._handler).__name__} has no module as its model, from which a run takes the names of "
                "tensors; keep the model that is sent in handler.model"
            )
        state: Tensors = model.state_dict()
        return state

    def _draw(self, cohort: Collection[Any]) -> None:
        self._sampled.update(number_of_client(cid) for cid in cohort)

    def _send(self, package: Any) -> None:
        """Begin a round with the package that its clients get."""
        if not self._open:
            self.settle()
            self._open, self._number, self._sent = True, self._round_number(), None
            self.succeeds(self._number, lambda: self._begin(package))
        elif self._sent is not None:
            self.guarded("what clients were sent is not known", lambda: self._compare(package))

    def _begin(self, package: Any) -> None:
        if self.recorder.is_closed:  # a package after the last round, as for a last test, begins none
            return
        state = self._state()
        sent = model_in(package, state)
        if not same_models(state_as_in(package, state), sent):
            raise FedscopeError(
                "downlink_package sends another model than handler.model, so it is not known which one global_update "
                "changes; keep the model that is sent in handler.model"
            )
        self._sent = sent

    def _compare(self, package: Any) -> None:
        if self._sent is not None and not same_models(self._sent, model_in(package, self._state())):
            self.tell(
                f"{self.recorder.path}: downlink_package gives several models in round {self._number} of BlazeFL; the "
                "run has the first as start, and clients may have begun from another; record rounds without one start "
                "with fedscope.Recorder"
            )

    def _take(self, buffer: Any) -> None:
        """Copy what clients sent, before the handler makes a mean of it."""
        if not self._open:
            raise FedscopeError(
                "downlink_package was not called before global_update, so it is not known which model was sent; call "
                "it once a round"
            )
        if not isinstance(buffer, Sequence):
            raise FedscopeError(
                f"global_update is given a {type(buffer).__name__}, which may be read but once; give a list"
            )
        if self.is_over() or self._sent is None:  # which was told
            return
        self.begin(self._sent)
        state = self._state()
        for package in buffer:
            one = contribution_in(package, state)
            if id(package) in self._late:
                self.tell(
                    f"{self.recorder.path}: client {one.client} answers an earlier round in round {self._number} of "
                    "BlazeFL, and its model is averaged all the same; the run leaves it out, since it began from "
                    "another model"
                )
                continue
            self.add(one)
        if silent := sorted(map(int, self._sampled - self._here.keys())):
            self.tell(
                f"{self.recorder.path}: sample_clients drew client {silent[0]} for round {self._number} of BlazeFL, "
                "and no model of it was averaged; the run has the round without it"
            )

    def _close_round(self, buffer: Any) -> None:
        self._open, self._sent = False, None
        self._count += 1
        self.begin(None)
        self._sampled.clear()
        averaged = set(map(id, buffer)) if isinstance(buffer, Sequence) else set()
        self._late = (self._late | self._loaded) - averaged
        self._loaded = set()

    def _end(self) -> None:
        """Hold the round until its summary is there."""
        if self._sent is None:
            return
        self.of_round(self._number, lambda: self.end(self._number, copied(self._state())))
        if not callable(getattr(self._handler, "get_summary", None)):
            self.settle()
