"""A worker's place of work: one module to train, and frozen copies to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Layout, Weights
from ...evaluation.device import CPU, Compute
from ...evaluation.model_replica import FlatModule
from ...evaluation.module_copy import copy_module, is_shared
from ...evaluation.seeded import forked
from ...evaluation.standard_tasks import is_own_task
from ...evaluation.taken_logits import logits_of
from ...evaluation.tasks import Task
from ...evaluation.uint8_images import Inputs
from ..rng import torch_generator
from .dropout_masks import MaskStream, address_dropout
from .to_device import send

if TYPE_CHECKING:
    from .local_training import LocalTask

#: of a batch what is minimised; where that has terms besides the task's loss L, a pair: the sum, and L alone
Objective = Callable[[nn.Module, Tensor, Tensor], "Tensor | tuple[Tensor, Tensor]"]
Values = TypeVar("Values", Tensor, np.ndarray)


class TrainableModel(FlatModule):
    """A worker's own copy of the module in training mode, its parameters and gradients bound to two flat vectors.

    Attributes:
        w: the parameters, [P].
        g: the gradient, [P]; ``backward`` adds to it.
        held: the places in them that no step moves, ascending: of frozen parameters, of those that no loss of the task
            has depended on so far, and of a tied one of all names but the last, which the module computes with.
        batch_statistics: whether the module has layers that normalise over the batch, where one sample may be none.
    """

    def __init__(self, module: nn.Module, compute: Compute = CPU) -> None:
        super().__init__(module, compute, hooked=True)
        self.module.train()
        self._draws = MaskStream()
        address_dropout(self.module, self._draws)
        self.batch_statistics = has_batch_statistics(self.module)
        self._takes_one: bool | None = None
        self.g = torch.zeros_like(self.w)
        own = dict(self.module.named_parameters(remove_duplicate=False))
        for name, where in self.layout.slices.items():
            own[name].grad = self.g[where].view(own[name].shape)
        self._copies = copies_of(self.module, self.layout)
        last = {id(own[name]): name for name in self.layout.slices}
        self._own, self._last = own, frozenset(last.values())
        #: buffers that no model holds (``persistent=False``, None): each client begins with those of the module
        self._unkept = [
            (layer, leaf, value, None if value is None else value.clone())
            for layer in self.module.modules()
            for leaf, value in layer._buffers.items()
            if value is None or (leaf in layer._non_persistent_buffers_set and not is_shared(value))
        ]
        self._unseen: dict[str, Any] = {}
        self._reached: set[str] = set()
        self._asleep: tuple[frozenset[str], frozenset[str]] | None = None
        self.held: list[slice] = []
        self.hold_also(())
        self._companions: dict[str, FlatModule] = {}

    def begin(self, task: LocalTask, pass_: int = 0) -> None:
        """Load the model that a task sends, and go to the start of its dropout masks.

        Args:
            pass_: 0 for local training; other numbers give other passes over the same client masks of their own.
        """
        self.load(task.start.parameters, task.start.buffers)
        for layer, leaf, buffer, given in self._unkept:
            # forward may have put another one there, or changed this one; a view of fewer numbers takes no copy
            layer._buffers[leaf] = buffer if given is None else given.clone()
        self._watch()
        if self._draws.used:
            draw = task.draw + 1_000_000 * pass_
            masks = torch_generator(task.seed, "dropout", round=task.round, client=task.client, draw=draw)
            self._draws.begin(masks, self.device)

    def takes_one(self, x: Inputs) -> bool:
        """Check whether the module can normalise a batch of one of these samples; found out once."""
        if self._takes_one is None:
            self._takes_one = not self.batch_statistics or normalises_one(self.module, x)
        return self._takes_one

    @property
    def left_its_place(self) -> bool:
        """Whether a forward pass has put other tensors in the place of the module's own so far."""
        return self._bound.left

    @property
    def unheld(self) -> list[str]:
        """A sentence of each place where a forward pass has put what no model can hold so far."""
        return list(self._bound.unheld.values())

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
        self.settle()
        buffers = {name: to_host(value) for name, value in self._buffers.items()}
        return Weights(self.layout, self.to_all_names(to_host(self.w)), buffers)

    def to_all_names(self, values: Values) -> Values:
        """Give all names of a tied parameter what its last one has, in place, in values [..., P]."""
        for stale, last in self._copies:
            values[..., stale] = values[..., last]
        return values

    def add_decay(self, g: Tensor, weight_decay: float) -> Tensor:
        """Add ``weight_decay`` w to ``g``, in place, without the parameters that are held."""
        for at in outside(self.held, self.layout.size):
            g[..., at].add_(self.w[..., at], alpha=weight_decay)
        return g

    def hold(self) -> None:
        """Take out of ``g`` what would move the parameters that are held."""
        for at in self.held:
            self.g[..., at].zero_()

    def step(self, optimiser: Any, *how: Any) -> None:
        """One step of an optimiser along ``g``; some shrink parameters whose gradient is 0, which the held ones do not
        follow."""
        before = [self.w[..., at].clone() for at in self.held]
        optimiser.step(self.w, self.g, *how)
        for at, values in zip(self.held, before, strict=True):
            self.w[..., at].copy_(values)

    def hold_also(self, unused: Iterable[str]) -> None:
        """Hold parameters that no loss depends on, too: torch's optimisers skip what has no gradient."""
        frozen = frozenset(name for name in self.layout.slices if not self._own[name].requires_grad)
        asleep = frozen, frozenset(unused)
        if asleep != self._asleep:
            self._asleep = asleep
            places = [self.layout.slices[name] for name in frozen | asleep[1]]
            self.held = joined([*places, *(stale for stale, _ in self._copies)])

    def _watch(self) -> None:
        """Have the passes that follow note which parameters they reach; each is watched until one does."""
        for handle in self._unseen.values():
            handle.remove()
        self._unseen = {
            name: self._own[name].register_post_accumulate_grad_hook(partial(self._note, name))  # type: ignore[no-untyped-call]
            for name in self.layout.slices
            if name in self._last and self._own[name].requires_grad
        }
        self.hold_also(())

    def _note(self, name: str, parameter: Tensor) -> None:
        self._reached.add(name)

    def _look(self) -> None:
        if self._unseen:
            for name in self._reached:
                self._unseen.pop(name).remove()
            self._reached.clear()
            self.hold_also(self._unseen)

    def loss(self, objective: Objective, x: Tensor, y: Tensor) -> Any:
        """Return the loss of a batch, as :func:`minimised_and_told` has it; the objective's gradient is in ``g``
        afterwards.

        On an accelerator the value stays there, a tensor: reading it would wait for the step.
        """
        self.g.zero_()
        x = self.in_own_type(x)
        with self.compute.products():
            with self.compute.forward():
                value, told = minimised_and_told(objective(self.module, x, y))
            value.backward()  # type: ignore[no-untyped-call]
        self.settle()  # before the step, which moves what forward computed with
        self._look()
        return told.detach() if self.compute.is_gpu else float(told.detach())

    def in_own_type(self, x: Tensor) -> Tensor:
        """Give inputs that are no tokens in the parameters' type, as the evaluation does."""
        return x.to(self.w.dtype) if x.is_floating_point() else x

    def decayed(self, objective: Objective, x: Tensor, y: Tensor, weight_decay: float) -> Any:
        """As :meth:`loss`, with ``weight_decay`` w added to ``g``: the g of the papers' formulas."""
        value = self.loss(objective, x, y)
        if weight_decay:
            self.add_decay(self.g, weight_decay)
        return value

    def gradient_at(self, objective: Objective, w: Tensor, x: Tensor, y: Tensor, weight_decay: float) -> Tensor:
        """Compute the gradient of the objective on a batch at the model ``w`` [P], weight decay included, [P].

        The model and buffers are left as they were, bit for bit, and so are its dropout masks: the batch's next
        pass meets the same ones, so that two gradients of a batch differ by their models alone. ``g`` is overwritten.
        """
        before = {name: value.clone() for name, value in self._buffers.items()}
        unkept = [(layer, leaf, layer._buffers[leaf]) for layer, leaf, *_ in self._unkept]
        copies = [None if buffer is None else buffer.clone() for *_, buffer in unkept]
        here = self.w.clone()
        place = self.place_in_masks()
        self.w.copy_(w)
        try:
            self.decayed(objective, x, y, weight_decay)
        finally:
            self.w.copy_(here)
            self._bound.put_back()
            with torch.no_grad():
                for name, values in before.items():
                    self._buffers[name].copy_(values)
            for (layer, leaf, _), buffer in zip(unkept, copies, strict=True):
                layer._buffers[leaf] = buffer
            self.return_in_masks(place)
        return self.g.clone()

    def companion(self, model: Weights, which: str) -> nn.Module:
        """A frozen copy of the module that holds another model, in evaluation mode; made once for each ``which``.

        It holds what it was given last under that name. Call it under ``torch.no_grad()``.
        """
        if which not in self._companions:
            # of the network as it was given: forward may have tied layers of this one
            made = FlatModule(self.original, self.compute)
            made.module.eval().requires_grad_(False)
            self._companions[which] = made
        self._companions[which].load(model.parameters, model.buffers)
        return self._companions[which].module

    def tensor(self, values: object) -> Tensor:
        """An array on the device, which is not waited for."""
        return send(values, self.device)


