"""What a server may ask of models on samples: losses and errors, squared gradients, products of layers' inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.quiet import without_warnings
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.device import Compute, torch_threads
from ...evaluation.differentiation import dense, differentiating, refuse_left_out, refuse_without_gradient
from ...evaluation.evaluator import Evaluator
from ...evaluation.model_replica import FlatModule
from ...evaluation.samples import Samples
from ..methods.shared.probes import Linear
from .layer_inputs import LayerInputs

#: samples of a forward pass in which inputs of layers are collected
BATCH = 100
#: numbers of gradients that are held at once: 64 MiB of float32
AT_ONCE = 2**24


class ModelProbe:
    """Models measured on samples, in float32: called, losses and errors [M] of models [M, P].

    Nothing is held beside the samples until it is asked for.
    """

    def __init__(self, module: nn.Module, samples: Samples, compute: Compute) -> None:
        self._module, self._samples, self._compute = module, samples, compute.exact
        self._told = False

    def __call__(self, models: Weights) -> tuple[np.ndarray, np.ndarray]:
        """Measure losses and errors."""
        return self._evaluator.models(models)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self._module, self._samples, compute=self._compute)

    @cached_property
    def _own(self) -> FlatModule:
        own = FlatModule(self._module, self._compute)
        own.module.eval().requires_grad_(False)
        return own

    def squared_gradients(self, model: Weights, labels: str) -> np.ndarray:
        """Compute the diagonal of the Fisher information, float64 [P], in evaluation mode, sample by sample.

        With ``labels`` = ``model`` it is (1/n) Σ_j Σ_c p_jc (∂ log p_jc)², p_j = softmax f(x_j); with ``data`` the
        empirical one of the task, Σ_j c_j (∂ loss_j)² / Σ_j c_j, where a sample counts c_j times as in its mean loss.

        Raises:
            FedscopeError: labels of the model, of a task that has none.
        """
        task, places = self._samples.task, self._own.layout.slices
        if labels == "model" and not task.has_classes:
            raise FedscopeError(
                f"--server fisher draws labels from the model, and the task {task.name} has no labels; give --set "
                "server.labels=data"
            )
        total: np.ndarray = np.zeros(model.layout.size)
        counts = np.ones(len(self._samples))
        if labels == "data" and (counted := task.weights(self._samples.y)) is not None:
            counts = counted.cpu().double().numpy()
            counts = counts / (counts.max() or 1.0)  # exactly 1 where all count alike
        with self._loaded(model) as module, torch.enable_grad():
            named: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
            # by parameter, so that one with two names counts once
            wanted = {named[name].requires_grad_(): where for name, where in places.items()}
            tried = False
            try:
                for count, (x, y) in zip(counts.tolist(), self._batches(1), strict=True):
                    terms_of = partial(self._terms, module, x, y, labels)
                    if not tried:
                        tried = True
                        refuse_left_out(self._module, terms_of, list(wanted))
                    terms = terms_of()
                    weights = terms.detach().exp().tolist() if labels == "model" else [count]
                    found = _gradients(self._module, terms, terms_of, list(wanted))
                    for weight, parts in zip(weights, found, strict=True):
                        for where, part in zip(wanted.values(), dense(parts), strict=True):
                            # on the processor, because a device may lack float64
                            total[where] += weight * part.cpu().double().square().reshape(-1).numpy()
            finally:
                module.requires_grad_(False)
        for name, where in places.items():  # tied parameters have the gradient of the one that stands for them
            total[where] = total[wanted[named[name]]]
        return np.asarray(total / counts.sum())

    def _terms(self, module: nn.Module, x: Tensor, y: Tensor, labels: str) -> Tensor:
        """Compute what a sample's gradients are taken of: log p of each class, or its loss."""
        task, outputs = self._samples.task, module(x)
        terms: Tensor = outputs.log_softmax(1)[0] if labels == "model" else task.loss(outputs, y).sum()[None]
        if not terms.requires_grad:
            refuse_without_gradient(self._module, outputs, task, "--server fisher")
        return terms

    def input_products(self, model: Weights) -> dict[Linear, np.ndarray]:
        """Compute XᵀX of the inputs X [rows, in] of every linear layer, float64.

        All that a layer is given counts, positions of sequences too; of a weight that is several layers' what all of
        them are given, by each of its names. Matrices whose inputs are not found are named in a warning, once.
        """
        with self._loaded(model) as module, torch.no_grad():
            seen = LayerInputs(module, self._own.layout.slices)
            with seen.watching():
                for x, _ in self._batches(BATCH):
                    module(x)
        found = {layer: total.numpy() for layer, total in seen.products().items()}
        if found and (left := seen.left()) and not self._told:
            self._told = True
            merged = len({layer.name for layer in found})
            warn_user(
                f"of {merged + len(left)} matrices of the model {len(left)} {'is' if len(left) == 1 else 'are'} the "
                f"plain mean, as no product of inputs with them was found ({list_few(left, 3)}); recurrent layers, and "
                "layers that copy or change their weights first, are not followed"
            )
        return found

    @contextmanager
    def _loaded(self, model: Weights) -> Iterator[nn.Module]:
        """The module with a model in it; in one thread, so that no bit depends on how many there are."""
        own = self._own
        own.load(np.asarray(model.parameters), model.buffers)
        with torch_threads(1), self._compute.products():
            yield own.module

    def _batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        own = self._own
        for start in range(0, len(self._samples), size):
            rows = slice(start, start + size)
            yield own.prepare(self._samples.x[rows]), own.targets(self._samples.y[rows])


def _gradients(
    module: nn.Module, terms: Tensor, again: Callable[[], Tensor], wanted: list[Tensor]
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the gradients of each of the terms [n], of as many at once as :data:`AT_ONCE` holds.

    Those of ten classes at once take a quarter to a half of the time of one after the other. An operation of the user's
    own may not know how, or free what it has saved: it is asked for one after the other, each in a pass of its own.
    """
    width = max(1, AT_ONCE // max(1, sum(one.numel() for one in wanted)))
    chosen = torch.eye(len(terms), dtype=terms.dtype, device=terms.device)
    for rows in torch.split(chosen, width):
        try:
            with without_warnings(UserWarning):  # that an operation goes one after the other
                found = torch.autograd.grad(
                    terms, wanted, rows, retain_graph=True, is_grads_batched=True, allow_unused=True
                )
        except Exception:
            for row in rows:
                with differentiating(module):
                    one = torch.autograd.grad(again(), wanted, row, materialize_grads=True)
                yield one
        else:
            for k in range(len(rows)):
                yield tuple(
                    torch.zeros_like(one) if part is None else part[k] for one, part in zip(wanted, found, strict=True)
                )
