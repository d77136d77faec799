"""Models that begin alike: the modules that one of them has run are not run again for the others.

A model's module calls others in an order. Two models that differ only in tensors that are first used from the k-th call
on give the same outputs in all calls that end before it. These are recorded under the one, and handed out under the
other: the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints import Weights
from .model_replica import Replica
from .recorded_names import own_name


@dataclass(frozen=True)
class Call:
    """One call of a module within a forward pass.

    Attributes:
        module: its place among the modules.
        end: the number of the first call that begins after this one has ended.
    """

    module: int
    end: int


@dataclass(frozen=True)
class Cut:
    """Where two models part.

    Attributes:
        at: the number of the first call that may differ.
        needed: calls before it whose outputs the rest of the forward pass uses; those of others are not kept.
    """

    at: int
    needed: frozenset[int]


@dataclass(frozen=True)
class PrefixRecording:
    """What one model has computed of a batch: its calls, and outputs by the call's number."""

    calls: tuple[Call, ...]
    outputs: Mapping[int, Tensor]


class OtherCallsError(Exception):
    """Modules were called in another order than before."""


class WatchedModule:
    """A private copy of a module whose calls are watched; it computes what it always did.

    Args:
        module: the copy; ``forward`` of it and of all modules in it is wrapped, once.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._act: Callable[[int, Callable[..., Any], Any, Any], Any] | None = None
        for place, part in enumerate(module.modules()):
            # past a __setattr__ of its class, which may refuse
            object.__setattr__(part, "forward", self._watched(place, part.forward))

    def _watched(self, place: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            if self._act is None:
                return forward(*given, **named)
            return self._act(place, forward, given, named)

        return called

    def record(
        self, x: Tensor, needed: Collection[int], changed: Collection[int] = (), seen: list[Any] | None = None
    ) -> tuple[Any, PrefixRecording]:
        """Compute the outputs, and keep those of some calls.

        Args:
            needed: their numbers.
            changed: of those whose output is changed in place later on, a copy is kept.
            seen: takes every call's output, as it is.
        """
        calls: list[Call | None] = []
        places: list[int] = []
        kept: dict[int, Tensor] = {}

        def act(place: int, forward: Callable[..., Any], given: Any, named: Any) -> Any:
            number = len(calls)
            calls.append(None)
            places.append(place)
            output = forward(*given, **named)
            calls[number] = Call(place, len(calls))
            if number in needed and isinstance(output, Tensor):
                kept[number] = output.clone() if number in changed else output
            if seen is not None:
                seen.append((number, output, output._version if isinstance(output, Tensor) else 0))
            return output

        with self._acting(act):
            outputs = self._module(x)
        return outputs, PrefixRecording(tuple(call for call in calls if call is not None), kept)

    def resume(self, recording: PrefixRecording, cut: Cut, x: Tensor, changed: Collection[int] = ()) -> Any:
        """Compute the outputs of the present model, of which the calls before ``cut`` were recorded under another.

        Raises:
            OtherCallsError: modules are called in another order.
        """
        now = 0
        # nobody looks at the outputs of other calls; were it otherwise, it would show
        nothing = torch.full((), float("nan"))

        def act(place: int, forward: Callable[..., Any], given: Any, named: Any) -> Any:
            nonlocal now
            if now >= cut.at:
                self._act = None  # from here on all is computed
                return forward(*given, **named)
            call = recording.calls[now]
            if call.module != place:
                raise OtherCallsError
            if call.end <= cut.at:
                number, now = now, call.end
                if number not in cut.needed:
                    return nothing
                output = recording.outputs[number]
                return output.clone() if number in changed else output
            now += 1
            return forward(*given, **named)

        with self._acting(act):
            return self._module(x)

    @contextmanager
    def _acting(self, act: Callable[[int, Callable[..., Any], Any, Any], Any]) -> Iterator[None]:
        self._act = act
        try:
            yield
        finally:
            self._act = None


class SharedPrefix:
    """Which calls of a module two models share, tried out on two models and a few samples.

    Attributes:
        calls: of a forward pass, in the order in which they begin.
        first: of a tensor, by its name, the first call that may use it: of its module, or, where that is never called,
            of the nearest one round it that is. The least one where several modules hold it.
        changed: calls whose output is changed in place after they have ended.

    Args:
        replica: forms the models; its module is watched from here on.
        a, b: two models that differ.
        x: a few samples, as the replica takes them.
    """

    def __init__(self, replica: Replica, a: Weights, b: Weights, x: Tensor) -> None:
        self._replica, self._ends, self._x = replica, (a, b), x
        watched = watched_module(replica)
        replica.load(a.parameters, a.buffers)
        seen: list[Any] = []
        with torch.no_grad(), replica.compute.forward():  # an inference tensor has no version
            _, recording = watched.record(x, (), seen=seen)
        self.calls = recording.calls
        self.changed = frozenset(
            number for number, output, version in seen if isinstance(output, Tensor) and output._version != version
        )
        self._tensors = frozenset(number for number, output, _ in seen if isinstance(output, Tensor))
        with torch.inference_mode(), replica.compute.products(), replica.compute.forward():
            _, self._recording = watched.record(x, self._tensors, self.changed)
        self.first = self._first_calls()
        self._cuts: dict[int, Cut | None] = {}

    def _first_calls(self) -> dict[str, int]:
        module = self._replica.module
        begin: dict[int, int] = {}
        for number, call in enumerate(self.calls):
            begin.setdefault(call.module, number)
        place = {id(part): i for i, part in enumerate(module.modules())}
        named = module.named_modules(remove_duplicate=False)
        called = {name: begin[at] for name, part in named if (at := place[id(part)]) in begin}
        tensors = [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]
        held: dict[int, int] = {}
        for name, tensor in tensors:
            owner = own_name(module, name).rpartition(".")[0]
            while owner and owner not in called:
                owner = owner.rpartition(".")[0]
            number = called.get(owner, 0)
            held[id(tensor)] = min(number, held.get(id(tensor), number))
        return {name: held[id(tensor)] for name, tensor in tensors}

    def cut(self, at: int) -> Cut | None:
        """Return what is needed of the calls before the ``at``-th, where they can be shared: tried out with a model
        that has everything behind it from B, and all else from A. None where nothing is shared.
        """
        if at not in self._cuts:
            self._cuts[at] = self._tried(at)
        return self._cuts[at]

    def _tried(self, at: int) -> Cut | None:
        """The last call of each module round the ``at``-th is mostly all that is needed; else all of them are."""
        shared, last = self._before(at)
        if not shared or not shared <= self._tensors or self._recording.calls != self.calls:
            return None
        a, b = self._ends
        replica, watched = self._replica, watched_module(self._replica)
        behind = frozenset(name for name, number in self.first.items() if number >= at)
        with torch.inference_mode(), replica.compute.products(), replica.compute.forward():
            replica.combine_part(a, behind, [a, b], (0.0, 1.0))
            expected = replica.module(self._x)
            if not isinstance(expected, Tensor):
                return None
            for needed in (last, shared):
                cut = Cut(at, needed)
                try:
                    outputs = watched.resume(self._recording, cut, self._x, self.changed)
                except (OtherCallsError, RuntimeError, IndexError, TypeError, ValueError, AttributeError):
                    continue  # something wanted more of what lies in between than one number
                if isinstance(outputs, Tensor) and torch.equal(outputs, expected):
                    return cut
        return None

    def _before(self, at: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the calls that have ended before one begins, less those within such; and the last in each module."""
        shared: list[int] = []
        last: set[int] = set()
        number, now = -1, 0
        while now < at:
            if self.calls[now].end <= at:
                number, now = now, self.calls[now].end
                shared.append(number)
                continue
            if number >= 0:
                last.add(number)
            number, now = -1, now + 1
        if number >= 0:
            last.add(number)
        return frozenset(shared), frozenset(last)