def minimised_and_told(found: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return what is minimised, and the loss that a run tells of it: L alone where an objective gives that, and no
    number where the sum is none, because the client has diverged then.

    >>> told = [minimised_and_told((torch.tensor(whole), torch.tensor(0.5)))[1] for whole in (3.0, float("inf"))]
    >>> [float(one) for one in told]
    [0.5, nan]
    """
    if isinstance(found, Tensor):
        return found, found
    whole, alone = found
    return whole, alone.detach() + 0 * whole.detach()


def joined(places: Iterable[slice]) -> list[slice]:
    """Join places that follow each other, ascending.

    >>> joined([slice(4, 6), slice(0, 2), slice(2, 3)])
    [slice(0, 3, None), slice(4, 6, None)]
    """
    found: list[slice] = []
    for at in sorted(places, key=lambda at: (at.start, at.stop)):
        if found and at.start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(found[-1].stop, at.stop))
        else:
            found.append(slice(at.start, at.stop))
    return found


def outside(places: Sequence[slice], size: int) -> list[slice]:
    """Return what lies between places that :func:`joined` gave, of ``size`` numbers.

    >>> outside([slice(0, 3), slice(4, 6)], 8), outside([], 8)
    ([slice(3, 4, None), slice(6, 8, None)], [slice(0, 8, None)])
    """
    ends = [0, *(end for at in places for end in (at.start, at.stop)), size]
    return [slice(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]


def copies_of(module: nn.Module, layout: Layout) -> list[tuple[slice, slice]]:
    """Return of each parameter with several names the place of each name but the last, and that of the last one."""
    named = dict(module.named_parameters(remove_duplicate=False))
    last = {id(named[name]): where for name, where in layout.slices.items()}
    return [(where, last[id(named[name])]) for name, where in layout.slices.items() if where != last[id(named[name])]]


def to_host(values: Tensor) -> np.ndarray:
    """A tensor's numbers as an array of their own: from a device they are one already."""
    found: np.ndarray = values.cpu().numpy()
    return found.copy() if values.device.type == "cpu" else found


def has_batch_statistics(module: nn.Module) -> bool:
    """Check whether a module has layers that normalise over the batch."""
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules())


