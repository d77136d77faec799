"""A client's local training: one loop, in flat parameter space, that every client method shares.

The module's parameters are views of one vector ``w`` [P] and their gradients views of one vector ``g`` [P], so a
method's correction is arithmetic on vectors (``g += c - c_i``), as it stands in the papers. The same code trains a
whole cohort at once, with a row a client, see :mod:`fedscope.training.local.vectorized_training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Weights
from ...evaluation.criteria import LabelCriterion
from ...evaluation.standard_tasks import PADDED
from ...evaluation.uint8_images import Inputs
from ..guards.protected_classes import holds_arrays
from ..guards.returned_arrays import ReturnedError
from ..rng import BESIDE, generator, torch_generator
from ..settings.registry import method_name
from .augmentation import crop_and_flip
from .device_batches import batches_of_epoch
from .loss_sum import LossSum
from .optimisers import left_by, stepper
from .worker_model import (
    Objective,
    TrainableModel,
    has_batch_statistics,
    in_training,
    loss_of_batch,
    mean_loss,
    normalises_one,
)

if TYPE_CHECKING:
    from ..methods.base import ClientMethod, ClientState, LocalSchedule, State
    from ..models.model_info import ModelInfo

Batch = tuple[Tensor, Tensor]


@holds_arrays()
@dataclass(frozen=True)
class LocalTask:
    """One client's work in one round.

    Attributes:
        x, y: the training split, on the device; ``indices`` are the client's samples in it.
        start: the model that was sent.
        pace: this round's learning rate and epochs.
        facts: of the federation's model.
        draw: 1 for the recorded training, 2, 3, ... for replays with other mini-batch orders. A method that draws
            random numbers makes its generator of it, too: ``np.random.default_rng((task.seed, task.round, task.client,
            task.draw))``. Without it all replays of a round would have the same noise.
        sent: what was sent with the model, see :meth:`fedscope.training.methods.base.ClientMethod.share`.
        surveyed: the cohort's average of what the clients' surveys gave.
        state: what the client kept from its last participation, which was in round ``last``; empty and 0 before that.
    """

    round: int
    client: int
    x: Inputs
    y: Tensor
    indices: np.ndarray
    start: Weights
    pace: LocalSchedule
    seed: int
    facts: ModelInfo
    draw: int = 1
    augment: str = "none"
    sent: State = field(default_factory=dict)
    surveyed: State = field(default_factory=dict)
    state: ClientState = field(default_factory=dict)
    last: int = 0
    bench: TrainableModel | None = None
    stop: Event | None = None

    @property
    def place(self) -> TrainableModel:
        """The worker's bench; every task has one when it is worked on."""
        assert self.bench is not None
        return self.bench

    @property
    def objective(self) -> Objective:
        """The mean loss of a batch."""
        return mean_loss(self.facts.task)

    def loss_of(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Compute the task's mean loss of a batch's outputs, to which a method adds terms of its own."""
        return loss_of_batch(self.facts.task, outputs, y)

    def labelled(self, y: Tensor) -> Tensor | slice:
        """Find the samples of a batch that have a class, all but those whose label the task's criterion ignores: what a
        method's own terms by class are of."""
        there = y != PADDED if isinstance(self.facts.task, LabelCriterion) else None
        return slice(None) if there is None or bool(there.all()) else there

    @property
    def samples(self) -> Any:
        """n_i, how many samples the client has."""
        return len(self.indices)

    @property
    def away(self) -> Any:
        """Rounds since the client's last participation."""
        return self.round - self.last

    def kept(self, name: str) -> np.ndarray:
        """Return the vector [P] that the client kept under a name; zeros before its first participation."""
        vector = self.state[name] if name in self.state else self.facts.zeros()
        assert isinstance(vector, np.ndarray)
        return vector

    def kept_model(self, name: str) -> Weights | None:
        """Return the model that the client kept under a name; None before its first participation."""
        model = self.state.get(name)
        assert model is None or isinstance(model, Weights)
        return model

    def each(self, work: Callable[[LocalTask], Any]) -> Any:
        """Apply ``work`` to the client alone: models, arrays, or tuples of them.

        For what a method does before local training and cannot do for several clients at once.
        """
        return work(self)

    def beside(self, start: Weights, epochs: int) -> LocalTask:
        """Return the same client's work on a model of its own, from another start, with orders that nothing else
        has."""
        return replace(self, start=start, pace=self.pace._replace(epochs=epochs), draw=self.draw + BESIDE)

    def full_gradient(self, method: ClientMethod) -> Tensor:
        """See :func:`full_gradient`."""
        bench, count = self.place, self.facts.task.count
        bench.begin(self, pass_=1)
        total = torch.zeros_like(bench.g)
        rows = torch.from_numpy(self.indices).to(self.x.device)
        whole = count(self.y[rows]) or 1  # of a client in which nothing counts each gradient is 0
        for block in torch.split(rows, batches_an_epoch(self, method)):
            if self.stop is not None and self.stop.is_set():
                raise Stopped
            bench.loss(self.objective, self.x[block], self.y[block])
            total.add_(bench.g, alpha=count(self.y[block]) / whole)
        return bench.to_all_names(bench.add_decay(total, method.gradient_decay))

    def sgd(self, method: ClientMethod, steps: Steps) -> LocalUpdate:
        """See :func:`local_sgd`."""
        bench = self.place
        bench.begin(self)
        w, g = bench.w, bench.g
        optimiser = stepper(self, method)
        decay, momentum = method.gradient_decay, method.momentum if optimiser is None else 0.0
        velocity = torch.zeros_like(w) if momentum else None
        losses, done = LossSum(), 0
        unit_velocity, reach = 0.0, 0.0
        each = len(batches_an_epoch(self, method))
        planned = self.pace.epochs * each
        for x, y in batches(self, method):
            if steps.gradient is not None:
                losses.add(steps.gradient(x, y))
            else:
                losses.add(bench.decayed(steps.objective or self.objective, x, y, decay))
            with torch.no_grad():
                if method.clip:
                    g.mul_((method.clip / (length(g) + 1e-12)).clamp(max=1.0))
                if steps.correct is not None:
                    refuse_another(method, steps.correct(w, g), g, w)
                bench.hold()
                eta = self.pace.lr if steps.rate is None else steps.rate(done, planned)
                if optimiser is None:
                    direction = g if velocity is None else velocity.mul_(momentum).add_(g)
                    w.add_(direction, alpha=-eta)
                else:
                    bench.step(optimiser, eta)
            unit_velocity = momentum * unit_velocity + 1
            reach += eta * unit_velocity
            done += 1
            if steps.after_epoch is not None and done % each == 0:
                steps.after_epoch(done // each)
        return LocalUpdate(
            self.client,
            bench.read(),
            len(self.indices),
            done,
            losses.total() / max(done, 1),
            reach if optimiser is None else float("nan"),
            optimiser=left_by(optimiser, self, method),
        )


@dataclass(frozen=True)
class Steps:
    """The changes of a method to the steps of :func:`local_sgd`, which says what each of them is."""

    objective: Objective | None = None
    gradient: Callable[[Tensor, Tensor], Any] | None = None
    correct: Callable[[Tensor, Tensor], Any] | None = None
    rate: Callable[[int, Any], Any] | None = None
    after_epoch: Callable[[int], Any] | None = None


@holds_arrays()
@dataclass(frozen=True)
class LocalUpdate:
    """The result of a client's local training.

    Where several clients are trained at once, models and vectors have a row a client and numbers are columns [C, 1].

    Attributes:
        weights: its model; steps: K_i; loss: mean over the steps of the task's loss of the mini-batch, before the step
            and without a method's own terms.
        samples: n_i, or how many of them it has used: a run records that, and servers read it as ``cohort.samples``.
            The weights p are made of the partition's n_i all the same, by the server's ``weights``.
        reach: how far a constant unit gradient would have carried it, see
        :class:`fedscope.training.methods.base.Cohort`. message: what it sends with the model: arrays by name.
        state: what it keeps for its next participation; optimiser: what its optimiser adds to that.
    """

    client: int
    weights: Weights
    samples: Any
    steps: Any
    loss: Any
    reach: Any
    message: State = field(default_factory=dict)
    state: ClientState = field(default_factory=dict)
    optimiser: State = field(default_factory=dict)


class Stopped(Exception):
    """Local training was told to stop; the round is not recorded."""


def batches_an_epoch(task: LocalTask, method: ClientMethod) -> list[int]:
    """Return the sizes of an epoch's mini-batches; the last one may be smaller. Raises as :func:`batch_sizes`."""
    bench, samples = task.bench, len(task.indices)
    joined = bench is not None and bench.batch_statistics
    if bench is not None and stays_single(samples, method.batch):
        joined = not bench.takes_one(task.x)
    return batch_sizes(task.client, samples, method.batch, joined=joined)


def stays_single(samples: int, batch: int) -> bool:
    """Check whether a client has batches of one sample that have no other to join."""
    return samples == 1 or (batch == 1 and samples > 0)


def batch_sizes(client: int, samples: int, batch: int, *, joined: bool) -> list[int]:
    """A client's samples in mini-batches.

    Args:
        joined: whether a last batch of one sample joins the one before, because BatchNorm may have no deviation of one.

    Raises:
        FedscopeError: batches of one sample that have no other to join.

    >>> batch_sizes(0, 11, 5, joined=False), batch_sizes(0, 11, 5, joined=True)
    ([5, 5, 1], [5, 6])
    """
    whole, rest = divmod(samples, batch)
    sizes = [batch] * whole + [rest] * (rest > 0)
    if joined and sizes[-1:] == [1]:
        if stays_single(samples, batch):
            raise FedscopeError(
                f"client {client} has batches of one sample, which BatchNorm cannot normalise; give the client "
                "more samples (fewer clients), a larger --batch, or use a model with GroupNorm"
            )
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def refuse_single_samples(module: nn.Module, samples: Sequence[int], batch: int, x: Inputs) -> None:
    """Refuse clients that a module could not be trained on, before the round in which the first of them is drawn.

    Args:
        samples: of each client.
        x: the inputs of the training split.

    Raises:
        FedscopeError: as :func:`batch_sizes`.
    """
    single = [(client, own) for client, own in enumerate(samples) if stays_single(own, batch)]
    if not single:
        return
    trained = in_training(module)
    if has_batch_statistics(trained) and not normalises_one(trained, x):
        client, own = single[0]
        batch_sizes(client, own, batch, joined=True)


def batches(task: LocalTask, method: ClientMethod) -> Iterator[Batch]:
    """Yield the client's mini-batches of a round: every sample once an epoch, the last batch of an epoch may be
    smaller.

    Orders depend on (run.seed, round, client, draw) alone.
    """
    order = generator(task.seed, "batches", round=task.round, client=task.client, draw=task.draw)
    shifts = None
    if task.augment != "none":
        shifts = torch_generator(task.seed, "augment", round=task.round, client=task.client, draw=task.draw)
    sizes = batches_an_epoch(task, method)
    for _ in range(task.pace.epochs):
        shuffled = task.indices[order.permutation(len(task.indices))]
        if task.x.device.type != "cpu":
            for batch in batches_of_epoch(task, shuffled, sizes, shifts):
                if task.stop is not None and task.stop.is_set():
                    raise Stopped
                yield batch
            continue
        for rows in torch.split(torch.from_numpy(shuffled), sizes):
            if task.stop is not None and task.stop.is_set():
                raise Stopped
            x = task.x[rows]
            yield (crop_and_flip(x, shifts) if shifts is not None else x), task.y[rows]


def full_gradient(task: LocalTask, method: ClientMethod) -> Tensor:
    """Compute the gradient of the client's whole objective at the model that was sent, weight decay included, [P].

    The mean over all of the client's samples as they are (not augmented), in blocks of a batch.
    """
    return task.full_gradient(method)


def local_sgd(
    task: LocalTask,
    method: ClientMethod,
    *,
    objective: Objective | None = None,
    gradient: Callable[[Tensor, Tensor], Any] | None = None,
    correct: Callable[[Tensor, Tensor], Any] | None = None,
    rate: Callable[[int, Any], Any] | None = None,
    after_epoch: Callable[[int], Any] | None = None,
) -> LocalUpdate:
    """Mini-batch SGD from the model that was sent, as torch's ``SGD`` steps it, or the method's other optimiser.

    g = gradient of the objective + weight_decay w, clipped to norm ``clip``, then corrected; v = momentum v + g;
    w <- w - eta v, with v = 0 at the start of the round. Another optimiser steps along the same g; of AdamW and Muon it
    is without weight_decay w, by which they shrink w themselves. Frozen parameters (``requires_grad`` False) stay, and
    a parameter with several names is one: it counts once in a norm, and its names end with the same numbers.

    Args:
        objective: what is minimised; the task's mean loss by default. One with terms besides that returns the sum and
            the task's loss alone, which is then the training loss that a run tells.
        gradient: leaves a batch's gradient in the bench's ``g``, weight decay included, and the model as it was, and
            returns the loss, given ``(x, y)``; by default that of ``objective``.
        correct: changes ``g`` in place, given ``(w, g)``; after clipping. One that returns another gradient is refused.
        rate: eta of local step k = 0, 1, ... of K, given ``(k, K)``; the round's constant rate by default.
        after_epoch: called with the number of epochs that are done, after each.
    """
    return task.sgd(method, Steps(objective, gradient, correct, rate, after_epoch))


def refuse_another(method: ClientMethod, returned: Any, g: Tensor, w: Tensor) -> None:
    """Refuse a gradient that ``correct`` returned instead of changing ``g``.

    What shares the memory of ``g`` or ``w`` is no other gradient, nor is what was changed in place, as a sum that the
    method keeps: such a line may end in it.

    Raises:
        ReturnedError: an array as large as ``g``.
    """
    if not isinstance(returned, Tensor | np.ndarray) or returned.shape != g.shape:
        return
    if isinstance(returned, Tensor):
        memory = returned.untyped_storage().data_ptr()
        kept = returned.is_inference() or returned._version > 0  # a version counts what was done in place
        if kept or memory in (g.untyped_storage().data_ptr(), w.untyped_storage().data_ptr()):
            return
    raise ReturnedError(
        f"the correct of {method_name(method)} returned another gradient, which nobody takes; change g in place, as "
        "g.add_(...) and g.mul_(...) do, or copy the other one to it, as in g.copy_(...)"
    )


def length(v: Tensor) -> Tensor:
    """‖v‖: of a vector [P] a number, of a cohort's [C, P] a column [C, 1]."""
    norm: Tensor = v.norm() if v.dim() == 1 else v.norm(dim=1, keepdim=True)
    return norm
