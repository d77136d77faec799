"""Gradient and Hessian-vector products of the loss on a whole sample set, in batches and on all cores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import Weights
from ...evaluation.accelerators import is_out_of_memory, refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers
from ...evaluation.differentiation import (
    dense,
    differentiating,
    refuse_left_out,
    refuse_without_gradient,
    without_gradients,
)
from ...evaluation.evaluator import default_batch
from ...evaluation.float64 import where_float64
from ...evaluation.memory import halve_without_memory
from ...evaluation.model_replica import FlatModule
from ...evaluation.module_copy import copy_module
from ...evaluation.process_switches import plain_attention, without_cudnn
from ...evaluation.samples import Samples
from ...evaluation.tasks import Task
from .second_derivatives import BESIDE, DIRECTIONS, FEW, PlainWeightNorm, check_products

# At most so many samples at a time, because second derivatives keep several times a forward pass's activations. A GPU
# is given more, which cost it hardly more, and half as many where memory does not do.
BATCH, GPU_BATCH = 500, 2000
# Batches are summed in at most so many shares, whose sums [K, P] wait in memory for those before them.
SHARES = 64

#: what is asked of a batch (x, y): rows of derivatives, each with the loss, as a tensor a parameter
Ask = Callable[["_Differentiable", Tensor, Tensor], Iterator[tuple[Tensor, list[Tensor]]]]


@dataclass
class TriedOut:
    """What has been tried out of a network on some samples: derivatives in fewer of its parameters are as they are.

    Attributes:
        once: parameters in which it has a gradient.
        twice: parameters in which its second derivatives are right.
        plain: whether weight normalization is differentiated in plain operations for that.
    """

    once: frozenset[str] = frozenset()
    twice: frozenset[str] = frozenset()
    plain: bool = False


class Derivatives:
    """First and second derivatives of the mean loss L(w) over samples in w.

    Of a classification L(w) = (1/n) Σ_j −log softmax(f(x_j; w))[y_j]; of other tasks see :class:`Task`.

    The module is in evaluation mode and computes in its own dtype (float32), TF32 off; sums over samples are float64,
    over batches and shares of batches that depend on the data alone, so that the numbers do not depend on the number of
    workers. Memory does not grow with the samples.

    A Hessian-vector product is the gradient of ⟨∇L, v⟩ (Pearlmutter, "Fast Exact Multiplication by the Hessian", 1994).
    curvlinops' operator computes the same numbers by forward over reverse mode, whose nesting level in torch belongs to
    the process and not to a thread, so that it cannot run in a worker a core; with torch's own threads, on two busy
    cores, it took twice as long on the papers' CNN and four times on a perceptron.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: the data, and what is learnt.
        compute: in float32 whatever its precision.
        trained: names of the parameters that derivatives are taken in; they are 0 in all others. None: all.
        tried: what others of the same module and samples have tried out.

    >>> import numpy as np, torch
    >>> from fedscope.checkpoints import Layout
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> samples = Samples(torch.ones(4, 1), torch.tensor([0, 1, 1, 1]), 2, "toy", "test", np.arange(4))
    >>> zeros = Weights(Layout.of(module), np.zeros(2, np.float32), {})
    >>> derivatives = Derivatives(module, samples)
    >>> loss, gradient = derivatives.gradient(zeros)  # softmax less the labels' shares: (1/2 - 1/4, 1/2 - 3/4)
    >>> round(loss, 6), gradient.tolist()
    (0.693147, [0.25, -0.25])
    >>> derivatives.products(zeros, np.array([[1.0, 0.0]])).tolist()  # diag(p) - p p' = (1, -1; -1, 1) / 4
    [[0.25, -0.25]]
    """

    def __init__(
        self,
        module: nn.Module,
        samples: Samples,
        *,
        compute: Compute = CPU,
        trained: Collection[str] | None = None,
        tried: TriedOut | None = None,
    ) -> None:
        self.compute = compute.exact
        self.device = self.compute.device
        self.batch = min(GPU_BATCH if compute.is_gpu else BATCH, default_batch(module, samples, self.device))
        self._module, self._trained = module, trained
        self._task, self._count = samples.task, samples.task.count(samples.y)
        self._label = f"samples of {samples.label}"
        with refuse_without_memory(self.device, f"hold a model and the {self._label}"):
            first = _Differentiable(module, self._task, self.compute, trained)
            self._x = first.prepare(samples.x)
            self._y = samples.y.to(self.device)
        self.layout = first.layout
        self._idle = [first]
        self._names = frozenset(self.layout.slices if trained is None else trained)
        self._tried = TriedOut() if tried is None else tried
        self._sums_on = where_float64(self.compute).device
        starts = range(0, len(samples), self.batch)
        each = -(-len(starts) // SHARES)
        # a GPU takes them one after the other and sums them itself
        self._shares = [starts] if self.compute.is_gpu else [starts[i : i + each] for i in range(0, len(starts), each)]

    def gradient(self, model: Weights, moved: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """L and ∇L, float64 [P], at the model, or with its buffers at the parameters ``moved`` [P]."""
        self._try_once(model)
        parameters = model.parameters if moved is None else moved
        total = self._sum(model, parameters, lambda own, x, y: own.loss_and_gradient(x, y), 1)
        return float(total[0, -1]), total[0, :-1]

    def products(self, model: Weights, vectors: np.ndarray) -> np.ndarray:
        """H v for every row v of ``vectors`` [K, P] with H = ∇²L at the model, float64 [K, P].

        Several at once share the passes up to the gradient.

        Raises:
            FedscopeError: torch's second derivatives are wrong.
        """
        self._try_once(model)
        if not self._names <= self._tried.twice:
            self._tried.plain = self._try_twice(model)
            self._tried.twice = self._names
        plain = self._tried.plain

        def ask(own: _Differentiable, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
            with PlainWeightNorm() if plain else nullcontext():
                yield from own.products(x, y, v)

        with refuse_without_memory(self.device, f"hold {len(vectors)} directions of {self.layout.size:,} parameters"):
            # rounded before they travel
            v = torch.as_tensor(vectors).to(self._idle[0].w.dtype).to(self.device)
        return self._sum(model, model.parameters, ask, len(v))[:, :-1]

    def _try_once(self, model: Weights) -> None:
        """Refuse a loss of whose gradient torch leaves something out."""
        if self._names <= self._tried.once:
            return
        (own,) = self._idle
        # a device keeps it for the question behind
        (own.hold if self.compute.is_gpu else own.load)(model.parameters, model.buffers)
        try:
            with differentiable_twice(self._module), self.compute.products():
                own.try_once(self._x[:FEW], self._y[:FEW])
        except Exception as error:
            if is_out_of_memory(error):
                return  # said where all samples are asked of, in smaller batches too
            raise
        self._tried.once = self._names

    def _try_twice(self, model: Weights) -> bool:
        """Refuse a loss whose second derivatives torch has wrong, and tell whether there is weight normalization.

        On the processor in float64 where the network computes in it.
        """
        x, y = self._x[:FEW], self._y[:FEW]
        with differentiable_twice(self._module), PlainWeightNorm() as seen:
            try:
                own = _Differentiable(copy_module(self._module).double(), self._task, CPU, self._trained)
                there = own.prepare(x.cpu()), y.cpu().double() if y.is_floating_point() else y.cpu()
                vectors, products, scale, beside = own.in_directions(model, *there)
                gradient: Callable[[np.ndarray], np.ndarray] | None = partial(own.gradient_near, beside, *there)
            except Exception:  # whatever a forward or a task does that takes no float64: it is asked in its own type
                own = _Differentiable(self._module, self._task, self.compute, self._trained)
                with self.compute.products():
                    vectors, products, scale, _ = own.in_directions(model, x, y)
                gradient = None
            check_products(type(self._module).__name__, vectors, products, gradient, scale)
        return bool(seen.met)

    def _sum(self, model: Weights, parameters: np.ndarray, ask: Ask, rows: int) -> np.ndarray:
        """Rows [K, P + 1], the loss last, that ``ask`` yields batch by batch, summed and divided by n."""

        def make() -> _Differentiable:
            return _Differentiable(self._module, self._task, self.compute, self._trained)

        def task(share: range, own: _Differentiable, stop: Event) -> np.ndarray:
            if not self.compute.is_gpu:
                own.load(parameters, model.buffers)
                return self._share(own, ask, rows, share, stop)

            def attempt(batch: int) -> np.ndarray:
                own.hold(parameters, model.buffers)
                return self._share(own, ask, rows, range(0, len(self._x), batch), stop)

            batch = min(self.batch, len(self._x))
            total, used = halve_without_memory(attempt, batch, self.device, of=self._label)
            if used < batch:
                self.batch = used
            return total

        total = np.zeros((rows, self.layout.size + 1))
        with differentiable_twice(self._module):
            workers = self.compute.workers
            for part in run_in_workers(task, self._shares, make=make, workers=workers, idle=self._idle):
                total += part
        return total / self._count

    def _share(self, own: _Differentiable, ask: Ask, rows: int, starts: range, stop: Event) -> np.ndarray:
        """Sum what ``ask`` yields of some batches, [K, P + 1]."""
        total = own.sums(rows, self._sums_on)
        for start in starts:
            if stop.is_set():
                raise InterruptedError("the derivatives were told to stop")
            here = slice(start, start + starts.step)
            with self.compute.products():
                for row, (loss, parts) in zip(total, ask(own, self._x[here], self._y[here]), strict=True):
                    own.add(row, loss, parts)
        return own.whole(total)


class _Differentiable(FlatModule):
    """A worker's own copy in evaluation mode, which takes derivatives in all its parameters, or in those named."""

    def __init__(self, module: nn.Module, learnt: Task, compute: Compute, trained: Collection[str] | None) -> None:
        super().__init__(module, compute)
        self._task = learnt
        self.module.eval().requires_grad_(False)
        own: dict[str, Any] = dict(self.module.named_parameters(remove_duplicate=False))
        places = self.layout.slices
        wanted = [name for name in places if trained is None or name in trained]
        # by parameter, so that one with two names counts once
        self._places = {own[name].requires_grad_(): places[name] for name in wanted}
        self._reached = False
        self._held: tuple[np.ndarray, Mapping[str, np.ndarray]] | None = None

    def loss_and_gradient(self, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        loss = self._loss(x, y)
        with differentiating(self.original):
            gradient = _gradient(loss, list(self._places))
        yield loss.detach(), list(gradient)

    def products(self, x: Tensor, y: Tensor, vectors: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
        parameters = list(self._places)
        loss = self._loss(x, y)
        with differentiating(self.original, twice=True):
            yield from self._products(loss, parameters, vectors)

    def _products(
        self, loss: Tensor, parameters: list[Tensor], vectors: Tensor
    ) -> Iterator[tuple[Tensor, list[Tensor]]]:
        gradient = _gradient(loss, parameters, create_graph=True)
        for k, v in enumerate(vectors):
            last = k == len(vectors) - 1
            if self.compute.is_gpu:  # the gradient of the same ⟨∇L, v⟩, which is not made
                at = [v[where].view(p.shape) for p, where in self._places.items()]
                curved = [i for i, g in enumerate(gradient) if g.requires_grad]
                given = [gradient[i] for i in curved], parameters, [at[i] for i in curved]
                product: Sequence[Tensor]
                if curved:
                    product = dense(torch.autograd.grad(*given, retain_graph=not last, materialize_grads=True))
                else:
                    product = [torch.zeros_like(p) for p in parameters]
            else:
                inner = self._inner(gradient, v)
                product = _gradient(inner, parameters, retain_graph=not last)
            yield loss.detach(), list(product)

    def try_once(self, x: Tensor, y: Tensor) -> None:
        """Refuse a loss of whose gradient torch leaves something out."""
        refuse_left_out(self.original, lambda: self._loss(x, y), list(self._places))

    def in_directions(self, model: Weights, x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray, float, Weights]:
        """Draw directions of +-1 [K, P] and a model beside; return the directions, the Hessian's products with them
        there, the size of a parameter, and that model.

        Raises:
            FedscopeError: torch knows that it has no second derivatives; a product alone it leaves out then.
        """
        draw = np.random.default_rng(0)
        vectors = np.zeros((DIRECTIONS, self.layout.size))
        for where in self._places.values():
            vectors[:, where] = draw.choice([-1.0, 1.0], size=(DIRECTIONS, where.stop - where.start))
        v = torch.as_tensor(vectors).to(self.w.dtype).to(self.device)
        asked = vectors[0] != 0
        size = float(np.sqrt(np.mean(np.square(model.parameters[asked], dtype=np.float64)))) or 1.0
        moved = model.parameters + BESIDE * size * draw.standard_normal(asked.shape) * asked
        beside = Weights(model.layout, moved, model.buffers)
        self.load(beside.parameters, beside.buffers)
        loss = self._loss(x, y)
        with differentiating(self.original, twice=True):
            gradient = _gradient(loss, list(self._places), create_graph=True)
            inner = self._inner(gradient, v[0])
            if inner.requires_grad:
                with without_gradients(inner):
                    inner.backward()  # type: ignore[no-untyped-call]
        return vectors, self._rows(self.products(x, y, v), len(v)), size, beside

    def gradient_near(self, model: Weights, x: Tensor, y: Tensor, moved: np.ndarray) -> np.ndarray:
        """Compute the gradient [P] at the model's parameters plus ``moved``."""
        self.load(model.parameters + moved, model.buffers)
        found: np.ndarray = self._rows(self.loss_and_gradient(x, y), 1)[0]
        return found

    def _rows(self, answers: Iterator[tuple[Tensor, list[Tensor]]], count: int) -> np.ndarray:
        """Collect derivatives of one batch, [K, P]."""
        total = self.sums(count, where_float64(self.compute).device)
        for row, (loss, parts) in zip(total, answers, strict=True):
            self.add(row, loss, parts)
        return self.whole(total)[:, :-1]

    def _inner(self, gradient: Sequence[Tensor], v: Tensor) -> Tensor:
        """⟨∇L, v⟩."""
        parts = zip(gradient, self._places.items(), strict=True)
        return torch.stack([(g * v[where].view(p.shape)).sum() for g, (p, where) in parts]).sum()

    def hold(self, parameters: np.ndarray, buffers: Mapping[str, np.ndarray]) -> None:
        """Take over a model, unless it is the one that is there: products of one Hessian are many."""
        if self._held is None or self._held[0] is not parameters or self._held[1] is not buffers:
            self._held = None
            self.load(torch.as_tensor(parameters).to(self.w.dtype), buffers)
            self._held = parameters, buffers

    def sums(self, rows: int, device: str) -> Tensor:
        """Make room for rows of sums, the loss last: [K, P + 1], on a GPU of the parameters that are asked for."""
        size = sum(p.numel() for p in self._places) if self.compute.is_gpu else self.layout.size
        return torch.zeros(rows, size + 1, dtype=torch.float64, device=device)

    def add(self, row: Tensor, loss: Tensor, parts: list[Tensor]) -> None:
        """Add what belongs to each parameter to a row of :meth:`sums`, and the loss."""
        if self.compute.is_gpu:  # few long steps
            row += torch.cat([*(part.reshape(-1) for part in parts), loss.reshape(1)]).to(row.device)
            return
        for where, part in zip(self._places.values(), parts, strict=True):
            row[where] += part.reshape(-1)
        row[-1] += loss.double()

    def whole(self, total: Tensor) -> np.ndarray:
        """Sums as [K, P + 1]."""
        found: np.ndarray = total.cpu().numpy()
        if found.shape[1] == self.layout.size + 1:
            return found
        whole, at = np.zeros((len(found), self.layout.size + 1)), 0
        for where in self._places.values():
            size = where.stop - where.start
            whole[:, where] = found[:, at : at + size]
            at += size
        whole[:, -1] = found[:, -1]
        return whole

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch; where it has no gradient, some other parameter than those asked for has one.

        Raises:
            FedscopeError: none has.
        """
        outputs = self.module(x)
        loss = self._task.reduced(outputs, y, "sum")
        if not (loss.requires_grad or self._reached):
            self._refuse_unreached(x[:1], y[:1])
        return loss

    def _refuse_unreached(self, x: Tensor, y: Tensor) -> None:
        self.module.requires_grad_(True)
        try:
            outputs = self.module(x)
            self._reached = self._task.reduced(outputs, y, "sum").requires_grad
            if not self._reached:
                refuse_without_gradient(self.original, outputs, self._task, "sharpness")
        finally:
            self.module.requires_grad_(False)
            for parameter in self._places:
                parameter.requires_grad_()


def _gradient(value: Tensor, parameters: list[Tensor], **how: Any) -> Sequence[Tensor]:
    """∇ of a number in the parameters; zeros where it depends on none, as the gradient of a linear loss does."""
    if not value.requires_grad:
        return [torch.zeros_like(p) for p in parameters]
    return dense(torch.autograd.grad(value, parameters, materialize_grads=True, **how))


@contextmanager
def differentiable_twice(module: nn.Module) -> Iterator[None]:
    """Attention and recurrent layers in the form that torch can differentiate twice, and in evaluation mode at all.

    Their fused kernels cannot. The switches are the process's, so they are thrown once around all workers; a module
    without such layers computes as ever.
    """
    with plain_attention(), differentiable(module):
        yield


@contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Recurrent layers in the form that can be differentiated in evaluation mode: cuDNN's cannot.

    The switch is the process's, as that of :func:`differentiable_twice`.
    """
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in module.modules())
    with without_cudnn() if recurrent else nullcontext():
        yield
