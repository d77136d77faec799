"""Retention of a loop's clients: which are recorded with their models, and sketches of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..io.errors import FedscopeError
from ..models.weights import Layout
from ..rounds.retention import RetentionPolicy, draw_kept_clients
from ..rounds.sketches import Model, refuse_size, sketch_updates, sketch_whole
from .coerce_models import ModelTensors, numbers_of


@dataclass(frozen=True)
class ClientRetention:
    """The models and sketches of a round's clients that are recorded.

    Attributes:
        keep: ``all``, ``none``, ``every:N`` (all of every N-th round), rounds as ``1,20``, or ``sample:m`` (m clients
            of every round).
        sketch: k, numbers of each client's update; 0 for none.

    Raises:
        FedscopeError: another word; a size that is none.

    >>> [ClientRetention(keep).places(3, 5).tolist() for keep in ("sample:2", "every:10", "all")]
    [[1, 2], [], [0, 1, 2, 3, 4]]
    """

    keep: str = "all"
    sketch: int = 0

    def __post_init__(self) -> None:
        policy = self._policy
        if policy.kind == "last" or 0 in policy.rounds:
            raise FedscopeError(
                f"keep = {self.keep!r} counts from the last round, which a loop does not say before it; give 'all', "
                "'none', 'every:N' or 'sample:m'"
            )
        if isinstance(self.sketch, bool) or not isinstance(self.sketch, int | np.integer):
            raise FedscopeError(f"sketch = {self.sketch!r} is not a size; give a whole number, or 0 for none")
        refuse_size(self.sketch, "sketch")

    @property
    def _policy(self) -> RetentionPolicy:
        return RetentionPolicy.parse(self.keep, place="keep")

    def places(self, number: int, clients: int) -> np.ndarray:
        """Choose the clients whose models are recorded, [m], ascending places among the round's C; a sample is drawn as
        in runs that are trained here with ``data.seed = 0``."""
        policy = self._policy
        if policy.sampled:
            return draw_kept_clients(clients, policy.sampled, seed=0, round=number)
        return np.arange(clients if policy.keeps(number, number) else 0)

    def sketches(
        self,
        layout: Layout,
        single: Mapping[str, ModelTensors | None],
        clients: Sequence[ModelTensors],
        place: str,
        *,
        own_starts: bool = False,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
        """Sketch all clients' updates, [C, k], and the single models by name, [k]; None where none are asked for.

        Args:
            single: ``start`` and ``global``.
            place: of the round, for sentences.
            own_starts: whether each client had a start of its own.

        Raises:
            FedscopeError: there is no start, and so no updates.
        """
        if not self.sketch:
            return None
        if (start := single["start"]) is None:
            why = (
                "one model that all clients started from, and with starts= each has its own; leave sketch= out"
                if own_starts
                else "the model that was sent, which was not given; give start=, or leave sketch= out"
            )
            raise FedscopeError(f"{place}: sketch = {self.sketch} is of updates from {why}")
        updates = sketch_updates(layout, _reader(start), [_reader(client) for client in clients], self.sketch)
        there = {name: model for name, model in single.items() if model is not None}
        whole = sketch_whole(layout, [_reader(model) for model in there.values()], self.sketch)
        return updates, dict(zip(there, whole, strict=True))


def _reader(model: ModelTensors) -> Model:
    return lambda name, part: numbers_of(model.arrays[name].reshape(-1)[part], model.dtypes[name])
