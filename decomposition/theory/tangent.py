"""The empirical neural tangent kernel of a model, by a random projection of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from ...checkpoints import FedscopeError, Layout, Weights
from ...checkpoints.io.errors import list_few
from ...evaluation.accelerators import empty_cache, is_out_of_memory, refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers
from ...evaluation.differentiation import dense, refuse_left_out
from ...evaluation.float64 import require_float64
from ...evaluation.memory import halve_without_memory
from ...evaluation.model_replica import FlatModule
from ...evaluation.module_copy import copy_module
from ...evaluation.process_switches import plain_attention, without_fast_path
from ...evaluation.recorded_names import call_with
from ...evaluation.trainable_parameters import trained_parameters
from ...evaluation.validation import refuse_shapeless
from ...landscape.curvature.derivatives import differentiable

# Samples a worker takes at a time: often enough to say how far it is.
CHUNK = 16
# Of a GPU, which differentiates them together: as many as keep it busy, and so many that their gradients in one output
# have so many numbers (512 MiB).
GPU_CHUNK, GPU_NUMBERS = 64, 2**26


def tangent_kernel(
    module: nn.Module,
    x: Tensor,
    model: Weights,
    *,
    dimension: int = 1024,
    seed: int = 0,
    frozen: Collection[str] = (),
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """K(x,x') = (1/C) Σ_c ⟨∇_w f_c(x; w), ∇_w f_c(x'; w)⟩ of the C logits f_c, float64 [n, n].

    Gradients g in R^P are projected to R^m by a seeded random matrix with one entry ±1 in every column, each sign and
    each row drawn independently (a count sketch). It takes 2P numbers and one addition for each entry of a gradient,
    and no more than one gradient is held a worker. ⟨Sg, Sg'⟩ is unbiased with variance at most
    (‖g‖² ‖g'‖² + ⟨g, g'⟩²)/m, so that entries of K are off by √(2/m) √(K(x,x) K(x',x')) or less in the root mean
    square: 4 % at m = 1024. All outputs share S, and all errors depend on each other. The projected kernel is a kernel
    itself, positive semi-definite, of which every bound holds exactly. With m ≥ P nothing is projected.

    Gradients are in the parameters that the module trains (``requires_grad``; all where it marks none) and that are not
    ``frozen`` otherwise, because the others do not move. Evaluation mode, float64; projected gradients are kept in
    float32.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        x: inputs [n, ...].
        model: w [P], with its buffers.
        dimension: m.
        seed: of S.
        frozen: names of parameters that do not move although the module trains them, as a head that a method freezes.
        progress: called with (samples done, n).

    Raises:
        FedscopeError: ``dimension`` < 1; a model that does not fit the module, or whose module has no gradients, or
            none in what moves; a device without float64, or without the memory.

    Source: Jacot, Gabriel and Hongler, "Neural Tangent Kernel", NeurIPS 2018; the mean over outputs is the usual
    scalar kernel of several outputs. Projection: Charikar, Chen and Farach-Colton, "Finding Frequent Items in Data
    Streams", ICALP 2002; Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009, Lemma 2.

    >>> from fedscope.checkpoints import Layout
    >>> module = nn.Linear(2, 3)
    >>> zeros = Weights(Layout.of(module), np.zeros(9, np.float32), {})
    >>> tangent_kernel(module, torch.tensor([[1.0, 2.0], [0.0, 1.0]]), zeros).tolist()  # ⟨x, x'⟩ + 1, in every output
    [[6.0, 3.0], [3.0, 2.0]]
    """
    if dimension < 1:
        raise FedscopeError(f"--dimension {dimension} leaves nothing of a gradient; give 1 or more, as in 1024")
    refuse_shapeless(module)
    difference = Layout.of(module).difference(model.layout)
    if difference:
        raise FedscopeError(f"the model of the kernel does not fit the module: {difference}")
    size, moved = model.layout.size, _moved(module, frozen)
    require_float64(compute.device, "a tangent kernel")
    sketch = None if dimension >= size else _sketch(size, dimension, seed)
    double = copy_module(module).double()
    kind = _GradientsTogether if compute.is_gpu else _Gradients

    def make() -> _Gradients:
        with refuse_without_memory(compute.device, f"hold a model of {size:,} parameters in float64"):
            return kind(double, model, sketch, min(dimension, size), compute, moved)

    def task(start: int, own: _Gradients, stop: Event) -> Tensor:
        return own.of_all(x[start : start + chunk])

    chunk = kind.chunk
    parts = []
    with differentiable(module), _plain_attention() if compute.is_gpu else nullcontext():
        # of several devices the first one alone
        workers = 1 if compute.is_gpu else compute.workers
        for part in run_in_workers(task, range(0, len(x), chunk), make=make, workers=workers):
            parts.append(part)
            if progress is not None:
                progress(min(chunk * len(parts), len(x)), len(x))
    projected = torch.cat(parts)  # [n, C, m]
    # graphs of the last samples, which Python has not looked for yet
    empty_cache(compute.device)
    with refuse_without_memory(
        compute.device, f"hold a kernel of {len(x):,} samples", "give fewer --kernel-samples, or --device cpu"
    ):
        kernel = torch.zeros(len(x), len(x), dtype=torch.float64, device=compute.device)
        for c in range(projected.shape[1]):
            one = projected[:, c].to(compute.device).double()
            if compute.is_gpu:
                kernel.addmm_(one, one.T)
            else:
                kernel += one @ one.T
        mean: np.ndarray = (kernel / projected.shape[1]).cpu().numpy()
    return mean


def _moved(module: nn.Module, frozen: Collection[str]) -> frozenset[str]:
    """Name the parameters that gradients are in.

    Raises:
        FedscopeError: there is none.
    """
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    moved = frozenset(trained_parameters(module) or names) - frozenset(frozen)
    if not moved and frozen:
        raise FedscopeError(
            f"the module trains nothing but its head ({list_few(sorted(frozen), 3)}), which the clients' method "
            "freezes, so there is no gradient to make a kernel of; --kernel none leaves it out"
        )
    return moved


def _sketch(size: int, dimension: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the row and the sign of every column of S, [P] each; drawn on the CPU, so that a GPU has the same S."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(dimension, (size,), generator=draw)
    return rows, (2 * torch.randint(2, (size,), generator=draw) - 1).to(torch.int8)


class _Gradients(FlatModule):
    """A worker's own copy of the model, which takes gradients of outputs sample by sample.

    One backward pass an output: measured on the papers' CNN, four times as fast as torch.func's vmap over samples,
    because a gradient for each sample makes grouped convolutions.
    """

    chunk = CHUNK

    def __init__(
        self,
        module: nn.Module,
        model: Weights,
        sketch: tuple[Tensor, Tensor] | None,
        dimension: int,
        compute: Compute,
        moved: Collection[str] | None = None,
    ) -> None:
        super().__init__(module, compute)
        moved = _moved(module, ()) if moved is None else moved
        self.module.eval().requires_grad_(True)
        self.load(model.parameters, model.buffers)
        self._sketch = None if sketch is None else tuple(part.to(self.device) for part in sketch)
        self._dimension = dimension
        self._tried = False
        own: dict[str, Any] = dict(self.module.named_parameters(remove_duplicate=False))
        # by parameter, so that one with two names counts once
        places = self.layout.slices
        self._places = {own[name]: places[name] for name in places if name in moved}

    def of_all(self, x: Tensor) -> Tensor:
        """Return the projected gradients of all outputs of some samples, float32 [n, C, m] on the CPU."""
        return torch.stack([self.of(sample) for sample in x])

    def of(self, sample: Tensor) -> Tensor:
        """Return the projected gradients of all outputs, float32 [C, m]."""
        try:
            x = self.prepare(sample.unsqueeze(0))
            if not self._tried:
                self._tried = True
                refuse_left_out(self.original, lambda: self.module(x)[0].sum(), list(self._places))
            f = self.module(x)[0]
            every = [self._gradient_of(one, partial(self._output, x, k)) for k, one in enumerate(f)]
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise FedscopeError(
                f"the module has no gradients to make a kernel of ({str(error).splitlines()[0]}); Theorem 2 needs "
                "outputs that can be differentiated in the parameters, and --kernel none leaves it out"
            ) from error
        return torch.stack([self._projected(parts) for parts in every]).float()

    def _output(self, x: Tensor, k: int) -> Tensor:
        output: Tensor = self.module(x)[0][k]
        return output

    def _gradient_of(self, one: Tensor, again: Callable[[], Tensor]) -> list[Tensor]:
        wanted = list(self._places)
        try:
            return dense(torch.autograd.grad(one, wanted, retain_graph=True, materialize_grads=True))
        except Exception:  # a backward of the user's own may free what it has saved
            return dense(torch.autograd.grad(again(), wanted, materialize_grads=True))

    def _projected(self, parts: list[Tensor]) -> Tensor:
        total = torch.zeros(self._dimension, dtype=self.w.dtype, device=self.device)
        for where, part in zip(self._places.values(), parts, strict=True):
            if self._sketch is None:
                total[where] = part.reshape(-1)
            else:
                rows, signs = self._sketch
                total.index_add_(0, rows[where], part.reshape(-1) * signs[where])
        return total


class _GradientsTogether(_Gradients):
    """Gradients of many samples at once, on a GPU, where a step costs the same for one as for many.

    Each sample has a model of its own to be differentiated in, [n, P] of which there is but one in memory. A module
    that torch cannot vectorise is differentiated sample by sample.
    """

    chunk = GPU_CHUNK

    def __init__(
        self,
        module: nn.Module,
        model: Weights,
        sketch: tuple[Tensor, Tensor] | None,
        dimension: int,
        compute: Compute,
        moved: Collection[str] | None = None,
    ) -> None:
        super().__init__(module, model, sketch, dimension, compute, moved)
        self._size = sum(parameter.numel() for parameter in self._places)
        self._batch = max(1, GPU_NUMBERS // max(1, self._size))
        # of recurrent layers torch makes a loop over the samples, and warns
        self._alone = any(isinstance(layer, nn.RNNBase) for layer in module.modules())
        named = {parameter: name for name, parameter in self.module.named_parameters(remove_duplicate=False)}
        self._names = [named[parameter] for parameter in self._places]
        if sketch is not None:
            columns = torch.cat([torch.arange(where.start, where.stop) for where in self._places.values()])
            rows, signs = (part[columns] for part in sketch)
            self._gathered = tuple(part.to(self.device) for part in _by_row(rows, signs, dimension))

    def of_all(self, x: Tensor) -> Tensor:
        """Return the projected gradients of all outputs of some samples, float32 [n, C, m] on the CPU."""

        def attempt(batch: int) -> Tensor:
            return torch.cat([self._of_batch(part) for part in torch.split(self.prepare(x), batch)])

        batch = min(self._batch, len(x))
        found, used = halve_without_memory(attempt, batch, str(self.device), of="samples of the kernel")
        if used < batch:
            self._batch = used
        return found.cpu()

    def _of_batch(self, x: Tensor) -> Tensor:
        if not self._alone:
            try:
                f, own = self._outputs(x)
                every = range(f.shape[1])
                return torch.stack([self._gradient(f[:, c], own, c < every[-1]) for c in every], dim=1)
            except Exception as error:  # whatever a module does that cannot be vectorised, or not differentiated
                if is_out_of_memory(error):
                    raise
            self._alone = True
        return torch.stack([self.of(sample) for sample in x])

    def _outputs(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Outputs [n, C], and each parameter [n, ...] that they are a function of."""
        own = [parameter.detach().expand(len(x), *parameter.shape).requires_grad_() for parameter in self._places]

        def one(sample: Tensor, *parameters: Tensor) -> Tensor:
            named = dict(zip(self._names, parameters, strict=True))
            outputs: Tensor = call_with(self.module, named, sample.unsqueeze(0))[0]
            return outputs

        return vmap(one)(x, *own), own

    def _gradient(self, f: Tensor, own: list[Tensor], again: bool) -> Tensor:
        """Return projected gradients of one output a sample, float32 [n, m]."""
        parts = torch.autograd.grad(f.sum(), own, retain_graph=again, materialize_grads=True)
        flat = torch.cat([part.reshape(len(f), -1) for part in parts], dim=1)
        del parts
        if self._sketch is None:
            return flat.float()
        where, signs = self._gathered
        gathered = flat.index_select(1, where)
        del flat
        # rows of the sketch as sums of a fixed order, which index_add_ has not on a GPU
        return gathered.mul_(signs).view(len(f), self._dimension, -1).sum(dim=2).float()


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Attention in steps that torch can vectorise: within its vmap it takes weights for such as have no gradients, and
    the form of a whole layer that is made for these."""
    with without_fast_path(), plain_attention():
        yield


def _by_row(rows: Tensor, signs: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Return which columns of S are in each row and their signs, filled up with the sign 0 to the longest: [m L] each.

    >>> [part.tolist() for part in _by_row(torch.tensor([1, 0, 1]), torch.tensor([1, 1, -1], dtype=torch.int8), 2)]
    [[1, 0, 0, 2], [1.0, 0.0, 1.0, -1.0]]
    """
    order = rows.argsort(stable=True)
    counts = rows.bincount(minlength=dimension)
    longest = int(counts.max())
    place = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows[order]]
    at = rows[order] * longest + place
    where, filled = torch.zeros(dimension * longest, dtype=torch.int32), torch.zeros(dimension * longest)
    where[at], filled[at] = order.int(), signs[order].float()
    return where, filled
