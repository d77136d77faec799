"""Models of linear layers alone, several in one pass on an accelerator, where an operator costs more than its sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoints import Layout, Weights
from .accelerators import has_float64
from .device import Compute
from .model_replica import Replica
from .module_copy import copy_module, to_device
from .recorded_names import name_in_layer

#: models in one pass; always so many, for the last bit of a product may change with how many there are
STACKED = 8
#: parameters up to which that costs next to nothing where there is but one
MOST = 2**20
#: samples on which it is tried out
TRIED = 4

Terms = Sequence[tuple[float, Tensor]]


class PostponingReplica(Replica):
    """A replica that forms a combination when somebody looks at it: whoever forms several together takes what it is of.

    Of modules without buffers.
    """

    _pending: tuple[Sequence[Weights], Sequence[float]] | None = None

    @property
    def w(self) -> Tensor:
        """The parameters, [P]."""
        if self._pending is not None:
            (models, coefficients), self._pending = self._pending, None
            super().combine(models, coefficients)
        return self._w

    @w.setter
    def w(self, values: Tensor) -> None:
        self._w = values

    def combine(
        self, models: Sequence[Weights], coefficients: Sequence[float], *, buffers: Collection[str] | None = None
    ) -> None:
        """Note what is to be combined; a model itself is loaded at once."""
        self._pending = None
        if sum(c != 0.0 for c in coefficients) > 1:
            self._pending = models, coefficients
        else:
            super().combine(models, coefficients)

    def load(self, parameters: np.ndarray | Tensor, buffers: Mapping[str, np.ndarray]) -> None:
        """Take over one model."""
        self._pending = None
        super().load(parameters, buffers)

    def logits(self, x: Tensor) -> Tensor:
        """Compute the model's outputs."""
        assert self.w is self._w  # formed by now
        return super().logits(x)

    def take(self) -> Terms | None:
        """Return what is to be combined, on the device, and forget it; None where the model is there."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        return [(c, self.resident(model)[0]) for model, c in zip(*pending, strict=True) if c != 0.0]


class StackedModels:
    """Models whose parameters are rows of a matrix, on one device.

    The module is called once: its first linear layers turn samples [n, ...] into what all models make of them,
    [STACKED n, ...], model after model; what lies between takes these for so many samples.

    Attributes:
        w: parameters, [STACKED, P].
    """

    def __init__(self, module: nn.Module, compute: Compute) -> None:
        layout = Layout.of(module)
        self.compute = compute
        self._module = to_device(copy_module(module), compute.device).eval().requires_grad_(False)
        self.w = torch.zeros(STACKED, layout.size, dtype=next(self._module.parameters()).dtype, device=compute.device)
        # not this object itself, which its layers would then keep in memory
        self._samples = [0]
        for name, layer in self._module.named_modules():
            if isinstance(layer, nn.Linear):
                of = [layout.slices.get(name_in_layer(module, name, which)) for which in ("weight", "bias")]
                weight = self.w[:, of[0]].view(STACKED, *layer.weight.shape).transpose(1, 2)
                bias = None if of[1] is None else self.w[:, of[1]].unsqueeze(1)
                part: nn.Module = layer
                part.forward = _linear(weight, bias, self._samples)

    def form(self, count: int, form: Callable[[int], Replica]) -> None:
        """Write ``count`` models into the first rows.

        Args:
            form: forms the k-th one in a :class:`PostponingReplica`.
        """
        combined: list[tuple[int, Terms]] = []
        for k in range(count):
            replica = form(k)
            terms = replica.take() if isinstance(replica, PostponingReplica) else None
            if terms is None:
                self.w[k] = replica.w
            else:
                combined.append((k, terms))
        self._combine(combined)

    def _combine(self, combined: Sequence[tuple[int, Terms]]) -> None:
        """Write combinations Σ_i c_i w_i into their rows: summed in float64 and rounded once, as one alone is.

        Combinations of the same models are summed together.
        """
        alike: dict[tuple[int, ...], list[tuple[int, Terms]]] = {}
        for row, terms in combined:
            alike.setdefault(tuple(id(vector) for _, vector in terms), []).append((row, terms))
        for members in alike.values():
            rows, vectors = [row for row, _ in members], [vector for _, vector in members[0][1]]
            c = torch.tensor([[factor for factor, _ in terms] for _, terms in members], dtype=torch.float64)
            c = c.to(self.w.device)
            total = vectors[0].double() * c[:, :1]
            for j, vector in enumerate(vectors[1:], start=1):
                total += vector.double() * c[:, j : j + 1]
            if rows == list(range(rows[0], rows[-1] + 1)):
                self.w[rows[0] : rows[-1] + 1] = total
            else:
                for row, values in zip(rows, total, strict=True):
                    self.w[row] = values

    def logits(self, x: Tensor, count: int) -> list[Tensor]:
        """Compute the outputs of the first ``count`` models, [n, ...] each."""
        with torch.inference_mode(), self.compute.products(), self.compute.forward():
            self._samples[0] = len(x)
            outputs: Tensor = self._module(x)
            return list(outputs.view(STACKED, len(x), *outputs.shape[1:])[:count])


def _linear(weight: Tensor, bias: Tensor | None, samples: list[int]) -> Callable[[Tensor], Tensor]:
    """Return the forward pass of one layer of all models; ``samples`` holds how many there are now."""

    def forward(h: Tensor) -> Tensor:
        inner = h.shape[1:-1]
        if len(h) == samples[0]:  # what all models are given
            rows = h.reshape(1, -1, h.shape[-1]).expand(STACKED, -1, -1)
        else:
            rows = h.reshape(STACKED, -1, h.shape[-1])
        made = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias, rows, weight)
        return made.reshape(STACKED * samples[0], *inner, -1)

    return forward


def stacked_models(module: nn.Module, compute: Compute, x: Tensor) -> tuple[StackedModels, PostponingReplica] | None:
    """Return room for several models in one pass and a replica to form them in, where that is possible: tried out on a
    few samples ``x``.

    Of a module whose parameters are all linear layers' own, and that answers for two models together as it does for
    each.
    """
    if not compute.is_gpu or not has_float64(compute.device) or len(x) < 2 or not _is_linear(module):
        return None
    replica = PostponingReplica(module, compute)
    stacked = StackedModels(module, replica.compute.exact)
    draws = torch.Generator().manual_seed(0)
    models = torch.randn(STACKED, replica.layout.size, generator=draws).to(stacked.w)
    stacked.w.copy_(models / replica.layout.size**0.25)
    try:
        together = stacked.logits(x, STACKED)
        few = [0, STACKED - 1]
        alone = []
        for k in few:
            replica.load(stacked.w[k], {})
            with torch.inference_mode(), replica.compute.exact.products():
                alone.append(replica.module(x))
        one, other = (torch.stack(outputs).cpu() for outputs in ([together[k] for k in few], alone))
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None  # something that is no linear layer wants to know how many samples there are
    finally:
        replica.w.zero_()
    scale = float(torch.nan_to_num(other.abs()).max())
    if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-3, atol=1e-4 * scale, equal_nan=True):
        return None
    stacked.compute = compute
    return stacked, replica


def _is_linear(module: nn.Module) -> bool:
    layout, own = Layout.of(module), set()
    for name, layer in module.named_modules():
        names = {name_in_layer(module, name, which) for which, _ in layer.named_parameters(recurse=False)}
        if names and (type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks):
            return False
        own |= names
    if next(module.buffers(), None) is not None or layout.size > MOST:
        return False
    if len(list(module.parameters())) < len(own):
        return False  # layers share one
    return own == set(layout.slices) and {parameter.dtype for parameter in module.parameters()} == {torch.float32}