def watched_module(replica: Replica) -> WatchedModule:
    """Return a replica's module as a watched one, the same again."""
    known = replica.__dict__.get("_watched")
    if known is None:
        known = replica.__dict__["_watched"] = WatchedModule(replica.module)
    assert isinstance(known, WatchedModule)
    return known


def outputs_of_alike(
    shared: SharedPrefix, replicas: Sequence[Replica], base: int, cuts: Sequence[Cut | None], x: Tensor
) -> list[Tensor]:
    """Compute outputs of several models on a batch, as ``Replica.logits`` gives them.

    Args:
        replicas: hold the models.
        base: the one whose calls are recorded.
        cuts: of each, where it parts from the base; None where nothing is shared. Not looked at of the base.
    """
    needed = frozenset[int]().union(*(cut.needed for i, cut in enumerate(cuts) if cut is not None and i != base))
    first = replicas[base]
    found: dict[int, Tensor] = {}
    with torch.inference_mode(), first.compute.products(), first.compute.forward():
        found[base], recording = watched_module(first).record(x, needed, shared.changed)
        for i, replica in enumerate(replicas):
            if i == base:
                continue
            cut = cuts[i]
            if cut is None or recording.calls != shared.calls:
                found[i] = replica.module(x)
            else:
                found[i] = watched_module(replica).resume(recording, cut, x, shared.changed)
    return [found[i] for i in range(len(replicas))]
