"""The local training of several clients at once: the loop of :mod:`~fedscope.training.local.local_training`, a row a
client.

What is a vector [P] there is a matrix [C, P] here, and what is a number is a column [C, 1], so that a method's code
stays as it stands. Orders, batches and corrections are each client's own; a client with fewer steps than the others
waits for them. Numbers differ from those of clients trained one by one by rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...checkpoints import Weights, stack
from ..rng import generator, torch_generator
from .augmentation import crop_and_flip
from .device_batches import gathered_on_device
from .local_training import LocalTask, LocalUpdate, Steps, Stopped, batches_an_epoch, length, refuse_another
from .loss_sum import LossSum
from .optimisers import cohort_stepper, left_by_cohort
from .vectorized_model import VectorizedModel

if TYPE_CHECKING:
    from ..methods.base import ClientMethod


@dataclass(frozen=True)
class VectorizedTask(LocalTask):
    """Several clients' work in one round, as one task.

    Attributes:
        members: the clients' own tasks; what they share (round, pace, data, what was sent) is this one's, too.
        start: the model that all were sent, [P], or each its own, [C, P].
    """

    members: tuple[LocalTask, ...] = ()

    @classmethod
    def of(cls, members: Sequence[LocalTask]) -> VectorizedTask:
        """Return the members as one task; their round, pace and data are the same."""
        first = members[0]
        shared = {field.name: getattr(first, field.name) for field in fields(LocalTask)}
        alike = all(member.start is first.start for member in members)
        start = first.start if alike else stack_values([member.start for member in members])
        return cls(**{**shared, "start": start, "indices": np.empty(0, np.int64), "state": {}}, members=tuple(members))

    @property
    def samples(self) -> np.ndarray:
        """n_i, [C, 1]."""
        return np.array([[len(member.indices)] for member in self.members])

    @property
    def away(self) -> np.ndarray:
        """Rounds since the clients' last participations, [C, 1]."""
        return np.array([[member.away] for member in self.members])

    def kept(self, name: str) -> np.ndarray:
        """Return the clients' vectors, [C, P]."""
        return np.stack([member.kept(name) for member in self.members])

    def kept_model(self, name: str) -> Weights | None:
        """Return the clients' models [C, P], with the one that was sent where a client has none; None where nobody has
        one."""
        own = [member.kept_model(name) for member in self.members]
        if all(model is None for model in own):
            return None
        pairs = zip(own, self.members, strict=True)
        return stack([member.start if model is None else model for model, member in pairs])

    def each(self, work: Callable[[LocalTask], Any]) -> Any:
        """Apply ``work`` to every client alone, and stack the results: arrays and models with a row a client."""
        bench = self._cohort_bench.alone
        return stack_values([work(replace(member, bench=bench, stop=self.stop)) for member in self.members])

    def beside(self, start: Weights, epochs: int) -> VectorizedTask:
        """As of one client; ``start`` is [P] or [C, P]."""
        each = start.parameters.ndim == 2
        members = tuple(member.beside(start.row(k) if each else start, epochs) for k, member in enumerate(self.members))
        return replace(self, start=start, pace=members[0].pace, draw=members[0].draw, members=members)

    @property
    def _cohort_bench(self) -> VectorizedModel:
        assert isinstance(self.bench, VectorizedModel)
        return self.bench

    def full_gradient(self, method: ClientMethod) -> Tensor:
        """Compute the gradients of the clients' whole objectives at the model that was sent, [C, P]."""
        bench, count = self._cohort_bench, self.facts.task.count
        bench.begin(self, pass_=1)
        total = torch.zeros_like(bench.g)
        sums = [count(self.y[bench.tensor(member.indices)]) or 1 for member in self.members]
        for x, y, _ in self._batches(method, [[member.indices] for member in self.members]):
            bench.loss(self.objective, x, y)
            own = [count(values[:size]) for values, size in zip(y, bench.sizes.tolist(), strict=True)]
            shares = np.array([[part / whole] for part, whole in zip(own, sums, strict=True)])
            total.add_(bench.g * bench.tensor(shares).to(bench.w.dtype))
        return bench.to_all_names(bench.add_decay(total, method.gradient_decay))

    def sgd(self, method: ClientMethod, steps: Steps) -> LocalUpdate:
        """Mini-batch SGD of all clients; an update with a row a client."""
        assert steps.after_epoch is None, "clients' epochs end at different steps"
        bench = self._cohort_bench
        bench.begin(self)
        w, g = bench.w, bench.g
        optimiser = cohort_stepper(self.members, method, w)
        decay, momentum = method.gradient_decay, method.momentum if optimiser is None else 0.0
        velocity = torch.zeros_like(w) if momentum else None
        planned = np.array([[self.pace.epochs * len(batches_an_epoch(own, method))] for own in self.members])
        losses = LossSum()
        reach, unit_velocity = np.zeros(planned.shape), 0.0
        for k, (x, y, active) in enumerate(self._batches(method, *self._orders())):
            if steps.gradient is not None:
                loss = steps.gradient(x, y)
            else:
                loss = bench.decayed(steps.objective or self.objective, x, y, decay)
            unit_velocity = momentum * unit_velocity + 1
            eta = self.pace.lr if steps.rate is None else steps.rate(np.minimum(k, planned - 1), planned)
            reach += np.where(active, eta * unit_velocity, 0.0)
            with torch.no_grad():
                if method.clip:
                    g.mul_((method.clip / (length(g) + 1e-12)).clamp(max=1.0))
                if steps.correct is not None:
                    refuse_another(method, steps.correct(w, g), g, w)
                bench.hold()
                if optimiser is not None:
                    bench.step(optimiser, eta, active)
                    losses.add(loss if active.all() else torch.where(bench.real.any(dim=1), loss, 0.0))
                    continue
                direction = g if velocity is None else velocity.mul_(momentum).add_(g)
                if active.all():
                    losses.add(loss)
                else:
                    # made of what is on the device already
                    waits = ~bench.real.any(dim=1, keepdim=True)
                    losses.add(torch.where(waits[:, 0], 0.0, loss))
                    direction = direction.masked_fill(waits, 0.0)
                if isinstance(eta, np.ndarray):
                    w.sub_(direction * bench.tensor(eta).to(w.dtype))
                else:
                    w.add_(direction, alpha=-eta)
        mean = losses.total() / planned[:, 0]
        left = left_by_cohort(optimiser, self, method)
        reach = reach if optimiser is None else np.full(reach.shape, np.nan)
        return LocalUpdate(self.client, bench.read(), self.samples, planned, mean, reach, optimiser=left)

    def _orders(self) -> tuple[list[list[np.ndarray]], list[torch.Generator | None]]:
        """Each client's samples in the orders of its epochs, and where its augmentation is drawn from."""
        orders: list[list[np.ndarray]] = []
        shifts: list[torch.Generator | None] = []
        for own in self.members:
            order = generator(own.seed, "batches", round=own.round, client=own.client, draw=own.draw)
            orders.append([own.indices[order.permutation(len(own.indices))] for _ in range(self.pace.epochs)])
            shifts.append(
                torch_generator(own.seed, "augment", round=own.round, client=own.client, draw=own.draw)
                if self.augment != "none"
                else None
            )
        return orders, shifts

    def _batches(
        self,
        method: ClientMethod,
        orders: Sequence[Sequence[np.ndarray]],
        shifts: Sequence[torch.Generator | None] = (),
    ) -> Iterator[tuple[Tensor, Tensor, np.ndarray]]:
        """x [C, B, ...], y [C, B, ...] and which clients still have a batch, [C, 1].

        Shorter batches are filled up with the client's own first sample, and the bench knows what is real.

        Args:
            orders: of each client its epochs, as rows of the data.
        """
        bench = self._cohort_bench
        most = min(method.batch, max(len(member.indices) for member in self.members))
        each = [-(-len(member.indices) // method.batch) for member in self.members]
        steps = max(len(order) * own for order, own in zip(orders, each, strict=True))
        index = np.empty((steps, len(orders), most), np.int64)
        real = np.zeros(index.shape, np.float32)
        for k, (order, own) in enumerate(zip(orders, each, strict=True)):
            index[:, k] = self.members[k].indices[0]
            for epoch, rows in enumerate(order):
                whole, rest = divmod(len(rows), method.batch)
                first = epoch * own
                if whole:
                    index[first : first + whole, k] = rows[: whole * method.batch].reshape(whole, most)
                    real[first : first + whole, k] = 1
                if rest:
                    index[first + whole, k, :rest] = rows[whole * method.batch :]
                    real[first + whole, k, :rest] = 1
        marks = bench.tensor(real).to(bench.w.dtype)
        counts = real.sum(axis=2, dtype=np.int64)
        gathered = self._gathered(index, counts, shifts)
        for step in range(steps):
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            x, y = next(gathered)
            bench.fill(marks[step], counts[step])
            yield x, y, counts[step][:, None] > 0

    def _gathered(
        self, index: np.ndarray, counts: np.ndarray, shifts: Sequence[torch.Generator | None]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The steps' samples x [C, B, ...] and y [C, B, ...], of which the first ``counts`` [steps, C] of a client are
        augmented.

        Args:
            index: rows of the data, [steps, C, B].
        """
        if self.x.device.type != "cpu":
            yield from gathered_on_device(self.x, self.y, index, counts, shifts)
            return
        places = torch.from_numpy(index).flatten(1)
        for step, rows in enumerate(places):
            x, y = (values[rows] for values in (self.x, self.y))
            x, y = (values.view(*index.shape[1:], *values.shape[1:]) for values in (x, y))
            for k, draws in enumerate(shifts):
                if draws is not None and (count := int(counts[step, k])):
                    x[k, :count] = crop_and_flip(x[k, :count], draws)
            yield x, y


def stack_values(values: Sequence[Any]) -> Any:
    """Models, arrays, or tuples of them, one on top of the other."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(stack_values(part) for part in zip(*values, strict=True))
    if isinstance(first, Weights):
        return stack(values)
    return np.stack(values)


def updates_of(task: VectorizedTask, update: LocalUpdate) -> list[LocalUpdate]:
    """Return the clients' own updates."""

    def row(value: Any, k: int) -> Any:
        return value.row(k) if isinstance(value, Weights) else value[k]

    return [
        LocalUpdate(
            member.client,
            update.weights.row(k),
            int(np.asarray(update.samples)[k, 0]),
            int(np.asarray(update.steps)[k, 0]),
            float(np.asarray(update.loss)[k]),
            float(np.asarray(update.reach)[k, 0]),
            {name: row(value, k) for name, value in update.message.items()},
            {name: row(value, k) for name, value in update.state.items()},
            {name: row(value, k) for name, value in update.optimiser.items()},
        )
        for k, member in enumerate(task.members)
    ]
