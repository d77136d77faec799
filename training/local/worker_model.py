"""A worker's place of work: one module to train, and frozen copies to compare it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import Weights
from ...evaluation.device import CPU, Compute
from ...evaluation.model_replica import FlatModule
from ...evaluation.standard_tasks import is_own
from ...evaluation.tasks import Task
from ..rng import torch_generator
from .dropout_masks import MaskStream, address_dropout
from .to_device import send

if TYPE_CHECKING:
    from .local_training import LocalTask

Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]


class TrainableModel(FlatModule):
    """A worker's own copy of the module in training mode, its parameters and gradients bound to two flat vectors.

    Attributes:
        w: the parameters, [P].
        g: the gradient, [P]; ``backward`` adds to it.
        batch_statistics: whether the module has layers that normalise over the batch, which one sample is none of.
    """

    def __init__(self, module: nn.Module, compute: Compute = CPU) -> None:
        super().__init__(module, compute)
        self.module.train()
        self._draws = MaskStream()
        address_dropout(self.module, self._draws)
        self.batch_statistics = has_batch_statistics(self.module)
        self.g = torch.zeros_like(self.w)
        own = dict(self.module.named_parameters(remove_duplicate=False))
        for name, where in self.layout.slices.items():
            own[name].grad = self.g[where].view(own[name].shape)
        self._companions: dict[str, FlatModule] = {}

    def begin(self, task: LocalTask, pass_: int = 0) -> None:
        """Load the model that a task sends, and go to the start of its dropout masks.

        Args:
            pass_: 0 for local training; other numbers give other passes over the same client masks of their own.
        """
        self.load(task.start.parameters, task.start.buffers)
        if self._draws.used:
            draw = task.draw + 1_000_000 * pass_
            masks = torch_generator(task.seed, "dropout", round=task.round, client=task.client, draw=draw)
            self._draws.begin(masks, self.device)

    def draw_masks(self, generator: torch.Generator) -> None:
        """Draw dropout masks of no client's, for a trial."""
        if self._draws.used:
            self._draws.begin(generator, self.device)

    def place_in_masks(self) -> Any:
        """Read where the dropout masks stand, for :meth:`return_in_masks`; None without dropout."""
        return self._draws.place()

    def return_in_masks(self, place: Any) -> None:
        """Go back in the dropout masks, so that another pass over a batch meets the same ones."""
        self._draws.go_back(place)

    def read(self) -> Weights:
        """Read the model as it is now."""
        buffers = {name: to_host(value) for name, value in self._buffers.items()}
        return Weights(self.layout, to_host(self.w), buffers)

    def loss(self, objective: Objective, x: Tensor, y: Tensor) -> Any:
        """Return the objective's value on a batch; its gradient is in ``g`` afterwards.

        On an accelerator the value stays there, a tensor: reading it would wait for the step.
        """
        self.g.zero_()
        with self.compute.products():
            with self.compute.forward():
                value = objective(self.module, x, y)
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach() if self.compute.is_gpu else float(value.detach())

    def decayed(self, objective: Objective, x: Tensor, y: Tensor, weight_decay: float) -> Any:
        """As :meth:`loss`, with ``weight_decay`` w added to ``g``: the g of the papers' formulas."""
        value = self.loss(objective, x, y)
        if weight_decay:
            self.g.add_(self.w, alpha=weight_decay)
        return value

    def gradient_at(self, objective: Objective, w: Tensor, x: Tensor, y: Tensor, weight_decay: float) -> Tensor:
        """Compute the gradient of the objective on a batch at the model ``w`` [P], weight decay included, [P].

        The model and buffers are left as they were, bit for bit, and so are its dropout masks: the batch's next
        pass meets the same ones, so that two gradients of a batch differ by their models alone. ``g`` is overwritten.
        """
        state = self.module.state_dict()
        before = {entry.name: state[entry.name].clone() for entry in self.layout.buffers}
        here = self.w.clone()
        place = self.place_in_masks()
        self.w.copy_(w)
        try:
            self.decayed(objective, x, y, weight_decay)
        finally:
            self.w.copy_(here)
            with torch.no_grad():
                for name, values in before.items():
                    state[name].copy_(values)
            self.return_in_masks(place)
        return self.g.clone()

    def companion(self, model: Weights, which: str) -> nn.Module:
        """A frozen copy of the module that holds another model, in evaluation mode; made once for each ``which``.

        It holds what it was given last under that name. Call it under ``torch.no_grad()``.
        """
        if which not in self._companions:
            made = FlatModule(self.module, self.compute)
            made.module.eval().requires_grad_(False)
            self._companions[which] = made
        self._companions[which].load(model.parameters, model.buffers)
        return self._companions[which].module

    def tensor(self, values: object) -> Tensor:
        """An array on the device, which is not waited for."""
        return send(values, self.device)


def to_host(values: Tensor) -> np.ndarray:
    """A tensor's numbers as an array of their own: from a device they are one already."""
    found: np.ndarray = values.cpu().numpy()
    return found.copy() if values.device.type == "cpu" else found


def has_batch_statistics(module: nn.Module) -> bool:
    """Check whether a module has layers that normalise over the batch."""
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules())


class MeanLoss:
    """A task's mean loss of a batch.

    Attributes:
        maskable: whether it is known without some of the batch's samples, see :meth:`masked`.
    """

    def __init__(self, learnt: Task) -> None:
        self.learnt = learnt
        self.maskable = not is_own(learnt)

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return self.learnt.reduced(as_float32(module(x)), y, "mean")

    def masked(self, module: nn.Module, x: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """Return the mean over the samples for which ``real`` [n] is 1; 0 where it is 0 for all."""
        weights = self.learnt.weights(y)
        counts = real if weights is None else real * weights
        return (self.learnt.loss(module(x), y) * counts).sum() / counts.sum().clamp(min=1.0)


def as_float32(outputs: Tensor) -> Tensor:
    """Outputs as a loss takes them: in ``bf16`` torch's cross entropy is computed in float32 on a processor, and in
    bfloat16 on accelerators, whose losses would have three digits."""
    low = outputs.dtype is torch.bfloat16 and outputs.device.type != "cpu"
    return outputs.float() if low else outputs


def mean_loss(learnt: Task) -> MeanLoss:
    """Make the loss that a client minimises unless its method says otherwise."""
    return MeanLoss(learnt)


def head_layer(module: nn.Module, head: str | None) -> nn.Linear:
    """Return the module's head, by name."""
    assert head is not None, "model_info has refused models without a head"
    layer = module.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    return layer


def features_and_logits(module: nn.Module, head: str | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the head's inputs, [n, features], and the model's outputs, [n, classes], in one forward pass.

    Works on any module whose head is called once in its forward pass.
    """
    seen: list[Tensor] = []
    handle = head_layer(module, head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits: Tensor = module(x)
    finally:
        handle.remove()
    return seen[-1].flatten(1), logits