def in_training(module: nn.Module) -> nn.Module:
    """Return a copy of a module in training mode, as clients train it.

    >>> in_training(nn.Linear(2, 1).eval()).training
    True
    """
    return copy_module(module).train()


def normalises_one(module: nn.Module, x: Inputs) -> bool:
    """Check whether a module's layers can normalise a batch of one sample: BatchNorm of images can over their pixels.

    Args:
        module: in training mode; a copy is called.
        x: samples, of which the first is tried, as a copy, which a layer may write to.

    >>> normalises_one(nn.BatchNorm2d(1), torch.ones(3, 1, 2, 2)), normalises_one(nn.BatchNorm1d(2), torch.ones(3, 2))
    (True, False)
    """
    own = copy_module(module)
    one, like = x[torch.arange(1)], next(own.parameters(), None)
    if like is not None:
        one = one.to(like.device, like.dtype if one.is_floating_point() else one.dtype)
    with forked(), torch.no_grad():
        try:
            own(one)
        except ValueError as error:
            return not str(error).startswith("Expected more than 1 value per channel")
        except Exception:  # whatever a module of the user's own raises: told where it is trained
            return True
    return True


class MeanLoss:
    """A task's mean loss of a batch.

    Attributes:
        maskable: whether it is known without some of the batch's samples, see :meth:`masked`.
    """

    def __init__(self, learnt: Task) -> None:
        self.learnt = learnt
        self.maskable = not is_own_task(learnt)

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return loss_of_batch(self.learnt, module(x), y)

    def masked(self, module: nn.Module, x: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """Return the mean over the samples for which ``real`` [n] is 1; 0 where it is 0 for all."""
        weights = self.learnt.weights(y)
        counts = real if weights is None else real * weights
        return (self.learnt.loss(logits_of(module(x)), y) * counts).sum() / counts.sum().clamp(min=1.0)


def loss_of_batch(learnt: Task, outputs: Tensor, y: Tensor) -> Tensor:
    """Compute a task's mean loss of a batch, as it is minimised: 0 with gradient 0 where nothing in it counts, so that
    it makes no step of its own. A mean that is measured stays no number there.

    >>> from fedscope.evaluation.criteria import task_of_criterion
    >>> weighed = task_of_criterion(nn.CrossEntropyLoss(weight=torch.tensor([0.0, 1.0])))
    >>> float(loss_of_batch(weighed, torch.ones(3, 2), torch.zeros(3, dtype=torch.long)))
    0.0
    """
    outputs = as_float32(logits_of(outputs))
    # samples of a task that has a name have something that counts, each of them
    if is_own_task(learnt) and learnt.weights(y) is not None and not learnt.count(y):
        return (outputs * 0).sum()
    return learnt.reduced(outputs, y, "mean")


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
        logits: Tensor = logits_of(module(x))
    finally:
        handle.remove()
    if not seen:
        raise FedscopeError(f"the model's head {head} is not called in forward; name another: --set model.head=NAME")
    return seen[-1].flatten(1), logits
