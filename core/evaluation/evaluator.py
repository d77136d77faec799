"""Losses and errors of many models on one data set: the hot loop of every analysis."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import prod
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..checkpoints import FedscopeError, Weights
from ..checkpoints.io.torch_state import ordinary_tensors
from ..checkpoints.io.warn_user import warn_user
from ..distributed.worker import MapJob
from .accelerators import empty_cache, is_out_of_memory, refuse_without_memory
from .device import CPU, Compute, Item, Result, run_in_workers, torch_threads
from .device_points import measure_points, points_together
from .model_replica import Replica
from .module_copy import copy_module
from .places import WorkerPlace
from .samples import Samples
from .stacked_models import STACKED
from .tasks import Tally
from .uint8_images import Inputs, in_batches
from .validation import refuse_shapeless, try_out


class Together(Protocol):
    """Models that are taken several at a time."""

    def groups(self, order: Sequence[int]) -> list[list[int]]:
        """Group the models, all of them."""

    def combines(self, i: int) -> bool:
        """Tell of a group's first model whether :meth:`logits` gives its outputs."""

    def logits(
        self, group: Sequence[int], replicas: Sequence[Replica], part: int, batch: int, x: Tensor
    ) -> list[Tensor]:
        """Compute outputs of a group's models, formed in ``replicas``, on a batch of a data set."""


#: a model's number, its losses and its errors
Measured = tuple[int, np.ndarray, np.ndarray]

# Chosen by measuring: convolutions are fastest while a batch's activations stay in a core's cache, which 50 images of
# 32 x 32 do; linear layers alone want more rows.
CONVOLUTION_BATCH = 50
CONVOLUTION_PIXELS = 50 * 32 * 32
LINEAR_BATCH = 1000
# On a GPU the whole set, but no more numbers at a time than 10,000 images of 32 x 32 have, whose activations take some
# gigabytes. Not by the memory that is free: the batch, and with it the last bits, would depend on the card.
GPU_BATCH = 10_000
GPU_NUMBERS = GPU_BATCH * 3 * 32 * 32


