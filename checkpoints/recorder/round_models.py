"""The models of one round, as a loop gives them, read and brought to the layout of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..io.errors import FedscopeError, list_few
from ..models.adapters import about_adapters
from ..models.weights import Layout
from .accepted_rounds import AcceptedRounds
from .client_numbers import number_clients
from .client_order import is_counted, refuse_uncounted
from .client_replies import refuse_tuples
from .coerce_models import (
    IN_PRECISION,
    ModelTensors,
    coerce_model,
    difference,
    numbers_of,
    other_shape,
    unlike,
)
from .own_starts import refuse_unmatched
from .shared_memory import one_memory, one_model


@dataclass(frozen=True)
class GivenModels:
    """What a loop gives to a round, in any of the forms that the recorder takes, see
    :meth:`~fedscope.checkpoints.recorder.recorder.Recorder.round`."""

    clients: Any
    start: Any
    global_: Any
    starts: Any


@dataclass(frozen=True)
class RoundModels:
    """A round's models, read; once they are checked all have one layout.

    Attributes:
        clients: after local training, by number; start: that was sent; global_: the server's afterwards.
        starts: the models that the clients started from, where these are not one.
    """

    clients: dict[int, ModelTensors]
    start: ModelTensors | None
    global_: ModelTensors | None
    starts: dict[int, ModelTensors] | None

    @property
    def single(self) -> dict[str, ModelTensors | None]:
        """The models that there is one of, by their names in a round's file."""
        return {"start": self.start, "global": self.global_}

    @property
    def named(self) -> dict[str, ModelTensors]:
        """All that are there, by what sentences call them; the server's first."""
        server = {"start": self.start, "global_": self.global_}
        return {
            **{what: model for what, model in server.items() if model is not None},
            **{client(k): model for k, model in self.clients.items()},
            **{start_of(k): model for k, model in (self.starts or {}).items()},
        }

    @property
    def first(self) -> ModelTensors:
        """The model that says how the others should look, where no architecture does: a module without a wrapper's
        names if any is one."""
        there = list(self.named.values())
        return next((model for model in there if model.parameters is not None), there[0])

    def changed(self, change: Callable[[str, ModelTensors], ModelTensors]) -> RoundModels:
        """Return the models as a function of what each is called and of itself makes them."""
        starts = self.starts
        return RoundModels(
            {k: change(client(k), model) for k, model in self.clients.items()},
            starts=None if starts is None else {k: change(start_of(k), model) for k, model in starts.items()},
            start=None if self.start is None else change("start", self.start),
            global_=None if self.global_ is None else change("global_", self.global_),
        )


def client(k: int) -> str:
    """What sentences call a client's model."""
    return f"client {k}"


def start_of(k: int) -> str:
    """What sentences call the model that a client started from."""
    return f"the start of client {k}"


