"""A place of work for several clients at once: their models in one matrix, their batches in one pass.

A batch's losses and gradients of all clients come from one vectorised call (``torch.vmap``) of the same module and the
same objective that a single client has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from ...checkpoints import Weights
from ...checkpoints.io.quiet import without_warnings
from ...evaluation.device import CPU, Compute
from .worker_model import (
    MeanLoss,
    Objective,
    TrainableModel,
    has_batch_statistics,
    mean_loss,
    minimised_and_told,
    to_host,
)

if TYPE_CHECKING:
    from ...evaluation.samples import Samples
    from .local_training import LocalTask

#: parameters by name, of all clients ([C, ...]) or the same for all ([...])
Named = Mapping[str, Tensor]


class VectorizedModel(TrainableModel):
    """A module whose parameters are those of ``clients`` clients, and their gradients.

    Attributes:
        w, g: [C, P].
        real: [C, B], 1 for a batch's samples and 0 for what fills up the shorter ones; set by the loop, see
            :meth:`fill`.
        sizes: how many samples of the batch each client has, [C].
    """

    def __init__(self, module: nn.Module, clients: int, compute: Compute = CPU) -> None:
        super().__init__(module, compute)
        self.w = self.w.new_zeros(clients, self.layout.size)
        self.g = torch.zeros_like(self.w)
        self._real: Tensor = self.w.new_ones(clients, 1)
        self._sizes: np.ndarray | None = None
        self._parts = _Parts(self.module)
        self._models: dict[str, Named] = {_OWN: self._named(self.w)}
        self._gradients = self._named(self.g)
        self._unused: set[str] = set()
        self._alone: TrainableModel | None = None

    @property
    def real(self) -> Tensor:
        """See the class."""
        return self._real

    @real.setter
    def real(self, real: Tensor) -> None:
        self._real, self._sizes = real, None

    def fill(self, real: Tensor, sizes: np.ndarray) -> None:
        """Say which samples of the next batch are real, and how many of each client: who knows it need not ask the
        device."""
        self._real, self._sizes = real, sizes

    @property
    def sizes(self) -> np.ndarray:
        """See the class."""
        if self._sizes is None:
            self._sizes = self._real.sum(1).long().cpu().numpy()
        return self._sizes

    @property
    def alone(self) -> TrainableModel:
        """A bench for one client, on which what is not vectorised is done."""
        if self._alone is None:
            self._alone = TrainableModel(self.module, self.compute)
        return self._alone

    def begin(self, task: LocalTask, pass_: int = 0) -> None:
        """Load the models that the clients were sent: one for all [P], or each its own [C, P]."""
        self.w.copy_(torch.as_tensor(task.start.parameters))
        for name, values in task.start.buffers.items():
            one = np.asarray(values)
            self._buffers[name].copy_(torch.as_tensor(one[0] if task.start.parameters.ndim == 2 else one))

    def read(self) -> Weights:
        """Read the clients' models as they are now, [C, P]."""
        count = len(self.w)
        buffers = {
            name: np.broadcast_to(value.cpu().numpy(), (count, *value.shape)).copy()
            for name, value in self._buffers.items()
        }
        return Weights(self.layout, self.to_all_names(to_host(self.w)), buffers)

    def loss(self, objective: Objective, x: Tensor, y: Tensor) -> Tensor:
        """Return the losses [C] of the clients' batches x [C, B, ...], y [C, B, ...], as :func:`minimised_and_told`
        has them; gradients of the objective are in ``g``.

        The mean loss leaves out what fills up a batch; another objective is called with clients whose batches are
        equally large, without what fills them up. Of a client without samples value and gradient are 0.
        """
        self._unused = set(self.layout.slices)
        values = self._values(objective, self.in_own_type(x), y)
        self.hold_also(self._unused)
        return values

    def _values(self, objective: Objective, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(objective, MeanLoss) and objective.maskable:
            return self._pass(objective.masked, None, x, y, self.real)
        sizes = self.sizes
        values = self.w.new_zeros(len(self.w))
        self.g.zero_()
        for size in sorted(set(sizes.tolist())):
            if size:
                rows = self.tensor(np.flatnonzero(sizes == size))
                everybody = None if len(rows) == len(sizes) else rows
                values[rows] = self._pass(objective, everybody, x[rows, :size], y[rows, :size])
        return values

    def _pass(self, objective: Any, rows: Tensor | None, *batch: Tensor) -> Tensor:
        """Losses of the clients ``rows``, all where None; their gradients go into ``g``."""
        names: list[str] = []
        tensors: list[Tensor] = []
        dims: list[int | None] = []
        for part, model in self._models.items():
            own = self._is_each(part)
            for name, tensor in model.items():
                names.append(f"{part}.{name}")
                tensors.append(tensor[rows] if own and rows is not None else tensor)
                dims.append(0 if own else None)
        learnt = [tensor.detach().requires_grad_() for tensor in tensors[: len(self.layout.parameters)]]
        tensors[: len(learnt)] = learnt
        count = len(tensors)

        with self.compute.products():
            with self.compute.forward(), self._parts.taking(names) as put:

                def value(*given: Tensor) -> tuple[Tensor, Tensor]:
                    put(given[:count])
                    return minimised_and_told(self._parts(objective, *given[count:]))

                # torch's own vectorised gradients do the same more slowly, and load its compiler, which takes a second
                values, told = vmap(value, in_dims=(*dims, *[0] * len(batch)))(*tensors, *batch)
            gradients = torch.autograd.grad(values.sum(), learnt, allow_unused=True)
        with torch.no_grad():
            for (name, at), gradient in zip(self.layout.slices.items(), gradients, strict=True):
                if gradient is None:
                    gradient = self.w.new_zeros(())
                else:
                    self._unused.discard(name)
                if rows is None:
                    self._gradients[name].copy_(gradient)
                else:
                    self.g[rows, at] = gradient.expand(len(values), *gradient.shape[1:]).reshape(len(values), -1)
        return told.detach()

    def companion(self, model: Weights, which: str) -> nn.Module:
        """A frozen module that holds another model, [P], or each client's own, [C, P], while an objective is called.

        Parameters alone: :func:`why_not_vectorised` refuses modules that hold more.
        """
        if which not in self._parts.held:
            made = TrainableModel(self.module, self.compute).module
            self._parts.add_module(which, made.eval().requires_grad_(False))
        self._models[which] = self._named(self.tensor(model.parameters).to(self.w.dtype))
        return self._parts.get_submodule(which)

    def _is_each(self, part: str) -> bool:
        first = next(iter(self._models[part].values()))
        return first.dim() > len(self.layout.parameters[0].shape)

    def _named(self, w: Tensor) -> Named:
        """Views of models [P] or [C, P], by the parameters' names."""
        shapes = {entry.name: entry.shape for entry in self.layout.parameters}
        return {name: w[..., at].view(*w.shape[:-1], *shapes[name]) for name, at in self.layout.slices.items()}


#: the place of the clients' own model among the parts
_OWN = "own"


class _Parts(nn.Module):
    """The module that is trained and the others, so that one call gives parameters to all of them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.own = module

    @contextmanager
    def taking(self, names: Sequence[str]) -> Iterator[Callable[[Sequence[Tensor]], None]]:
        """Something that lets these parameters, ``own.0.weight`` and so on, be other tensors until the end.

        A third of what a functional call costs.
        """
        places = [(self.get_submodule(path)._parameters, leaf) for path, _, leaf in (n.rpartition(".") for n in names)]
        before = [held[leaf] for held, leaf in places]

        def put(tensors: Sequence[Any]) -> None:
            for (held, leaf), tensor in zip(places, tensors, strict=True):
                held[leaf] = tensor

        try:
            yield put
        finally:
            put(before)

    @property
    def held(self) -> set[str]:
        return {name for name, _ in self.named_children()}

    def forward(self, objective: Any, *batch: Tensor) -> Any:
        return objective(self.own, *batch)


def why_not_vectorised(module: nn.Module, samples: Samples) -> str:
    """Describe what keeps clients with this module from being trained in one pass; "" where nothing does.

    Looked for in its layers, and then tried on two of the samples: two clients, of which one has a batch that is filled
    up, are to have the gradients that each has alone.
    """
    if has_batch_statistics(module):
        return "its BatchNorm keeps statistics for each client"
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return "its dropout draws masks for each client"
        if isinstance(layer, nn.RNNBase | nn.MultiheadAttention | nn.Embedding | nn.EmbeddingBag):
            return f"{type(layer).__name__} layers take one client at a time"
    if next(module.buffers(), None) is not None:
        return "it holds more than its parameters"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "some of its parameters are frozen"
    if any(parameter._backward_hooks for parameter in module.parameters()):
        return "its parameters have hooks on their gradients"
    if len([*module.named_parameters(remove_duplicate=False)]) > len([*module.parameters()]):
        return "two of its layers share a parameter"
    objective, alone, both = mean_loss(samples.task), TrainableModel(module), VectorizedModel(module, 2)
    both.w.copy_(alone.w)
    both.real = torch.tensor([[1, 1], [1, 0]]).to(both.w.dtype)
    x, y = samples.x[:2], samples.y[:2]
    expected = []
    try:
        for count in (2, 1):
            alone.loss(objective, x[:count], y[:count])
            expected.append(alone.g.clone())
        if alone.left_its_place:
            return "its forward puts other values in the place of its parameters (parameter.data = ...)"
        with without_warnings(message=".*performance drop", raised=True):
            both.loss(objective, torch.stack([x, x]), torch.stack([y, y]))
    except Exception as error:  # a module may fail in any way
        return f"torch cannot vectorise it ({(str(error) or type(error).__name__).splitlines()[0]})"
    apart = max(float((g - one).norm() / one.norm().clamp(min=1e-12)) for g, one in zip(both.g, expected, strict=True))
    return "" if apart < _ALIKE else f"its gradient differs by {apart:.1g} of its length in one pass"


#: how far gradients may lie apart that differ by rounding, relative to their length
_ALIKE = 1e-4
