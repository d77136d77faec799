"""A cohort made up for a server: the model's own layout, and clients about the model that was sent."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...checkpoints import Layout, Weights
from ..guards.own_calls import ask
from ..loop.server import look_ahead
from ..methods.base import Cohort, Served, ServerMethod, State
from ..methods.shared.probes import Linear

#: clients of a cohort: no number of tensors of the model, so that an axis of clients is told from others
CLIENTS = 6


@dataclass(frozen=True)
class ServerCall:
    """All that a server's step is given."""

    state: State
    start: Weights
    clients: Weights
    cohort: Cohort

    def served(self, server: ServerMethod) -> Served:
        """Take the step."""
        return ask(server, server.step, dict(self.state), self.start, self.clients, self.cohort)

    def ordered(self, order: np.ndarray) -> ServerCall:
        """Return the same with clients in another order, or with some of them; p as it is."""
        known = self.cohort
        cohort = replace(
            known,
            client_ids=known.client_ids[order],
            samples=known.samples[order],
            steps=known.steps[order],
            p=known.p[order],
            reach=known.reach[order],
            label_counts=known.label_counts[order],
        )
        return replace(self, clients=_rows(self.start.layout, self.clients.parameters[order]), cohort=cohort)


def made_up(
    server: ServerMethod, layout: Layout, *, seed: int = 0, rounds: int = 2, clients: int = CLIENTS
) -> ServerCall:
    """Return the step after some others, so that the server has a state."""
    draw = np.random.default_rng(seed)
    start = _rows(layout, draw.normal(scale=0.3, size=layout.size))
    state = ask(server, server.init, start.parameters)
    for round in range(1, rounds + 2):
        step = ServerCall(state, start, _about(start, draw, clients), _cohort(server, round, clients))
        if round > rounds:
            break
        served = step.served(server)
        state = served.state
        start = look_ahead(server, state, _rows(layout, served.parameters), round)
    return step


def _about(start: Weights, draw: np.random.Generator, count: int) -> Weights:
    moved = draw.normal(scale=0.05, size=(count, start.layout.size)).astype(start.layout.dtype)
    moved += start.parameters
    return _rows(start.layout, moved)


def _cohort(server: ServerMethod, round: int, count: int) -> Cohort:
    places = np.arange(count)
    samples, steps = 10 + 7 * places, 2 + places
    return Cohort(
        round=round,
        client_ids=3 + 2 * places,
        samples=samples,
        steps=steps,
        p=ask(server, server.weights, samples),
        clients=2 * count + 5,
        lr=0.05,
        reach=0.05 * steps,
        label_counts=(1 + (places[:, None] + np.arange(10)) % 4).astype(np.int64),
        validator=_Judged(),
    )


class _Judged:
    """Made-up answers to what servers ask of models."""

    def __call__(self, models: Weights) -> tuple[np.ndarray, np.ndarray]:
        """Losses and errors: the further from 0.1, the worse."""
        losses = np.array([float(np.linalg.norm(np.asarray(row, np.float64) - 0.1)) for row in models.parameters])
        return losses, losses / (1 + losses)

    def squared_gradients(self, model: Weights, labels: str) -> np.ndarray:
        """Grow with the square of a parameter."""
        return 0.01 + np.square(np.asarray(model.parameters, np.float64))

    def input_products(self, model: Weights) -> dict[Linear, np.ndarray]:
        """Of every matrix the inputs are its own rows, and one more of ones."""
        arrays = {name: array for name, array in model.arrays().items() if array.ndim == 2}
        return {
            Linear(name, 0, len(array)): np.asarray(array, np.float64).T @ array + 1.0 for name, array in arrays.items()
        }


def _rows(layout: Layout, values: np.ndarray) -> Weights:
    return Weights(layout, values.astype(layout.dtype, copy=False), {})