@dataclass
class ModelReader:
    """Reads the models of one round.

    Attributes:
        known: of the rounds before, and what is told of this one.
        place: of the round, for sentences.
        module: the architecture, where it was given as a module; layout: of the run, None before its first round.
        is_loop: whether a loop of the user's own or files give the models, and no recorder of a framework.
        held: tensors that a ``state_dict()`` has made, until memory is compared: another one would be where it was.
    """

    known: AcceptedRounds
    place: str
    module: ModelTensors | None
    layout: Layout | None
    is_loop: bool
    held: list[Any] = field(default_factory=list)

    def read(self, given: GivenModels) -> tuple[RoundModels, Layout]:
        """Coerce a round's models to the layout of the run; in its first round to that of the first of them.

        Returns:
            The models, and the layout that all of them have.

        Raises:
            FedscopeError: as :meth:`~fedscope.checkpoints.recorder.recorder.Recorder.round` says of models.
        """
        by_id, starts = self._numbered(given)
        models = self._coerced(by_id, given.start, given.global_, starts)
        self.known.refuse_other_scales(
            self.place,
            {
                "start": given.start,
                "global_": given.global_,
                **{client(k): model for k, model in by_id.items()},
                **{start_of(k): model for k, model in (starts or {}).items()},
            },
        )
        if self.known.expected is None:
            self._expect(models.first)
        models = models.changed(self._fitted)
        of_client = next(iter(models.clients.values()))
        start, global_ = (
            None if model is None else self._typed(what, model, of_client)
            for what, model in (("start", models.start), ("global_", models.global_))
        )
        models = replace(models, start=start, global_=global_)
        layout = self.layout or self._first_layout(models)
        self._check(models, layout)
        # recorders of frameworks give what they have copied, and importers what they have read
        if self.is_loop and "same" not in self.known.said:
            files = any(isinstance(one, ModelTensors) for one in (given.start, *by_id.values()))
            self._tell_uncopied(models, layout, copied=files)
        return models, layout

    def _tell(self, what: str, clause: str) -> None:
        self.known.tell(what, f"{self.place}: {clause}")

    def _numbered(self, given: GivenModels) -> tuple[dict[int, Any], dict[int, Any] | None]:
        """Return the clients' models and starts, as they were given, by number."""
        if isinstance(given.clients, Mapping | list | tuple):
            refuse_tuples(given.clients, self.place)
        by_id = number_clients(given.clients, self.place, "clients")
        if given.starts is None:
            return by_id, None
        if is_counted(given.starts):
            refuse_uncounted(given.starts, by_id, self.place, "starts")
        starts = number_clients(given.starts, self.place, "starts")
        refuse_unmatched(self.place, starts, by_id)
        if all(starts[k] is by_id[k] for k in by_id):
            self._tell(
                "same",
                "starts= are the very models of clients=, so that nobody has moved; copy them before they train: "
                "starts = [copy.deepcopy(net) for net in nets]",
            )
        return by_id, starts

    def _coerced(
        self, by_id: Mapping[int, Any], start: Any, global_: Any, starts: Mapping[int, Any] | None
    ) -> RoundModels:
        names = None if self.module is None else tuple(self.module.arrays)
        read = partial(self._read, names=names)
        return RoundModels(
            {k: read(client(k), model) for k, model in by_id.items()},
            starts=None if starts is None else {k: read(start_of(k), model) for k, model in starts.items()},
            start=None if start is None else read("start", start),
            global_=None if global_ is None else read("global_", global_),
        )

    def _read(self, what: str, model: Any, *, names: tuple[str, ...] | None) -> ModelTensors:
        if model is None:
            raise FedscopeError(f"{self.place}: {what} has no model; leave it out")
        try:
            return coerce_model(model, names, self.held)
        except FedscopeError as error:
            raise FedscopeError(f"{self.place}: {what}: {error}") from None

    def _expect(self, own: ModelTensors) -> None:
        """Know from the first models, or from the architecture, how all of the run should look."""
        first = self.module or own
        # adapters lack what they adapt, so that not all names of the architecture are theirs
        part = self.module is not None and not own.goes_with(self.module)
        if (self.module is None or part) and self.layout is None:
            first, notes = own.without_wrappers()
            for note in notes:
                self._tell(note, note)
        expected = first.expected(self.layout)
        # that two tensors of the first model are one is nobody's word
        self.known.expected = replace(expected, tied={}) if part else expected

    def _fitted(self, what: str, model: ModelTensors) -> ModelTensors:
        """Rename a model's tensors as those of the others; says once what was changed for that."""
        expected = self.known.expected
        assert expected is not None, "the first model has said it"
        # of two tensors that were one in the first model, and nobody says that they are one
        if self.module is None and all(name in model.arrays for name in expected.tied):
            expected = replace(expected, tied={})
        fitted, notes = model.fitted(f"{self.place}: {what}", expected)
        for note in notes:
            self._tell(note, f"{what}: {note}")
        return fitted

    def _typed(self, what: str, model: ModelTensors, of_client: ModelTensors) -> ModelTensors:
        """Return a server's model in the types of its clients; says once where that has rounded weights."""
        typed, rounded = model.typed_as(of_client)
        if rounded:
            self._tell("typed", f"{what} is in float64, and recorded in float32, as the clients' models are in")
        return typed

    def _first_layout(self, models: RoundModels) -> Layout:
        """Return the layout that the first round gives to the run.

        Raises:
            FedscopeError: nothing in it is trained.
        """
        first = models.start or models.global_ or next(iter(models.clients.values()))
        # the order is the first one's, and what is trained a module's, wherever in the round it is
        layout = first.layout((self.module or models.first).layout())
        if not layout.parameters:
            kinds = list_few(dict.fromkeys(entry.dtype for entry in layout.entries), 3)
            raise FedscopeError(
                f"{self.place}: the models hold no weights, only {kinds} ({list_few(layout.names, 3)}); give what is "
                "trained as floats, as weight.astype(np.float32)"
            )
        return layout

    def _check(self, models: RoundModels, layout: Layout) -> None:
        """Refuse models that do not fit together, or are not those of the architecture.

        Raises:
            FedscopeError: names one of them.
        """
        adapters = about_adapters(layout.names)
        if adapters:
            self._tell("adapters", adapters)
            # the clients' first: that of a server may be a mean, which was rounded
            trained = {client(k): model for k, model in models.clients.items()}
            self.known.refuse_other_alphas(self.place, {**trained, **models.named})
        for what, model in models.named.items():
            if clause := difference(model, layout):
                remedy = "all in one precision, as weight.float()"
                if IN_PRECISION not in clause:
                    remedy = f"models of one architecture{_shared_alone(models)}"
                raise FedscopeError(f"{self.place}: {what} {clause}; give {remedy}")
        if self.module is None:
            return
        if clause := other_shape(layout, self.module):
            raise FedscopeError(f"{self.place}: {clause}; give the architecture of these models as model=")
        if not adapters and (clause := unlike(layout, self.module)):
            self._tell("unlike", clause)

    def _tell_uncopied(self, models: RoundModels, layout: Layout, *, copied: bool) -> None:
        """Tell where one model stands for another, because the loop went on to train it.

        Args:
            copied: whether an importer has read the models, so that they share no memory.
        """
        sent, end, starts = models.start, models.global_, models.starts or {}
        if not copied and (clause := one_memory(sent, end, models.clients, starts)):
            self._tell("memory", clause)
        elif clause := one_model(sent, end, models.clients, [entry.name for entry in layout.parameters]):
            self._tell("one", clause)


def first_not_finite(model: ModelTensors) -> str:
    """Find the first floating tensor with a NaN or an infinity; empty where there is none."""
    for name, array in model.arrays.items():
        values = numbers_of(array, model.dtypes[name])
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return name
    return ""


def _shared_alone(models: RoundModels) -> str:
    """Say how clients are given that each keep tensors, as a head, which the server never has; empty where they do
    not."""
    for what, model in (("start", models.start), ("global_", models.global_)):
        if model is not None and all(model.arrays.keys() < one.arrays.keys() for one in models.clients.values()):
            return (
                "; of clients that keep parts to themselves give those that they share: "
                f"{{name: weights[name] for name in {what}}}"
            )
    return ""