class Evaluator:
    """Mean loss and error over samples, for as many models as one likes.

    Of a classification, loss(w) = (1/n) Σ_j −log softmax(f(x_j; w))[y_j] and
    error(w) = (1/n) #{j : argmax f(x_j; w) ≠ y_j}; of other tasks what :class:`~fedscope.evaluation.tasks.Task` says,
    with an error of NaN where they have none. Both in one pass, summed in float64. A loss that is NaN or infinite is
    returned as it is; a row of outputs with a NaN counts as misclassified.

    On the CPU every core evaluates a model of its own with one thread, in batches that stay in its cache, so the
    numbers depend neither on the number of workers nor on the order of the models. Of several GPUs each evaluates
    models of its own on all samples, with the numbers that one of them alone would give.

    Args:
        module: the architecture; its own parameters are not used and not changed. Dropout and normalization layers
            are put into evaluation mode.
        samples: the data, and what is learnt; several data sets are measured in one pass over the models.
        compute: the data are brought to its device once, of several to each.
        batch: samples at a time; the default suits the device and the kind of layers. On a GPU that runs out of
            memory it is halved, with a warning.

    Raises:
        FedscopeError: a module that does not take the data, whose outputs are not
            what the task takes ([n, classes]), or that answers the same question differently the second time.

    >>> import numpy as np, torch
    >>> from fedscope import Evaluator, Layout, Samples
    >>> from fedscope.checkpoints import Weights
    >>> module = torch.nn.Linear(2, 3)
    >>> samples = Samples(torch.ones(5, 2), torch.tensor([0, 1, 2, 0, 1]), 3, "toy", "test", np.arange(5))
    >>> zeros = Weights(Layout.of(module), np.zeros((1, 9), np.float32), {})
    >>> loss, error = Evaluator(module, samples).models(zeros)
    >>> round(float(loss[0]), 6), float(error[0])  # ln 3; the first class is always predicted
    (1.098612, 0.6)
    """

    @ordinary_tensors()
    def __init__(
        self,
        module: nn.Module,
        samples: Samples | Sequence[Samples],
        *,
        compute: Compute = CPU,
        batch: int | None = None,
    ) -> None:
        self.compute, self.device = compute, compute.device
        self.parts = (samples,) if isinstance(samples, Samples) else tuple(samples)
        if not self.parts:
            raise FedscopeError("there is no data to measure a loss on; give at least one set of samples")
        self.samples = self.parts[0]
        refuse_shapeless(module)
        self.batch = batch if batch is not None else default_batch(module, self.samples, self.device)
        # the first device's is taken first
        self._idle = [
            WorkerPlace.holding(module, compute.on(k), self.parts) for k in reversed(range(len(self.compute.devices)))
        ]
        place = self._idle[-1]
        self._data = place.data
        # not a method of this object: a cycle would keep it and its models in memory until it is looked for
        self._new = partial(WorkerPlace, module, place.compute, place.data, place.layered)
        (first,) = place.replicas(1)
        self.layout = first.layout
        try_out(first, [(part, x, y) for part, (x, y) in zip(self.parts, self._data, strict=True)])
        if compute.is_gpu:
            for own in self._idle:
                own.stack()
        self._stacks = place.stacked is not None

    @ordinary_tensors()
    def evaluate(
        self,
        count: int,
        form: Callable[[int, Replica], None],
        indices: Iterable[int] | None = None,
        spanning: Together | None = None,
        *,
        here: bool = False,
    ) -> Generator[Measured, None, None]:
        """Yield ``(i, loss, error)`` for models 0..count−1, or those of ``indices`` in that order.

        ``loss`` and ``error`` are float64 [S], one a data set (S = 1 where one was given), each the same number as that
        data set alone would give.

        ``form(i, replica)`` writes model i into a worker's replica; it runs in that worker. Leaving the loop early, or
        Ctrl-C in it, stops the workers at their next batch. With ``spanning``, points of a surface are taken several
        at a time. On a cluster its workers evaluate, each with an evaluator of its own, but for ``here``: where the
        models would have to travel, that costs more than it saves.
        """
        elsewhere = None if here else self.compute.cluster
        order = list(range(count) if indices is None else indices)
        if spanning is not None:
            groups = spanning.groups(order)
        else:
            size = self._at_once()
            groups = [order[start : start + size] for start in range(0, len(order), size)]
        if elsewhere is None:
            results = self._run(partial(self.measured, form, spanning), groups)
        else:
            place = RemoteEvaluation(self, form, spanning)
            results = elsewhere.run(MapJob(_evaluate_remotely, place, _describe_group, list(self.parts)), groups)
        with closing(results):
            for result in results:
                yield from result

    def _at_once(self) -> int:
        """Count the models that are measured together; on several devices no other number than on one."""
        if not self.compute.is_gpu:
            return 1
        return STACKED if self._stacks else points_together(self.parts, self.batch)

    @ordinary_tensors()
    def measured(
        self,
        form: Callable[[int, Replica], None],
        spanning: Together | None,
        group: list[int],
        place: WorkerPlace,
        stop: Event,
    ) -> list[Measured]:
        """Measure a group of models as :meth:`evaluate` yields them, here in a worker's place."""
        if place.compute.is_gpu:
            means = self._measure_there(form, group, place, stop)
            return [(i, loss, error) for i, (loss, error) in zip(group, means, strict=True)]
        formed = place.replicas(len(group))
        for i, replica in zip(group, formed, strict=True):
            self._form(form, i, replica)
        if spanning is None or not spanning.combines(group[0]):
            means = [self._measure(replica, place, stop) for replica in formed]
        else:
            means = self._means(len(group), partial(spanning.logits, group, formed), place, self.batch, stop)
        return [(i, loss, error) for i, (loss, error) in zip(group, means, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        """It is made anew elsewhere, without the cluster."""
        # a copy, because a tensor with a history, as weight_norm keeps, does not travel
        module = copy_module(self._new.args[0])
        return partial(Evaluator, compute=self.compute.here, batch=self.batch), (module, self.parts)

    @ordinary_tensors()
    def models(self, weights: Weights | Sequence[Weights]) -> tuple[np.ndarray, np.ndarray]:
        """Measure loss and error, float64 [C] each, of every row of ``weights`` ([C, P], [P] or a sequence of [P]).

        On the first data set, where several were given.
        """
        if isinstance(weights, Weights):
            rows = len(weights) if weights.parameters.ndim == 2 else 1
            pick = weights.row if weights.parameters.ndim == 2 else lambda i: weights
        else:
            rows, pick = len(weights), weights.__getitem__

        def form(i: int, replica: Replica) -> None:
            model = pick(i)
            load_into(replica, model)

        loss, error = np.empty(rows), np.empty(rows)
        for i, model_loss, model_error in self.evaluate(rows, form, here=True):
            loss[i], error[i] = model_loss[0], model_error[0]
        return loss, error

    @ordinary_tensors()
    def logits(self, models: Sequence[Weights], rows: slice) -> Tensor:
        """Compute outputs of every model on the samples ``rows``, float32 [M, B, ...] on the CPU.

        A model is asked for where it is measured, so that of models on the disk a worker holds one at a time.
        """

        def task(i: int, place: WorkerPlace, stop: Event) -> Tensor:
            (replica,) = place.replicas(1)
            load_into(replica, models[i])

            def outputs(batch: int) -> Tensor:
                parts = [replica.logits(part).float() for part in torch.split(place.data[0][0][rows], batch)]
                return torch.cat(parts).cpu()  # on a device it is waited for once

            return self._halving(outputs, place, len(range(*rows.indices(len(self.samples)))))

        return torch.stack(list(self._run(task, range(len(models)))))

    def answers(self, model: Weights, chosen: int | Tensor) -> np.ndarray:
        """Compute outputs of a model on the first ``chosen`` samples, or on those with these numbers, [n, ...]; here,
        in no worker."""
        with torch_threads(1):
            place = self._idle[0]
            (replica,) = place.replicas(1)
            load_into(replica, model)
            x, count = place.data[0][0], chosen if isinstance(chosen, int) else len(chosen)
            with refuse_without_memory(place.compute.device, f"compute the outputs of {count} samples"):
                return replica.logits(x[:chosen] if isinstance(chosen, int) else x[chosen]).float().cpu().numpy()

    def batches(self, part: int) -> Iterator[Tensor]:
        """Yield the inputs of a data set as they are evaluated."""
        return in_batches(self._data[part][0], self.batch)

    def targets(self, part: int) -> tuple[Tensor, ...]:
        """Return the targets of a data set as they are evaluated, a batch each."""
        return tuple(torch.split(self._data[part][1], self.batch))

    @ordinary_tensors()
    def each(
        self, task: Callable[[Item, WorkerPlace, Event], Result], items: Sequence[Item]
    ) -> Generator[Result, None, None]:
        """Yield what ``task(item, place, stop)`` gives in a worker's place, in the order of the items; here."""
        return self._run(task, items)

    @ordinary_tensors()
    def prepare(self, x: Inputs) -> Inputs:
        """Further inputs as the evaluator's own are kept: on its device, images channels-last."""
        place = self._idle[0]
        with refuse_without_memory(place.compute.device, f"hold {len(x):,} more samples"):
            return place.replicas(1)[0].prepare(x)

    def place(self) -> WorkerPlace:
        """Make a further worker's place, on the first device."""
        return self._new()

    def _form(self, form: Callable[[int, Replica], None], i: int, replica: Replica) -> None:
        try:
            form(i, replica)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # not halved like the batches of a loss: re-estimated statistics depend on how many samples a batch has
            raise FedscopeError(
                f"{replica.compute.device} has no memory left to form a model, and statistics measured again "
                "(--normalization re-estimate) take the most; free some of it, or give --device cpu or another "
                "--normalization"
            ) from None

    def _measure(self, replica: Replica, place: WorkerPlace, stop: Event) -> tuple[np.ndarray, np.ndarray]:
        def means(batch: int) -> tuple[np.ndarray, np.ndarray]:
            (found,) = self._means(1, lambda part, number, x: [replica.logits(x)], place, batch, stop)
            return found

        return self._halving(means, place, max(map(len, self.parts)))

    def _measure_there(
        self, form: Callable[[int, Replica], None], group: list[int], place: WorkerPlace, stop: Event
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Measure a group of models on a device: in one pass, and where there is no memory for that one by one."""
        replica = place.stacked[1] if place.stacked is not None else place.replicas(1)[0]
        if len(group) > 1:

            def at_once(k: int) -> Replica:
                form(group[k], replica)
                return replica

            try:
                return measure_points(place, self.parts, len(group), at_once, self.batch, stop)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            empty_cache(place.compute.device)

        def alone(i: int) -> tuple[np.ndarray, np.ndarray]:
            def formed(k: int) -> Replica:
                self._form(form, i, replica)
                return replica

            def means(batch: int) -> tuple[np.ndarray, np.ndarray]:
                (found,) = measure_points(place, self.parts, 1, formed, batch, stop)
                return found

            return self._halving(means, place, max(map(len, self.parts)))

        return [alone(i) for i in group]

    def _halving(self, work: Callable[[int], Result], place: WorkerPlace, most: int) -> Result:
        """Return ``work(batch)``, with half the batch as often as a device's memory runs out.

        Args:
            most: samples that there are at a time.

        Raises:
            FedscopeError: there is no memory for one sample at a time.
        """
        device = place.compute.device
        while True:
            batch = self.batch
            try:
                return work(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                batch = min(batch, most)
                if batch == 1:
                    raise FedscopeError(
                        f"{device} has no memory left for even one sample of {self.samples.label} at a time; "
                        "--device cpu always can"
                    ) from None
            # outside of `except`, which keeps the tensors of the failed attempt alive
            self.batch = min(self.batch, max(1, batch // 2))
            empty_cache(device)
            warn_user(f"{device} ran out of memory with {batch:,} samples at a time; going on with {self.batch:,}")

    def _means(
        self,
        models: int,
        outputs_of: Callable[[int, int, Tensor], Sequence[Tensor]],
        place: WorkerPlace,
        batch: int,
        stop: Event,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Measure loss and error [S] of so many models: every batch under all of them before the next one.

        ``outputs_of(part, number, x)`` gives every model's outputs on a batch of a data set.
        """
        tallies = [[Tally(part.task, place.compute.device) for part in self.parts] for _ in range(models)]
        with torch.inference_mode():
            for part, (inputs, targets) in enumerate(place.data):
                batches = zip(in_batches(inputs, batch), torch.split(targets, batch), strict=True)
                for number, (x, y) in enumerate(batches):
                    if stop.is_set():
                        raise InterruptedError("the evaluation was told to stop")
                    for tally, outputs in zip(tallies, outputs_of(part, number, x), strict=True):
                        tally[part].add(outputs, y)
        means = (np.array([tally.means() for tally in of_model]).T for of_model in tallies)
        return [(loss, error) for loss, error in means]

    def _run(
        self, task: Callable[[Item, WorkerPlace, Event], Result], items: Sequence[Item]
    ) -> Generator[Result, None, None]:
        return run_in_workers(task, items, make=self._new, workers=self.compute.workers, idle=self._idle)


@dataclass(frozen=True)
class RemoteEvaluation:
    """A worker's evaluator on a cluster, and what it measures."""

    evaluator: Evaluator
    form: Callable[[int, Replica], None]
    spanning: Together | None

    def __call__(self) -> tuple[Callable[..., list[Measured]], WorkerPlace]:
        """Make the function that measures a group there, and the place where it does."""
        return partial(self.evaluator.measured, self.form, self.spanning), self.evaluator.place()


def _evaluate_remotely(group: list[int], place: tuple[Callable[..., list[Measured]], WorkerPlace], stop: Event) -> Any:
    measured, own = place
    return measured(group, own, stop)


def _describe_group(group: list[int]) -> str:
    return f"point {group[0]}" if len(group) == 1 else f"points {group[0]} to {group[-1]}"


def default_batch(module: nn.Module, samples: Samples, device: str) -> int:
    """Choose how many samples to evaluate at a time; depends on nothing but the module, the sample's shape and the
    device."""
    if not device.startswith("cpu"):
        shape, targets = samples.x.shape, samples.y.shape
        inputs = 3 * prod(shape[2:]) if len(shape) > 2 else prod(shape[1:])  # an image of one channel gets as many
        outputs = prod(targets[1:]) * samples.classes if samples.task.tokens else 1
        return min(GPU_BATCH, max(1, GPU_NUMBERS // max(1, inputs, outputs)))
    if not any(isinstance(layer, _ConvNd) for layer in module.modules()):
        return LINEAR_BATCH
    pixels = prod(samples.x.shape[2:]) if samples.x.dim() > 2 else prod(samples.x.shape[1:])
    return min(max(CONVOLUTION_BATCH, CONVOLUTION_PIXELS // max(1, pixels)), LINEAR_BATCH // 2)


def load_into(replica: Replica, model: Weights) -> None:
    """Load a model by the names of its tensors, which another program may have recorded in an order of its own."""
    own = model.layout.as_in(replica.layout)
    if own is not model.layout:
        model = own.flatten(model.arrays())
    replica.load(model.parameters, model.buffers)
