"""Losses and errors of many models on one data set: the hot loop of every analysis."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from math import prod
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ...checkpoints import FedscopeError, FedscopeWarning, Weights
from .compute import CPU, Compute
from .replica import Replica, Replicas
from .samples import Samples
from .tally import Tally
from .tasks import Task
from .trial import refuse_shapeless, try_out
from .workers import Item, Result, run_in_workers

if TYPE_CHECKING:
    from ..first_layer.spanning import Spanning

# Chosen by measuring: convolutions are fastest while a batch's activations stay in a core's cache, which 50 images of
# 32 x 32 do; linear layers alone want more rows. On a GPU the whole set, as far as memory sensibly goes.
CONVOLUTION_BATCH = 50
CONVOLUTION_PIXELS = 50 * 32 * 32
LINEAR_BATCH = 1000
GPU_BATCH = 10_000


class Evaluator:
    """Mean loss and error over samples, for as many models as one likes.

    Of a classification, loss(w) = (1/n) Σ_j −log softmax(f(x_j; w))[y_j] and
    error(w) = (1/n) #{j : argmax f(x_j; w) ≠ y_j}; of other tasks what :class:`Task` says, with an error of NaN where
    they have none. Both in one pass, summed in float64. A loss that is NaN or infinite is returned as it is; a row of
    outputs with a NaN counts as misclassified.

    On the CPU every core evaluates a model of its own with one thread, in batches that stay in its cache, so the
    numbers depend neither on the number of workers nor on the order of the models.

    Args:
        module: the architecture; its own parameters are not used and not changed. Dropout and normalization layers
            are put into evaluation mode.
        samples: the data, and what is learnt; several data sets are measured in one pass over the models.
        compute: the data are brought to its device once.
        batch: samples at a time; the default suits the device and the kind of layers. On a GPU that runs out of
            memory it is halved, with a warning.

    Raises:
        FedscopeError: a module that does not take the data, whose outputs are not
            what the task takes ([n, classes]), or that answers the same question differently the second time.

    >>> import numpy as np, torch
    >>> from fedscope.checkpoints import Layout, Weights
    >>> module = torch.nn.Linear(2, 3)
    >>> samples = Samples(torch.ones(5, 2), torch.tensor([0, 1, 2, 0, 1]), 3, "toy", "test", np.arange(5))
    >>> zeros = Weights(Layout.of(module), np.zeros((1, 9), np.float32), {})
    >>> loss, error = Evaluator(module, samples).models(zeros)
    >>> round(float(loss[0]), 6), float(error[0])  # ln 3; the first class is always predicted
    (1.098612, 0.6)
    """

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
        first = Replica(module, self.compute)
        self.layout = first.layout
        self.batch = batch if batch is not None else default_batch(module, self.samples, self.device)
        # not a method of this object: a cycle would keep it and its models in memory until it is looked for
        self._new = partial(Replica, module, self.compute)
        self._idle = [Replicas(self._new, [first])]
        self._data = [(first.prepare(part.x), part.y.to(first.device)) for part in self.parts]
        try_out(first, [(part, x, y) for part, (x, y) in zip(self.parts, self._data, strict=True)])

    def evaluate(
        self,
        count: int,
        form: Callable[[int, Replica], None],
        indices: Iterable[int] | None = None,
        spanning: Spanning | None = None,
    ) -> Generator[tuple[int, np.ndarray, np.ndarray], None, None]:
        """Yield ``(i, loss, error)`` for models 0..count−1, or those of ``indices`` in that order.

        ``loss`` and ``error`` are float64 [S], one a data set (S = 1 where one was given), each the same number as that
        data set alone would give.

        ``form(i, replica)`` writes model i into a worker's replica; it runs in that worker. Leaving the loop early, or
        Ctrl-C in it, stops the workers at their next batch. With ``spanning``, points of a surface are taken several
        at a time.
        """
        order = list(range(count) if indices is None else indices)

        def task(group: list[int], replicas: Replicas, stop: Event) -> list[tuple[int, np.ndarray, np.ndarray]]:
            own = replicas.first(len(group))
            for i, replica in zip(group, own, strict=True):
                self._form(form, i, replica)
            if spanning is None or not spanning.combines(group[0]):
                return [(i, *self._measure(replica, stop)) for i, replica in zip(group, own, strict=True)]
            return self._measure_together(group, own, spanning, stop)

        groups = [[i] for i in order] if spanning is None else spanning.groups(order)
        with closing(self._run(task, groups)) as results:
            for result in results:
                yield from result

    def models(self, weights: Weights | Sequence[Weights]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and error, float64 [C] each, of every row of ``weights`` ([C, P], [P] or a sequence of [P]).

        On the first data set, where several were given.
        """
        if isinstance(weights, Weights):
            rows = len(weights) if weights.parameters.ndim == 2 else 1
            pick = weights.row if weights.parameters.ndim == 2 else lambda i: weights
        else:
            rows, pick = len(weights), weights.__getitem__

        def form(i: int, replica: Replica) -> None:
            model = pick(i)
            replica.load(model.parameters, model.buffers)

        loss, error = np.empty(rows), np.empty(rows)
        for i, model_loss, model_error in self.evaluate(rows, form):
            loss[i], error[i] = model_loss[0], model_error[0]
        return loss, error

    def logits(self, models: Sequence[Weights], rows: slice) -> Tensor:
        """Outputs of every model on the samples ``rows``, float32 [M, B, ...] on the CPU."""
        x = self._data[0][0][rows]

        def task(model: Weights, replicas: Replicas, stop: Event) -> Tensor:
            (replica,) = replicas.first(1)
            replica.load(model.parameters, model.buffers)
            parts = [replica.logits(part).float().cpu() for part in torch.split(x, self.batch)]
            return torch.cat(parts)

        return torch.stack(list(self._run(task, list(models))))

    def answers(self, model: Weights, count: int) -> np.ndarray:
        """Outputs of a model on the first ``count`` samples, [count, ...]; computed here, in no worker."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            (replica,) = self._idle[0].first(1)
            replica.load(model.parameters, model.buffers)
            return replica.logits(self._data[0][0][:count]).float().cpu().numpy()
        finally:
            torch.set_num_threads(before)

    def batches(self, part: int) -> Iterator[Tensor]:
        """The inputs of a data set as they are evaluated."""
        return iter(torch.split(self._data[part][0], self.batch))

    def prepare(self, x: Tensor) -> Tensor:
        """Further inputs as the evaluator's own are kept: on its device, images channels-last."""
        return self._idle[0].first(1)[0].prepare(x)

    def _form(self, form: Callable[[int, Replica], None], i: int, replica: Replica) -> None:
        try:
            form(i, replica)
        except torch.OutOfMemoryError:
            # not halved like the batches of a loss: re-estimated statistics depend on how many samples a batch has
            raise FedscopeError(
                f"{self.device} has no memory left to form a model, and statistics measured anew (--normalization "
                "re-estimate) take the most; free some of it, or give --device cpu or another --normalization"
            ) from None

    def _measure(self, replica: Replica, stop: Event) -> tuple[np.ndarray, np.ndarray]:
        while True:
            batch = self.batch
            try:
                results = [
                    self._mean(replica, part.task, x, y, batch, stop)
                    for part, (x, y) in zip(self.parts, self._data, strict=True)
                ]
                return np.array([loss for loss, _ in results]), np.array([error for _, error in results])
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise FedscopeError(
                        f"{self.device} has no memory left for even one sample of {self.samples.label} at a time; "
                        "--device cpu always can"
                    ) from None
            # outside of `except`, which keeps the tensors of the failed attempt alive
            self.batch = min(self.batch, max(1, batch // 2))
            torch.cuda.empty_cache()
            warnings.warn(
                f"{self.device} ran out of memory with {batch:,} samples at a time; going on with {self.batch:,}",
                FedscopeWarning,
                stacklevel=2,
            )

    def _measure_together(
        self, group: Sequence[int], replicas: Sequence[Replica], spanning: Spanning, stop: Event
    ) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Every batch under all models of a group before the next batch; the same sums as :meth:`_mean` makes."""
        tallies = [[Tally(part.task, self.device) for part in self.parts] for _ in group]
        with torch.inference_mode():
            for part, (_, labels) in enumerate(self._data):
                for batch, (x, y) in enumerate(zip(self.batches(part), torch.split(labels, self.batch), strict=True)):
                    if stop.is_set():
                        raise InterruptedError("the evaluation was told to stop")
                    every = spanning.logits(group, replicas, part, batch, x)
                    for tally, outputs in zip(tallies, every, strict=True):
                        tally[part].add(outputs, y)
        results = [np.array([tally.means() for tally in own]).T for own in tallies]
        return [(i, loss, error) for i, (loss, error) in zip(group, results, strict=True)]

    def _mean(
        self, replica: Replica, learnt: Task, inputs: Tensor, labels: Tensor, batch: int, stop: Event
    ) -> tuple[float, float]:
        tally = Tally(learnt, self.device)
        with torch.inference_mode():
            for x, y in zip(torch.split(inputs, batch), torch.split(labels, batch), strict=True):
                if stop.is_set():
                    raise InterruptedError("the evaluation was told to stop")
                tally.add(replica.logits(x), y)
        return tally.means()

    def _run(
        self, task: Callable[[Item, Replicas, Event], Result], items: Sequence[Item]
    ) -> Generator[Result, None, None]:
        used: list[Replicas] = []

        def make() -> Replicas:
            try:
                replicas = self._idle.pop()
            except IndexError:
                replicas = Replicas(self._new, [])
            used.append(replicas)
            return replicas

        try:
            yield from run_in_workers(task, items, make=make, workers=self.compute.workers)
        finally:
            self._idle.extend(used)


def default_batch(module: nn.Module, samples: Samples, device: str) -> int:
    """How many samples to evaluate at a time; depends on nothing but the module, the sample's shape and the device."""
    if not device.startswith("cpu"):
        return GPU_BATCH
    if not any(isinstance(layer, _ConvNd) for layer in module.modules()):
        return LINEAR_BATCH
    pixels = prod(samples.x.shape[2:]) if samples.x.dim() > 2 else samples.x[0].numel()
    return min(max(CONVOLUTION_BATCH, CONVOLUTION_PIXELS // max(1, pixels)), LINEAR_BATCH // 2)
